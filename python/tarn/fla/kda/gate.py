"""The gate that layers of KDA compute before the recurrence, in float32."""

import torch
from torch import Tensor

from tarn.fla import _call, _delta
from tarn.ops import _checks as checks

__all__ = ["fused_kda_gate"]


def gates_of(
    op: str,
    g: Tensor,
    raw: bool,
    A_log: Tensor | None,
    dt_bias: Tensor | None,
    lower_bound: float | None,
    v: Tensor,
    width: int,
) -> Tensor:
    """The gates [B, T, HV, K] of a call. A lower bound selects its form; only raw gates
    are transformed."""
    checks.want_tensor(op, "g", g)
    checks.want_shape(op, "g", g, (*v.shape[:3], width))
    if not raw:
        return g
    _want_rate(op, A_log, lower_bound)
    return _delta.gate_of(op, g, A_log, dt_bias, lower_bound)


def _want_rate(op: str, A_log: Tensor | None, lower_bound: float | None) -> None:
    if A_log is None and lower_bound is None:
        raise checks.value_error(op, "A_log", "a tensor, or a lower_bound", None)


def fused_kda_gate(
    g: Tensor,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    lower_bound: float | None = None,
    output_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """-exp(A_log) softplus(g + dt_bias), or with a lower bound L
    L sigmoid(exp(A_log) (g + dt_bias)), where A_log may be None.

    g: [..., H, K]; A_log: H numbers of any shape; dt_bias: H K numbers. Computed in float32
    (float64 for float64) and rounded once to output_dtype."""
    op = "fused_kda_gate"
    _call.want_axes(op, "g", g, 2, "[..., heads, width]")
    _want_rate(op, A_log, lower_bound)
    rows = g.reshape(1, -1, *g.shape[-2:])
    return _delta.gate_of(op, rows, A_log, dt_bias, lower_bound).view(g.shape).to(output_dtype)
