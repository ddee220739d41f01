"""fla.ops.simple_gla: linear attention with one decay a head, constant or for each
token. Functions, arguments and defaults are those of flash-linear-attention 0.6."""

from typing import Any

import torch
from torch import Tensor

from tarn.fla import _call
from tarn.ops import _checks as checks

__all__ = [
    "chunk_simple_gla",
    "fused_chunk_simple_gla",
    "fused_recurrent_simple_gla",
    "parallel_simple_gla",
]


def chunk_simple_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    g_gamma: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """S_t = exp(g_t + g_gamma) S_{t-1} + k_t v_t^T, o_t = scale S_t^T q_t.

    q, k: [B, T, H, K]; v: [B, T, H, V]; g: [B, T, H] and g_gamma: [H], natural
    logarithms, -inf included. scale: None is K^-1/2. initial_state and the state that
    is returned: [B, H, K, V], or [B, H, V, K] under state_v_first; with cu_seqlens
    [N + 1] (B = 1) N in place of B. Returns (o [B, T, H, V], final_state or None).
    ValueError, TypeError before any work; O(B T H K V) time."""
    op = "chunk_simple_gla"
    state_v_first = _call.v_first(op, state_v_first, kwargs)
    _call.want_chunk_size(op, kwargs, None)
    _call.refuse_unknown(op, kwargs)
    return _call.recurrence(
        op,
        q,
        k,
        v,
        gates=_call.gates_of(g_gamma, g, None),
        scale=scale,
        initial_state=initial_state,
        output_final_state=output_final_state,
        state_v_first=state_v_first,
        cu_seqlens=cu_seqlens,
    )


def fused_chunk_simple_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    g_gamma: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """:func:`chunk_simple_gla`: there is one kernel here, and it is fused."""
    return _call.recurrence(
        "fused_chunk_simple_gla",
        q,
        k,
        v,
        gates=_call.gates_of(g_gamma, g, None),
        scale=scale,
        initial_state=initial_state,
        output_final_state=output_final_state,
        cu_seqlens=cu_seqlens,
    )


def fused_recurrent_simple_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    g_gamma: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """:func:`chunk_simple_gla`; reverse: the last token of a sequence comes first."""
    op = "fused_recurrent_simple_gla"
    state_v_first = _call.v_first(op, state_v_first, kwargs)
    _call.refuse_unknown(op, kwargs)
    return _call.recurrence(
        op,
        q,
        k,
        v,
        gates=_call.gates_of(g_gamma, g, None),
        scale=scale,
        initial_state=initial_state,
        output_final_state=output_final_state,
        reverse=reverse,
        state_v_first=state_v_first,
        cu_seqlens=cu_seqlens,
    )


def _scores(q: Tensor, k: Tensor, g: Tensor | None, scale: float | None) -> Tensor:
    """[B, H, T, T]: scale q_i . k_j gamma_{j+1} ... gamma_i for j <= i, else 0. A product
    of factors: a gate of -inf is a factor 0."""
    tokens = q.shape[1]
    q, k = (_call.wide(x).transpose(1, 2) for x in (q, k))
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    place = torch.arange(tokens, device=q.device)
    row, column = place[:, None], place[None, :]
    if g is not None:
        factors = _call.wide(g).exp().transpose(1, 2).unsqueeze(-1)
        scores = scores * torch.where(row > column, factors, factors.new_ones(())).cumprod(-2)
    return torch.where(row >= column, scores, scores.new_zeros(()))


def parallel_simple_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    scale: float | None = None,
    output_attentions: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """:func:`chunk_simple_gla` without states. Returns (o, scores [B, H, T, T] or None);
    the scores take O(T^2) time and memory, and are not there with cu_seqlens."""
    op = "parallel_simple_gla"
    if output_attentions and cu_seqlens is not None:
        raise checks.value_error(op, "output_attentions", "False with cu_seqlens", True)
    out, _ = _call.recurrence(op, q, k, v, gates=g, scale=scale, cu_seqlens=cu_seqlens)
    return out, _scores(q, k, g, scale).to(q.dtype) if output_attentions else None
