"""fla.ops.retention: simple GLA whose decays are RetNet's, log(1 - 2^(-5 - h)) for head
h from 0 (Sun et al. 2023, arXiv 2307.08621). Shapes are those of tarn.fla.simple_gla."""

from typing import Any

from torch import Tensor

from tarn import ops
from tarn.fla import _call
from tarn.fla.simple_gla import parallel_simple_gla

__all__ = [
    "chunk_retention",
    "fused_chunk_retention",
    "fused_recurrent_retention",
    "parallel_retention",
]


def _retention(op: str, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
    gates = ops.retention_gates(q.shape[2], like=q)
    return _call.recurrence(op, q, k, v, gates=gates, **options)


def chunk_retention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Returns (o [B, T, H, V], final_state [B or N, H, K, V] or None)."""
    _call.want_chunk_size("chunk_retention", kwargs, None)
    _call.refuse_unknown("chunk_retention", kwargs)
    return _retention(
        "chunk_retention",
        q,
        k,
        v,
        scale=scale,
        initial_state=initial_state,
        output_final_state=output_final_state,
        cu_seqlens=cu_seqlens,
    )


def fused_chunk_retention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """:func:`chunk_retention`."""
    return _retention(
        "fused_chunk_retention",
        q,
        k,
        v,
        scale=scale,
        initial_state=initial_state,
        output_final_state=output_final_state,
        cu_seqlens=cu_seqlens,
    )


def fused_recurrent_retention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """:func:`chunk_retention`; reverse: the last token of a sequence comes first."""
    op = "fused_recurrent_retention"
    state_v_first = _call.v_first(op, state_v_first, kwargs)
    _call.refuse_unknown(op, kwargs)
    return _retention(
        op,
        q,
        k,
        v,
        scale=scale,
        initial_state=initial_state,
        output_final_state=output_final_state,
        reverse=reverse,
        state_v_first=state_v_first,
        cu_seqlens=cu_seqlens,
    )


def parallel_retention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    output_attentions: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """(o, scores or None), as :func:`tarn.fla.parallel_simple_gla`."""
    gates = ops.retention_gates(q.shape[2], like=q).expand(*q.shape[:3])
    return parallel_simple_gla(q, k, v, gates, scale, output_attentions, cu_seqlens)
