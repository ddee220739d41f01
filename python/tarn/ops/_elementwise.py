"""Elementwise recurrences: a state of one number for each channel."""

from typing import Literal, TypedDict, Unpack, overload

import torch
from torch import Tensor

from tarn.ops import _checks as checks

__all__ = ["elementwise_recurrence"]

_NAME = "elementwise_recurrence"


# Options that the overloads share; the docstring says what they mean.
class _Options(TypedDict, total=False):
    lengths: Tensor | None
    cu_seqlens: Tensor | None
    initial_state: Tensor | None


@overload
def elementwise_recurrence(
    inputs: Tensor,
    gates: Tensor,
    *,
    return_state: Literal[False] = False,
    **options: Unpack[_Options],
) -> Tensor: ...


@overload
def elementwise_recurrence(
    inputs: Tensor,
    gates: Tensor,
    *,
    return_state: Literal[True],
    **options: Unpack[_Options],
) -> tuple[Tensor, Tensor]: ...


@overload
def elementwise_recurrence(
    inputs: Tensor,
    gates: Tensor,
    *,
    return_state: bool,
    **options: Unpack[_Options],
) -> Tensor | tuple[Tensor, Tensor]: ...


def elementwise_recurrence(
    inputs: Tensor,
    gates: Tensor,
    *,
    lengths: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    initial_state: Tensor | None = None,
    return_state: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """A decay and a sum in every channel: ``h_t = exp(g_t) h_{t-1} + x_t``, ``out_t = h_t``.

    Args:
        inputs: x [B, T, D], float32, bfloat16, float16 or float64.
        gates: g [B, T, D], natural logarithms of decay factors in any of these dtypes.
            -infinity is an exact reset; above 0 the state grows.
        lengths: [B] int32 or int64, tokens in use at the front of each row. Pads touch
            nothing, whatever they hold, and their outputs are 0.
        cu_seqlens: [N + 1], 0 = first, T = last: N sequences packed along T with
            B = 1. It excludes `lengths`.
        initial_state: [B, D] or [N, D], float32 (float64 with float64 inputs). None:
            zeros. It receives a gradient.
        return_state: whether to return the state after each sequence too.

    Returns:
        out [B, T, D] in the dtype of inputs, or (out, state [B or N, D]). T = 0 and
        B = 0 are valid. A step is a call with T = 1; any split of a sequence gives the
        same bits.

    Raises:
        ValueError: shapes, devices. TypeError: types and dtypes. Both before any work.

    O(B T D) time; the gradient keeps the inputs and a state every 32 tokens. The kernel
    serves the three smaller dtypes on the CPU, with the same bits for any number of
    threads; the rest is composed from torch's operators in O(B T D log T).
    Differentiable to any order. Thread-safe. HGRN's recurrence (Qin et al. 2023, arXiv
    2311.04823, eq. 3), and any other whose state is a number for each channel.

    Examples:
        >>> x, gates = torch.randn(2, 5, 16), -torch.rand(2, 5, 16)
        >>> out, state = ops.elementwise_recurrence(x, gates, return_state=True)
        >>> out.shape, state.shape
        (torch.Size([2, 5, 16]), torch.Size([2, 16]))
    """
    checks.want_tensor(_NAME, "inputs", inputs)
    checks.want_tensor(_NAME, "gates", gates)
    optional = {"lengths": lengths, "cu_seqlens": cu_seqlens, "initial_state": initial_state}
    for name, tensor in optional.items():
        if tensor is not None:
            checks.want_tensor(_NAME, name, tensor)
    out, state, _ = torch.ops.tarn.elementwise_recurrence.default(
        inputs, gates, lengths, cu_seqlens, initial_state, bool(return_state)
    )
    return (out, state) if return_state else out
