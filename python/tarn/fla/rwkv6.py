"""fla.ops.rwkv6: the recurrence of RWKV-6, which is read before a token is taken in
(Peng et al. 2024, arXiv 2404.05892)."""

from typing import Any

from torch import Tensor

from tarn.fla import _call
from tarn.ops import _checks as checks

__all__ = ["chunk_rwkv6", "fused_recurrent_rwkv6"]


def _rwkv6(op: str, r: Tensor, k: Tensor, v: Tensor, w: Tensor, u: Tensor, **options: Any) -> Any:
    for name, x in (("w", w), ("u", u)):
        checks.want_tensor(op, name, x)
    checks.want_shape(op, "w", w, r.shape)
    checks.want_shape(op, "u", u, r.shape[2:])
    return _call.recurrence(op, r, k, v, gates=w, bonus=u, **options)


def chunk_rwkv6(
    r: Tensor,
    k: Tensor,
    v: Tensor,
    w: Tensor,
    u: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """o_t = scale (S_{t-1} + Diag(u) k_t v_t^T)^T r_t, S_t = Diag(exp(w_t)) S_{t-1} + k_t v_t^T.

    r, k, w: [B, T, H, K], w logarithms of decay; v: [B, T, H, V]; u: [H, K]. scale: None
    is K^-1/2 (RWKV-6's models use 1). Returns (o, final_state [B or N, H, K, V] or None)."""
    _call.want_chunk_size("chunk_rwkv6", kwargs, None)
    _call.refuse_unknown("chunk_rwkv6", kwargs)
    return _rwkv6(
        "chunk_rwkv6",
        r,
        k,
        v,
        w,
        u,
        scale=scale,
        initial_state=initial_state,
        output_final_state=output_final_state,
        cu_seqlens=cu_seqlens,
    )


def fused_recurrent_rwkv6(
    r: Tensor,
    k: Tensor,
    v: Tensor,
    w: Tensor,
    u: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """:func:`chunk_rwkv6`; reverse: the last token of a sequence comes first."""
    return _rwkv6(
        "fused_recurrent_rwkv6",
        r,
        k,
        v,
        w,
        u,
        scale=scale,
        initial_state=initial_state,
        output_final_state=output_final_state,
        reverse=reverse,
        cu_seqlens=cu_seqlens,
    )
