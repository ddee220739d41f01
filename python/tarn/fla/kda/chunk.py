"""chunk_kda, and the states between its chunks."""

from typing import Any

import torch
from torch import Tensor

from tarn.fla import _call, _delta
from tarn.fla.kda.gate import gates_of
from tarn.ops import _checks as checks

__all__ = ["chunk_kda"]


def _states_of_chunks(
    q: Tensor, k: Tensor, v: Tensor, gates: Tensor, betas: Tensor, size: int, **options: Any
) -> Tensor:
    """The states that enter the chunks of all sequences, [B, NT, HV, K, V] in the dtype
    of k: one call for each chunk, as no kernel hands them out."""
    bounds, state = options["cu_seqlens"], options["initial_state"]
    lengths = [q.shape[1]] if bounds is None else bounds.diff().tolist()
    rows, begin = [], 0
    v_first = options["state_v_first"]
    widths = (v.shape[3], k.shape[3]) if v_first else (k.shape[3], v.shape[3])
    for n, length in enumerate(lengths):
        own = state if bounds is None or state is None else state[n : n + 1]
        if own is None:
            own = torch.zeros(q.shape[0], v.shape[2], *widths, device=q.device)
        for first in range(begin, begin + length, size):
            rows.append(own)
            one = slice(first, min(first + size, begin + length))
            _, own = _call.recurrence(
                "chunk_kda",
                q[:, one],
                k[:, one],
                v[:, one],
                gates=gates[:, one],
                betas=betas[:, one],
                initial_state=own,
                output_final_state=True,
                state_v_first=v_first,
                grouped=True,
            )
        begin += length
    shape = (q.shape[0], 0, v.shape[2], *widths)
    return torch.stack(rows, 1).to(k.dtype) if rows else k.new_zeros(shape)


def chunk_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    safe_gate: bool = False,
    lower_bound: float | None = None,
    disable_recompute: bool = False,
    return_intermediate_states: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    cp_context: Any = None,
    use_graph: bool = False,
    max_num_seqs: int | None = None,
    **kwargs: Any,
) -> Any:
    """W = Diag(exp(g_t)) S_{t-1}, S_t = W + beta_t k_t (v_t - W^T k_t)^T, o_t = scale S_t^T q_t.

    g: [B, T, HV, K]; under use_gate_in_kernel raw, with A_log [HV] and dt_bias [HV K]
    by name: -exp(A_log) softplus(g + dt_bias), or with lower_bound L
    L sigmoid(exp(A_log) (g + dt_bias)), where A_log may be absent. safe_gate asks for a
    bound from -5 on and changes no number. The rest is as in
    :func:`tarn.fla.chunk_gated_delta_rule`. return_intermediate_states, in inference
    mode, adds the states that enter chunks of chunk_size (64 or 32) tokens."""
    op = "chunk_kda"
    state_v_first = _call.v_first(op, state_v_first, kwargs)
    size = kwargs.get("chunk_size") or 64
    _call.want_chunk_size(op, kwargs, (32, 64))
    A_log, dt_bias = kwargs.pop("A_log", None), kwargs.pop("dt_bias", None)
    _call.refuse_unknown(op, {**kwargs, "cp_context": cp_context})
    if safe_gate and use_gate_in_kernel and (lower_bound is None or not -5 <= lower_bound < 0):
        raise checks.value_error(op, "lower_bound (with safe_gate)", "-5 to below 0", lower_bound)
    if return_intermediate_states and not torch.is_inference_mode_enabled():
        raise checks.value_error(
            op, "return_intermediate_states", "False outside inference mode", True
        )
    gates = gates_of(op, g, use_gate_in_kernel, A_log, dt_bias, lower_bound, v, k.shape[3])
    q, k = _delta.lengths_of_1(q, k, use_qk_l2norm_in_kernel)
    betas = _delta.betas_of(op, beta, v, use_beta_sigmoid_in_kernel, allow_neg_eigval)
    options: dict[str, Any] = dict(
        initial_state=initial_state, state_v_first=state_v_first, cu_seqlens=cu_seqlens
    )
    out, state = _call.recurrence(
        op,
        q,
        k,
        v,
        gates=gates,
        betas=betas,
        scale=scale,
        output_final_state=output_final_state,
        grouped=True,
        **options,
    )
    if not return_intermediate_states:
        return out, state
    return out, state, _states_of_chunks(q, k, v, gates, betas, size, **options)
