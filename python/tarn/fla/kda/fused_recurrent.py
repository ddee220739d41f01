"""fused_recurrent_kda."""

from typing import Any

from torch import Tensor

from tarn.fla import _call, _delta
from tarn.fla.kda.gate import gates_of

__all__ = ["fused_recurrent_kda"]


def fused_recurrent_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    lower_bound: float | None = None,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """:func:`tarn.fla.chunk_kda`, with a gradient here; beta may be [B, T, HV, V]."""
    op = "fused_recurrent_kda"
    state_v_first = _call.v_first(op, state_v_first, kwargs)
    _call.refuse_unknown(op, kwargs)
    gates = gates_of(op, g, use_gate_in_kernel, A_log, dt_bias, lower_bound, v, k.shape[3])
    q, k = _delta.lengths_of_1(q, k, use_qk_l2norm_in_kernel)
    betas = _delta.betas_of(op, beta, v, use_beta_sigmoid_in_kernel, allow_neg_eigval)
    return _call.recurrence(
        op, q, k, v, gates=gates, betas=betas, scale=scale, initial_state=initial_state,
        output_final_state=output_final_state, state_v_first=state_v_first, cu_seqlens=cu_seqlens,
        grouped=True)
