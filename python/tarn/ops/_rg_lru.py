"""The real-gated linear recurrent unit: gates and an elementwise recurrence."""

from typing import Literal, TypedDict, Unpack, overload

import torch
from torch import Tensor

from tarn.ops import _checks as checks

__all__ = ["rg_lru"]

_NAME = "rg_lru"


# Options that the overloads share; the docstring says what they mean.
class _Options(TypedDict, total=False):
    begins: Tensor | None
    kept: Tensor | None
    lengths: Tensor | None
    cu_seqlens: Tensor | None
    initial_state: Tensor | None
    most_slope: float | None


@overload
def rg_lru(
    inputs: Tensor,
    input_gates: Tensor,
    recurrence_gates: Tensor,
    Lambda: Tensor,
    input_bias: Tensor | None = None,
    recurrence_bias: Tensor | None = None,
    *,
    return_state: Literal[False] = False,
    **options: Unpack[_Options],
) -> Tensor: ...


@overload
def rg_lru(
    inputs: Tensor,
    input_gates: Tensor,
    recurrence_gates: Tensor,
    Lambda: Tensor,
    input_bias: Tensor | None = None,
    recurrence_bias: Tensor | None = None,
    *,
    return_state: Literal[True],
    **options: Unpack[_Options],
) -> tuple[Tensor, Tensor]: ...


@overload
def rg_lru(
    inputs: Tensor,
    input_gates: Tensor,
    recurrence_gates: Tensor,
    Lambda: Tensor,
    input_bias: Tensor | None = None,
    recurrence_bias: Tensor | None = None,
    *,
    return_state: bool,
    **options: Unpack[_Options],
) -> Tensor | tuple[Tensor, Tensor]: ...


def rg_lru(
    inputs: Tensor,
    input_gates: Tensor,
    recurrence_gates: Tensor,
    Lambda: Tensor,
    input_bias: Tensor | None = None,
    recurrence_bias: Tensor | None = None,
    *,
    begins: Tensor | None = None,
    kept: Tensor | None = None,
    lengths: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    initial_state: Tensor | None = None,
    most_slope: float | None = None,
    return_state: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """RG-LRU, Griffin's recurrence: ``h_t = a_t h_{t-1} + sqrt(1 - a_t^2) i_t x_t`` in every
    channel, with ``log a = -8 softplus(Lambda) r`` and gates i and r between 0 and 1.

    Args:
        inputs: x [B, T, C], float32, bfloat16, float16 or float64.
        input_gates, recurrence_gates: [B, T, C] in the dtype of inputs; with the biases they
            are what the logistic function makes i and r of.
        Lambda: [C], any floating dtype, with the sign of the published models (the opposite
            of the paper's).
        input_bias, recurrence_bias: [C]. None: zeros.
        begins: [B, T] bool: tokens that forget everything before them and write ``i x``,
            without the root. None: the first kept token of each sequence, or no token with
            an initial state.
        kept: [B, T] bool. A token that is not kept leaves the state as it is, whatever it
            holds; its output is the state. None: all.
        lengths: [B] int32 or int64, tokens in use at the front of each row. Pads touch
            nothing, and their outputs are 0.
        cu_seqlens: [N + 1], 0 = first, T = last: N sequences packed along T with
            B = 1. It excludes `lengths`.
        initial_state: h [B, C] or [N, C], float32 (float64 with float64 inputs). None:
            zeros. It receives a gradient.
        most_slope: bound of the root's slope by ``1 - a^2``, as in RecurrentGemma's training
            (1000). None: no bound.
        return_state: whether to return the state after each sequence too.

    Returns:
        out [B, T, C], h in the dtype of inputs, or (out, state [B or N, C]). T = 0 and
        B = 0 are valid. A step is a call with T = 1; any split of a sequence gives the
        same bits.

    Raises:
        ValueError: shapes, devices. TypeError: types and dtypes. Both before any work.

    O(B T C) time; gates and states are float32 (float64). Gradients reach all tensors of
    numbers; where 1 - a^2 is below 1e-30 the root has none. The kernels serve the three
    smaller dtypes on the CPU, with the same bits for any number of threads; the rest is
    composed from torch's operators in O(B T C log T). Differentiable to any order.
    Thread-safe. De et al. 2024, arXiv 2402.19427, eq. (1)-(4).

    Examples:
        >>> x, p_i, p_r = torch.randn(3, 2, 5, 16)
        >>> out, state = ops.rg_lru(x, p_i, p_r, torch.zeros(16), return_state=True)
        >>> out.shape, state.shape
        (torch.Size([2, 5, 16]), torch.Size([2, 16]))
    """
    operands = {
        "inputs": inputs,
        "input_gates": input_gates,
        "recurrence_gates": recurrence_gates,
        "Lambda": Lambda,
    }
    for name, tensor in operands.items():
        checks.want_tensor(_NAME, name, tensor)
    optional = {
        "input_bias": input_bias,
        "recurrence_bias": recurrence_bias,
        "begins": begins,
        "kept": kept,
        "lengths": lengths,
        "cu_seqlens": cu_seqlens,
        "initial_state": initial_state,
    }
    for name, given in optional.items():
        if given is not None:
            checks.want_tensor(_NAME, name, given)
    if most_slope is not None and not isinstance(most_slope, (int, float)):
        raise checks.type_error(_NAME, "most_slope", "a number", type(most_slope).__name__)
    out, state = torch.ops.tarn.rg_lru.default(
        *operands.values(), *optional.values(), bool(return_state), most_slope
    )
    return (out, state) if return_state else out
