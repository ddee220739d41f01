"""fla.ops.delta_rule: DeltaNet (Yang et al. 2024, arXiv 2406.06484)."""

from typing import Any

from torch import Tensor

from tarn.fla import _call, _delta

__all__ = ["chunk_delta_rule", "fused_chunk_delta_rule", "fused_recurrent_delta_rule"]


def chunk_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """S_t = S_{t-1} + beta_t k_t (v_t - S_{t-1}^T k_t)^T, o_t = scale S_t^T q_t.

    q, k: [B, T, H, K]; v: [B, T, H, V]; beta: [B, T, H]. Any dtype, float32 too.
    use_qk_l2norm_in_kernel: q and k are normalised to length 1 first. Returns
    (o, final_state [B or N, H, K, V] or None)."""
    op = "chunk_delta_rule"
    _call.want_chunk_size(op, kwargs, (16, 32, 64))
    _call.refuse_unknown(op, kwargs)
    q, k = _delta.lengths_of_1(q, k, use_qk_l2norm_in_kernel)
    return _call.recurrence(
        op,
        q,
        k,
        v,
        betas=_delta.betas_of(op, beta, v, False, False),
        scale=scale,
        initial_state=initial_state,
        output_final_state=output_final_state,
        cu_seqlens=cu_seqlens,
    )


def fused_chunk_delta_rule(**kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """:func:`chunk_delta_rule`, which the original points to from here."""
    return chunk_delta_rule(**kwargs)


def fused_recurrent_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """:func:`chunk_delta_rule`; beta may be [B, T, H, V], or None for ones."""
    op = "fused_recurrent_delta_rule"
    q, k = _delta.lengths_of_1(q, k, use_qk_l2norm_in_kernel)
    return _call.recurrence(
        op,
        q,
        k,
        v,
        betas=_delta.betas_of(op, beta, v, False, False),
        scale=scale,
        initial_state=initial_state,
        output_final_state=output_final_state,
        cu_seqlens=cu_seqlens,
    )
