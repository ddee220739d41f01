"""fla.ops.generalized_delta_rule: a state that changes by a diagonal plus a low-rank
matrix (DPLR; Peng et al. 2025, arXiv 2503.14456), or by the identity plus one (IPLR)."""

from typing import Any

import torch
from torch import Tensor

from tarn.fla import _call
from tarn.ops import _checks as checks

__all__ = [
    "chunk_dplr_delta_rule",
    "chunk_iplr_delta_rule",
    "fused_recurrent_dplr_delta_rule",
    "fused_recurrent_iplr_delta_rule",
]


def recurrence(
    op: str, q: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, gk: Tensor, **options: Any
) -> tuple[Tensor, Tensor | None]:
    """The call of every function here and in tarn.fla.rwkv7, its tensors checked."""
    for name, x in (("k", k), ("a", a), ("b", b), ("gk", gk)):
        checks.want_tensor(op, name, x)
        checks.want_shape(op, name, x, k.shape)
    return _call.recurrence(op, q, k, v, gates=gk, pair=(a, b), **options)


def chunk_dplr_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    gk: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    safe_gate: bool = False,
    chunk_size: int | None = None,
    disable_recompute: bool = False,
    cp_context: Any = None,
    lower_bound: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """S_t = Diag(exp(gk_t)) S_{t-1} + b_t (S_{t-1}^T a_t)^T + k_t v_t^T, o_t = scale S_t^T q_t:
    a is applied to the state before the decay.

    q, k, a, b, gk: [B, T, H, K]; v: [B, T, H, V]. lower_bound says what gates the caller
    has made, and changes no number. The rest is as in :func:`tarn.fla.chunk_delta_rule`."""
    op = "chunk_dplr_delta_rule"
    if lower_bound is not None and lower_bound >= 0:
        raise checks.value_error(op, "lower_bound", "a number below 0", lower_bound)
    _call.refuse_unknown(op, {**kwargs, "cp_context": cp_context})
    return recurrence(
        op,
        q,
        k,
        v,
        a,
        b,
        gk,
        scale=scale,
        initial_state=initial_state,
        output_final_state=output_final_state,
        cu_seqlens=cu_seqlens,
    )


def fused_recurrent_dplr_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    gk: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """:func:`chunk_dplr_delta_rule`; reverse: the last token of a sequence comes first."""
    return recurrence(
        "fused_recurrent_dplr_delta_rule",
        q,
        k,
        v,
        a,
        b,
        gk,
        scale=scale,
        initial_state=initial_state,
        output_final_state=output_final_state,
        reverse=reverse,
        cu_seqlens=cu_seqlens,
    )


def _without_decay(
    op: str, q: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, **options: Any
) -> tuple[Tensor, Tensor | None]:
    checks.want_tensor(op, "k", k)
    gates = torch.zeros(k.shape, dtype=_call.wide(k).dtype, device=k.device)
    return recurrence(op, q, k, v, a, b, gates, **options)


def chunk_iplr_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """S_t = S_{t-1} + b_t (S_{t-1}^T a_t)^T + k_t v_t^T, o_t = scale S_t^T q_t:
    :func:`chunk_dplr_delta_rule` without decay."""
    op = "chunk_iplr_delta_rule"
    _call.want_chunk_size(op, kwargs, None)
    _call.refuse_unknown(op, kwargs)
    return _without_decay(
        op,
        q,
        k,
        v,
        a,
        b,
        scale=scale,
        initial_state=initial_state,
        output_final_state=output_final_state,
        cu_seqlens=cu_seqlens,
    )


def fused_recurrent_iplr_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """:func:`chunk_iplr_delta_rule`."""
    return _without_decay(
        "fused_recurrent_iplr_delta_rule",
        q,
        k,
        v,
        a,
        b,
        scale=scale,
        initial_state=initial_state,
        output_final_state=output_final_state,
        cu_seqlens=cu_seqlens,
    )
