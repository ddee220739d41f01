"""selective_scan_fn: whole sequences of Mamba-1."""

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from tarn import ops
from tarn.fla import _call
from tarn.fla.mamba.ssd_combined import steps_of
from tarn.ops import _checks as checks

__all__ = ["selective_scan_fn"]


def selective_scan_fn(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
) -> Any:
    """:func:`tarn.ops.selective_scan` of u with d = delta + delta_bias, its softplus under
    delta_softplus, times silu(z) (Gu and Dao 2023, arXiv 2312.00752).

    u, delta, z: [B, D, T]; A: [D, N]; B, C: [B, N, T], or [B, 1, N, T]; D, delta_bias:
    [D]. Returns out [B, D, T] in the dtype of u, and under return_last_state the states
    [B, D, N] in float32 (float64 with float64 inputs) too. B and C that are the same for
    all tokens, or that differ by groups of channels, are refused."""
    op = "selective_scan_fn"
    checks.want_shape(op, "delta", delta, u.shape)
    shared = []
    for name, given in (("B", B), ("C", C)):
        wanted = (u.shape[0], A.shape[-1], u.shape[2])
        rows = given.squeeze(1) if given.dim() == 4 and given.shape[1] == 1 else given
        checks.want_shape(op, name, rows, wanted)
        shared.append(rows.transpose(1, 2))
    steps = steps_of(delta.transpose(1, 2), delta_bias, delta_softplus)
    out, state = ops.selective_scan(u.transpose(1, 2), steps, A, *shared, skip=D, return_state=True)
    out = out.transpose(1, 2)
    if z is not None:
        out = (out * F.silu(_call.wide(z))).to(u.dtype)
    return (out, state) if return_last_state else out
