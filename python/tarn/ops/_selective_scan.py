"""Selective scans: each channel has states with separate decays, whose rate a token
chooses."""

from typing import Literal, TypedDict, Unpack, overload

import torch
from torch import Tensor

from tarn.ops import _checks as checks

__all__ = ["selective_scan"]

_NAME = "selective_scan"


# Options that the overloads share; the docstring says what they mean.
class _Options(TypedDict, total=False):
    skip: Tensor | None
    lengths: Tensor | None
    cu_seqlens: Tensor | None
    initial_state: Tensor | None


@overload
def selective_scan(
    inputs: Tensor,
    steps: Tensor,
    rates: Tensor,
    keys: Tensor,
    queries: Tensor,
    *,
    return_state: Literal[False] = False,
    **options: Unpack[_Options],
) -> Tensor: ...


@overload
def selective_scan(
    inputs: Tensor,
    steps: Tensor,
    rates: Tensor,
    keys: Tensor,
    queries: Tensor,
    *,
    return_state: Literal[True],
    **options: Unpack[_Options],
) -> tuple[Tensor, Tensor]: ...


@overload
def selective_scan(
    inputs: Tensor,
    steps: Tensor,
    rates: Tensor,
    keys: Tensor,
    queries: Tensor,
    *,
    return_state: bool,
    **options: Unpack[_Options],
) -> Tensor | tuple[Tensor, Tensor]: ...


def selective_scan(
    inputs: Tensor,
    steps: Tensor,
    rates: Tensor,
    keys: Tensor,
    queries: Tensor,
    *,
    skip: Tensor | None = None,
    lengths: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    initial_state: Tensor | None = None,
    return_state: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """The recurrence of Mamba: N states for each channel d,

        h_t[d, n] = exp(delta_t[d] A[d, n]) h_{t-1}[d, n] + delta_t[d] B_t[n] x_t[d]
        out_t[d]  = sum_n C_t[n] h_t[d, n] + D[d] x_t[d]

    Args:
        inputs: x [B, T, D], float32, bfloat16, float16 or float64.
        steps: delta [B, T, D], as they are used: after softplus. In any of these dtypes.
        rates: A [D, N], negative where states decay; N from 1 to 128.
        keys, queries: B and C [B, T, N], which all channels share.
        skip: D [D]. None: zeros.
        lengths: [B] int32 or int64, tokens in use at the front of each row. Pads touch
            nothing, whatever they hold, and their outputs are 0.
        cu_seqlens: [S + 1], 0 = first, T = last: S sequences packed along T with
            B = 1. It excludes `lengths`.
        initial_state: [B, D, N] or [S, D, N], float32 (float64 with float64 inputs).
            None: zeros. It receives a gradient, as do the tensors above.
        return_state: whether to return the state after each sequence too.

    Returns:
        out [B, T, D] in the dtype of inputs, or (out, state [B or S, D, N]). T = 0 and
        B = 0 are valid. A step is a call with T = 1; any split of a sequence gives the
        same bits.

    Raises:
        ValueError: shapes, devices. TypeError: types and dtypes. Both before any work.

    O(B T D N) time; the gradient keeps the inputs and the states every 16 tokens. The
    kernel serves the three smaller dtypes on the CPU, with the same bits for any number
    of threads; the rest is composed from torch's operators in O(B T D N log T).
    Differentiable to any order. Thread-safe. Gu and Dao 2023, arXiv 2312.00752.

    Examples:
        >>> x, steps = torch.randn(2, 5, 16), torch.rand(2, 5, 16)
        >>> rates, keys, queries = -torch.rand(16, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 4)
        >>> out, state = ops.selective_scan(x, steps, rates, keys, queries, return_state=True)
        >>> out.shape, state.shape
        (torch.Size([2, 5, 16]), torch.Size([2, 16, 4]))
    """
    required = {
        "inputs": inputs,
        "steps": steps,
        "rates": rates,
        "keys": keys,
        "queries": queries,
    }
    optional = {
        "skip": skip,
        "lengths": lengths,
        "cu_seqlens": cu_seqlens,
        "initial_state": initial_state,
    }
    for name, tensor in required.items():
        checks.want_tensor(_NAME, name, tensor)
    for name, given in optional.items():
        if given is not None:
            checks.want_tensor(_NAME, name, given)
    out, state, _ = torch.ops.tarn.selective_scan.default(
        *required.values(), *optional.values(), bool(return_state)
    )
    return (out, state) if return_state else out
