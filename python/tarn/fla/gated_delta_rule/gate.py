"""The gate that layers of Gated DeltaNet compute before the recurrence, in float32."""

import torch
from torch import Tensor

from tarn.fla import _call, _delta
from tarn.ops import _checks as checks

__all__ = ["fused_gdn_gate"]


def fused_gdn_gate(
    g: Tensor,
    A_log: Tensor,
    dt_bias: Tensor | None = None,
    output_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """-exp(A_log) softplus(g + dt_bias). g: [..., HV]; A_log and dt_bias: HV numbers.
    Computed in float32 (float64 for float64) and rounded once to output_dtype."""
    op = "fused_gdn_gate"
    _call.want_axes(op, "g", g, 1, "[..., heads]")
    checks.want_tensor(op, "A_log", A_log)
    rows = g.reshape(1, -1, g.shape[-1])
    return _delta.gate_of(op, rows, A_log, dt_bias).view(g.shape).to(output_dtype)
