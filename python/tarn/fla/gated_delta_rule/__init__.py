"""fla.ops.gated_delta_rule: Gated DeltaNet (Yang et al. 2024, arXiv 2412.06464)."""

from typing import Any

from torch import Tensor

from tarn.fla import _call, _delta
from tarn.ops import _checks as checks

__all__ = [
    "chunk_gated_delta_rule",
    "chunk_gdn",
    "fused_recurrent_gated_delta_rule",
    "fused_recurrent_gdn",
]


def _raw_gate(op: str, g: Any, A_log: Tensor | None, dt_bias: Tensor | None) -> Tensor:
    for name, x in (("A_log", A_log), ("g", g)):
        if x is None:
            raise checks.value_error(op, name, "a tensor with use_gate_in_kernel", None)
    return _delta.gate_of(op, g, A_log, dt_bias)


def chunk_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    chunk_indices: Tensor | None = None,
    cp_context: Any = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """W = exp(g_t) S_{t-1}, S_t = W + beta_t k_t (v_t - W^T k_t)^T, o_t = scale S_t^T q_t.

    q, k: [B, T, H, K]; v: [B, T, HV, V], HV a multiple of H; g, beta: [B, T, HV], g
    natural logarithms, -inf included. By name also use_gate_in_kernel, A_log [HV] and
    dt_bias [HV]: g is then raw, the gate -exp(A_log) softplus(g + dt_bias).
    use_beta_sigmoid_in_kernel: beta is raw, allow_neg_eigval doubles its sigmoid.
    use_qk_l2norm_in_kernel: q and k are normalised to length 1. States [B or N, HV, K,
    V], or [.., V, K] under state_v_first. cp_context is refused."""
    op = "chunk_gated_delta_rule"
    state_v_first = _call.v_first(op, state_v_first, kwargs)
    _call.want_chunk_size(op, kwargs, (16, 32, 64))
    raw = kwargs.pop("use_gate_in_kernel", False)
    A_log, dt_bias = kwargs.pop("A_log", None), kwargs.pop("dt_bias", None)
    _call.refuse_unknown(op, {**kwargs, "cp_context": cp_context})
    checks.want_tensor(op, "g", g)
    checks.want_shape(op, "g", g, v.shape[:3])
    q, k = _delta.lengths_of_1(q, k, use_qk_l2norm_in_kernel)
    betas = _delta.betas_of(op, beta, v, use_beta_sigmoid_in_kernel, allow_neg_eigval)
    return _call.recurrence(
        op,
        q,
        k,
        v,
        gates=_raw_gate(op, g, A_log, dt_bias) if raw else g,
        betas=betas,
        scale=scale,
        initial_state=initial_state,
        output_final_state=output_final_state,
        state_v_first=state_v_first,
        cu_seqlens=cu_seqlens,
        grouped=True,
    )


def fused_recurrent_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    gk: Tensor | None = None,
    gv: Tensor | None = None,
    beta: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """:func:`chunk_gated_delta_rule` with gates for heads (g [B, T, HV]), channels of the
    keys (gk [B, T, HV, K]) and of the values (gv [B, T, HV, V]), each optional; their
    factors multiply. beta: [B, T, HV] or [B, T, HV, V]; None: ones. Under gv, or one beta
    for each channel, every value channel is a separate head."""
    op = "fused_recurrent_gated_delta_rule"
    state_v_first = _call.v_first(op, state_v_first, kwargs)
    _call.refuse_unknown(op, kwargs)
    shapes = (("g", g, v.shape[:3]), ("gk", gk, (*v.shape[:3], k.shape[3])), ("gv", gv, v.shape))
    for name, gate, shape in shapes:
        if gate is not None:
            checks.want_shape(op, name, gate, shape)
    if use_gate_in_kernel:
        g = _raw_gate(op, g, A_log, dt_bias)
    q, k = _delta.lengths_of_1(q, k, use_qk_l2norm_in_kernel)
    betas = _delta.betas_of(op, beta, v, use_beta_sigmoid_in_kernel, allow_neg_eigval)
    return _call.recurrence(
        op,
        q,
        k,
        v,
        gates=_call.gates_of(None, g, gk),
        value_gates=gv,
        betas=betas,
        scale=scale,
        initial_state=initial_state,
        output_final_state=output_final_state,
        state_v_first=state_v_first,
        cu_seqlens=cu_seqlens,
        grouped=True,
    )


chunk_gdn = chunk_gated_delta_rule
fused_recurrent_gdn = fused_recurrent_gated_delta_rule
