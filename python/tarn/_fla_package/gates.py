"""The gates that layers of KDA and Gated DeltaNet compute before their recurrence, on the
CPU, in float32 and rounded once to the dtype of the result."""

from __future__ import annotations

import torch
from torch import Tensor

from tarn.fla import _delta
from tarn.ops import _checks as checks


def _want_rows(op: str, g: Tensor, axes: int, wanted: str) -> None:
    checks.want_tensor(op, "g", g)
    if g.dim() < axes:
        raise checks.value_error(op, "g", wanted, checks.shape_text(g.shape))


def fused_kda_gate(g, A_log=None, dt_bias=None, lower_bound=None, output_dtype=torch.float32):
    """-exp(A_log) softplus(g + dt_bias), or with a lower bound L
    L sigmoid(exp(A_log) (g + dt_bias)). g: [..., H, K]; A_log: H numbers; dt_bias: H K."""
    op = "fused_kda_gate"
    _want_rows(op, g, 2, "[..., heads, width]")
    if A_log is None and lower_bound is None:
        raise checks.value_error(op, "A_log", "a tensor, or a lower_bound", None)
    rows = g.reshape(1, -1, *g.shape[-2:])
    return _delta.gate_of(op, rows, A_log, dt_bias, lower_bound).view(g.shape).to(output_dtype)


def fused_gdn_gate(g, A_log, dt_bias=None, output_dtype=torch.float32):
    """-exp(A_log) softplus(g + dt_bias). g: [..., HV]; A_log and dt_bias: HV numbers."""
    op = "fused_gdn_gate"
    _want_rows(op, g, 1, "[..., heads]")
    checks.want_tensor(op, "A_log", A_log)
    rows = g.reshape(1, -1, g.shape[-1])
    return _delta.gate_of(op, rows, A_log, dt_bias).view(g.shape).to(output_dtype)
