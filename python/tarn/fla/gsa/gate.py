"""The gate of bounded memory (Peng et al. 2022, arXiv 2110.02488, with the exponential of
its control): what GSA without forget gates and LightNet compute before the recurrence."""

import torch
from torch import Tensor

from tarn.fla import _call
from tarn.fla._packed import bounds_of
from tarn.ops import _checks as checks

__all__ = ["fused_additive_gate"]

_NOTHING = -1e30  # log of an empty sum; -inf would make NaN of differences


def _rows_of(op: str, x: Tensor, cu_seqlens: Tensor | None) -> list[Tensor]:
    """The sequences of x: the whole batch, or each packed one."""
    if cu_seqlens is None:
        return [x]
    if x.shape[0] != 1:
        raise checks.value_error(op, "x (with cu_seqlens)", "a batch of 1", x.shape[0])
    bounds = bounds_of(op, cu_seqlens, x.shape[1], x)
    return [x[:, begin:end] for begin, end in zip(bounds[:-1], bounds[1:], strict=True)]


def fused_additive_gate(
    x: Tensor,
    initial_state: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    output_dtype: torch.dtype | None = None,
    gate_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """z_t = log(exp(z_{t-1}) + exp(x_t)), k_t = exp(x_t - z_t), g_t = z_{t-1} - z_t, and 0
    where nothing came before. Returns (k, g, last z [B or N, 1, H, K]).

    x: [B, T, H, K]; x of -inf adds nothing. initial_state: z_0 [B or N, 1, H, K], None: -inf.
    z is computed and returned in float32 (float64 for float64); k and g have the dtype of x
    unless output_dtype and gate_dtype say otherwise."""
    op = "fused_additive_gate"
    checks.want_tensor(op, "x", x)
    if x.dim() != 4:
        raise checks.value_error(
            op, "x", "[batch, seq_len, heads, width]", checks.shape_text(x.shape)
        )
    rows = _rows_of(op, _call.wide(x).clamp_min(_NOTHING), cu_seqlens)
    shape = (x.shape[0] if cu_seqlens is None else len(rows), 1, *x.shape[2:])
    if initial_state is None:
        starts = rows[0].new_full(shape, _NOTHING) if rows else x.new_zeros(shape)
    else:
        checks.want_tensor(op, "initial_state", initial_state, x)
        checks.want_shape(op, "initial_state", initial_state, shape)
        starts = _call.wide(initial_state).clamp_min(_NOTHING)
    outs, gates, last = [], [], []
    for i, row in enumerate(rows):
        start = starts if cu_seqlens is None else starts[i : i + 1]
        z = torch.cat([start.to(row.dtype), row], 1).logcumsumexp(1)
        before, after = z[:, :-1], z[:, 1:]
        outs.append((row - after).exp() * (row > _NOTHING))
        gates.append((before - after).masked_fill(before <= _NOTHING, 0))
        last.append(z[:, -1:])
    if not rows:  # packed rows of no sequence
        return x.to(output_dtype or x.dtype), x.to(gate_dtype or x.dtype), _call.wide(starts)
    z = torch.cat(last)
    z = z.masked_fill(z <= _NOTHING, -torch.inf)
    k, g = torch.cat(outs, 1), torch.cat(gates, 1)
    return k.to(output_dtype or x.dtype), g.to(gate_dtype or x.dtype), z
