"""fla.ops.comba: Comba, the delta rule with closed-loop control (Hu et al. 2025, arXiv
2506.02475). What is written is corrected by what the state holds at p, not at the key."""

from torch import Tensor

from tarn import ops
from tarn.fla import _call, _delta
from tarn.ops import _checks as checks

__all__ = ["chunk_comba", "fused_recurrent_comba"]


def _want(
    op: str,
    q: Tensor,
    k: Tensor,
    p: Tensor,
    v: Tensor,
    g: Tensor,
    state: Tensor | None,
    cu_seqlens: Tensor | None,
) -> None:
    for name, x in (("q", q), ("k", k), ("p", p), ("v", v)):
        checks.want_tensor(op, name, x)
        if x.dim() != 4:
            wanted = "[batch, seq_len, heads, width]"
            raise checks.value_error(op, name, wanted, checks.shape_text(x.shape))
    for name, x in (("k", k), ("p", p)):
        checks.want_shape(op, name, x, q.shape)
    heads = v.shape[2] if v.shape[2] % max(q.shape[2], 1) == 0 else q.shape[2]
    checks.want_shape(op, "v", v, (*q.shape[:2], heads, v.shape[3]))
    checks.want_tensor(op, "g", g)
    checks.want_shape(op, "g", g, v.shape[:3])
    if cu_seqlens is not None:
        checks.want_tensor(op, "cu_seqlens", cu_seqlens)
    if state is not None:
        rows = q.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
        checks.want_tensor(op, "initial_state", state)
        checks.want_shape(op, "initial_state", state, (rows, heads, q.shape[3], v.shape[3]))


def _recurrence(
    op: str,
    q: Tensor,
    k: Tensor,
    p: Tensor | None,
    v: Tensor,
    g: Tensor,
    beta: Tensor | None,
    scale: float | None,
    state: Tensor | None,
    output_final_state: bool,
    l2norm: bool,
    cu_seqlens: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """exp(g) (I - beta k p^T) as a diagonal plus a low-rank matrix: exp(g) p reads the state
    before its decay, -beta k writes. Factors stay in float32, as the sums do."""
    p = k if p is None else p
    _want(op, q, k, p, v, g, state, cu_seqlens)
    betas = _call.wide(_delta.betas_of(op, beta, v, False, False))
    gates, values, heads, width = _call.wide(g), v, v.shape[2], v.shape[3]
    if l2norm:
        q, k, p = ops.unit_norm(q), ops.unit_norm(k), ops.unit_norm(p)
    by_channel = betas.dim() == 4
    if by_channel:  # each value channel as a head, of width 1
        values, betas = v.flatten(2).unsqueeze(-1), betas.flatten(2)
        gates = gates.repeat_interleave(width, 2)
        state = None if state is None else state.mT.flatten(1, 2).unsqueeze(-1)
    repeats = values.shape[2] // max(q.shape[2], 1)
    if repeats != 1:
        q, k, p = (x.repeat_interleave(repeats, 2) for x in (q, k, p))
    written = _call.wide(k) * betas.unsqueeze(-1)
    reads = _call.wide(p) * gates.exp().unsqueeze(-1)
    out, last = _call.recurrence(
        op,
        q,
        written,
        values,
        gates=gates,
        pair=(reads, -written),
        scale=scale,
        initial_state=state,
        output_final_state=output_final_state,
        cu_seqlens=cu_seqlens,
    )
    if by_channel:
        out = out.squeeze(-1).unflatten(2, (heads, width))
        last = (
            None if last is None else last.squeeze(-1).unflatten(1, (heads, width)).mT.contiguous()
        )
    return out, last


def chunk_comba(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    p: Tensor,
    g: Tensor,
    beta: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """W = exp(g_t) S_{t-1}, S_t = W + beta_t k_t (v_t - W^T p_t)^T, o_t = scale S_t^T q_t.

    q, k, p: [B, T, H, K], p None: the keys; v: [B, T, HV, V], HV a multiple of H; g
    [B, T, HV], natural logarithms, -inf included; beta: [B, T, HV] or [B, T, HV, V],
    where every value channel is a separate head; None: ones. use_qk_l2norm_in_kernel:
    q, k and p are normalised to length 1. States [B or N, HV, K, V]."""
    return _recurrence(
        "chunk_comba",
        q,
        k,
        p,
        v,
        g,
        beta,
        scale,
        initial_state,
        output_final_state,
        use_qk_l2norm_in_kernel,
        cu_seqlens,
    )


def fused_recurrent_comba(
    q: Tensor,
    k: Tensor,
    p: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """:func:`chunk_comba`, p before v, with a gradient here."""
    return _recurrence(
        "fused_recurrent_comba",
        q,
        k,
        p,
        v,
        g,
        beta,
        scale,
        initial_state,
        output_final_state,
        use_qk_l2norm_in_kernel,
        cu_seqlens,
    )
