"""Short causal convolutions over time, as used before recurrences."""

from typing import Literal, TypedDict, Unpack, overload

import torch
from torch import Tensor

from tarn.ops import _checks as checks

__all__ = ["short_convolution"]

_NAME = "short_convolution"


# Options that the overloads share; the docstring says what they mean.
class _Options(TypedDict, total=False):
    activation: str
    lengths: Tensor | None
    cu_seqlens: Tensor | None
    initial_state: Tensor | None


@overload
def short_convolution(
    inputs: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    *,
    return_state: Literal[False] = False,
    **options: Unpack[_Options],
) -> Tensor: ...


@overload
def short_convolution(
    inputs: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    *,
    return_state: Literal[True],
    **options: Unpack[_Options],
) -> tuple[Tensor, Tensor]: ...


@overload
def short_convolution(
    inputs: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    *,
    return_state: bool,
    **options: Unpack[_Options],
) -> Tensor | tuple[Tensor, Tensor]: ...


def short_convolution(
    inputs: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    *,
    activation: str = "silu",
    lengths: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    initial_state: Tensor | None = None,
    return_state: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """One filter a channel over a token and the W - 1 before it:
    ``z_t = bias + sum_j weights[:, j] x_{t-W+1+j}``, ``out_t = silu(z_t)``.

    Args:
        inputs: [B, T, D], float32, bfloat16, float16 or float64.
        weights: [D, W], W from 2 to 8; the last column meets the present token.
        bias: [D] or None.
        activation: "silu" or "none".
        lengths: [B] int32 or int64, tokens in use at the front of each row. Pads touch
            nothing, whatever they hold, and their outputs are 0.
        cu_seqlens: [N + 1], 0 = first, T = last: N sequences packed along T with
            B = 1. It excludes `lengths`.
        initial_state: [B, W - 1, D] or [N, W - 1, D], float32 (float64 with float64
            inputs): the inputs before the first token, the oldest first. None: zeros.
            It receives a gradient.
        return_state: whether to return the last W - 1 inputs of each sequence too.

    Returns:
        out [B, T, D] in the dtype of inputs, or (out, state). T = 0 and B = 0 are
        valid. A step is a call with T = 1; any split of a sequence gives the same bits.

    Raises:
        ValueError: shapes, devices, an unknown activation. TypeError: types and
        dtypes. Both before any work.

    O(B T D W) time; the gradient keeps the inputs alone. The kernel serves the three
    smaller dtypes on the CPU, with the same bits for any number of threads; the rest is
    composed from torch's operators. Differentiable to any order. Thread-safe. After
    the layers of Mamba-2 (arXiv 2405.21060) and Gated DeltaNet (arXiv 2412.06464).

    Examples:
        >>> x, weights = torch.randn(2, 5, 16), torch.randn(16, 4)
        >>> out, state = ops.short_convolution(x, weights, return_state=True)
        >>> out.shape, state.shape
        (torch.Size([2, 5, 16]), torch.Size([2, 3, 16]))
    """
    checks.want_tensor(_NAME, "inputs", inputs)
    checks.want_tensor(_NAME, "weights", weights)
    optional = {
        "bias": bias,
        "lengths": lengths,
        "cu_seqlens": cu_seqlens,
        "initial_state": initial_state,
    }
    for name, tensor in optional.items():
        if tensor is not None:
            checks.want_tensor(_NAME, name, tensor)
    if activation not in ("silu", "none"):
        raise checks.value_error(_NAME, "activation", '"silu" or "none"', repr(activation))
    out, state = torch.ops.tarn.short_convolution.default(
        inputs, weights, bias, activation, lengths, cu_seqlens, initial_state, bool(return_state)
    )
    return (out, state) if return_state else out
