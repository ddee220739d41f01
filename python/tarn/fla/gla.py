"""fla.ops.gla: linear attention with a decay for each channel of the keys (Yang et al.
2023, arXiv 2312.06635)."""

from typing import Any

from torch import Tensor

from tarn.fla import _call
from tarn.ops import _checks as checks

__all__ = ["chunk_gla", "fused_chunk_gla", "fused_recurrent_gla"]


def chunk_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """S_t = Diag(exp(g_t)) S_{t-1} + k_t v_t^T, o_t = scale S_t^T q_t; g: [B, T, H, K].
    The rest is as in :func:`tarn.fla.chunk_simple_gla`."""
    checks.want_tensor("chunk_gla", "g", g)
    checks.want_shape("chunk_gla", "g", g, q.shape)
    return _call.recurrence(
        "chunk_gla",
        q,
        k,
        v,
        gates=g,
        scale=scale,
        initial_state=initial_state,
        output_final_state=output_final_state,
        state_v_first=state_v_first,
        cu_seqlens=cu_seqlens,
    )


def fused_chunk_gla(**kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """:func:`chunk_gla`, which the original points to from here."""
    return chunk_gla(**kwargs)


def fused_recurrent_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gk: Tensor | None = None,
    gv: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """:func:`chunk_gla` with gates gk [B, T, H, K] of the keys' channels and gv
    [B, T, H, V] of the values', each optional. With gv alone the call runs the
    operator and its gradient; with both every value channel is a head, for which gk is
    written out: O(B T H K V) memory. reverse: the last token of a sequence comes first."""
    op = "fused_recurrent_gla"
    state_v_first = _call.v_first(op, state_v_first, kwargs)
    _call.refuse_unknown(op, kwargs)
    for name, gate, like in (("gk", gk, q), ("gv", gv, v)):
        if gate is not None:
            checks.want_shape(op, name, gate, like.shape)
    return _call.recurrence(
        op,
        q,
        k,
        v,
        gates=gk,
        value_gates=gv,
        scale=scale,
        initial_state=initial_state,
        output_final_state=output_final_state,
        reverse=reverse,
        state_v_first=state_v_first,
        cu_seqlens=cu_seqlens,
    )
