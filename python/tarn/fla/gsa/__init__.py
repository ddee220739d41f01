"""fla.ops.gsa: gated slot attention (Zhang et al. 2024, arXiv 2409.07146), two recurrences
with a softmax between them."""

from typing import Any

from torch import Tensor

from tarn.fla import _call
from tarn.fla.gsa.gate import fused_additive_gate
from tarn.ops import _checks as checks

__all__ = ["chunk_gsa", "fused_recurrent_gsa"]

States = tuple[Tensor | None, Tensor | None]


def _want(
    op: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s: Tensor,
    g: Tensor | None,
    grouped: bool,
    state: States,
    cu_seqlens: Tensor | None,
) -> None:
    for name, x in (("q", q), ("k", k), ("v", v), ("s", s)):
        checks.want_tensor(op, name, x)
        if x.dim() != 4:
            wanted = "[batch, seq_len, heads, width]"
            raise checks.value_error(op, name, wanted, checks.shape_text(x.shape))
    row, heads = q.shape[:2], q.shape[2]
    if grouped and k.shape[2] and heads % k.shape[2] == 0:
        heads = k.shape[2]
    widths = {"k": q.shape[3], "v": v.shape[3], "s": s.shape[3]}
    for name, x in (("k", k), ("v", v), ("s", s)):
        checks.want_shape(op, name, x, (*row, heads, widths[name]))
    if g is not None:
        checks.want_tensor(op, "g", g)
        checks.want_shape(op, "g", g, s.shape)
    rows = row[0]
    if cu_seqlens is not None:
        checks.want_lengths(op, "cu_seqlens", cu_seqlens, q)
        rows = cu_seqlens.shape[0] - 1
        if row[0] != 1:
            raise checks.value_error(op, "q (with cu_seqlens)", "a batch of 1", row[0])
    sizes = ((widths["k"], widths["s"]), (widths["s"], widths["v"]))
    for i, (one, size) in enumerate(zip(state, sizes, strict=True)):
        if one is not None:
            checks.want_tensor(op, f"initial_state[{i}]", one)
            checks.want_shape(op, f"initial_state[{i}]", one, (rows, heads, *size))


def _states_of(op: str, given: Any) -> States:
    if given is None:
        return None, None
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise checks.type_error(
            op, "initial_state", "a pair of [.., K, M] and [.., M, V]", type(given).__name__
        )
    return given[0], given[1]


def _two_passes(
    op: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s: Tensor,
    g: Tensor | None,
    scale: float | None,
    initial_state: Any,
    output_final_state: bool,
    cu_seqlens: Tensor | None,
    *,
    grouped: bool = False,
    reverse: bool = False,
) -> tuple[Tensor, States]:
    state = _states_of(op, initial_state)
    _want(op, q, k, v, s, g, grouped, state, cu_seqlens)
    group, dtype = q.shape[2] // max(k.shape[2], 1), v.dtype
    if g is None:
        wide = _call.wide(s).dtype
        s, g, _ = fused_additive_gate(s, cu_seqlens=cu_seqlens, output_dtype=wide, gate_dtype=wide)
    if group != 1:
        k, v, s, g = (x.repeat_interleave(group, 2) for x in (k, v, s, g))
        state = tuple(None if x is None else x.repeat_interleave(group, 1) for x in state)
    options: dict[str, Any] = dict(
        output_final_state=output_final_state, reverse=reverse, cu_seqlens=cu_seqlens
    )
    # Scores and their softmax are float32 (float64): rounded ones would cost the output digits.
    scores, keys_state = _call.recurrence(
        op, q, k, _call.wide(s), value_gates=g, scale=scale, initial_state=state[0], **options
    )
    out, values_state = _call.recurrence(
        op, scores.softmax(-1), s, v, gates=g, scale=1.0, initial_state=state[1], **options
    )
    last = (keys_state, values_state)
    if group != 1:
        last = tuple(None if x is None else x[:, ::group].contiguous() for x in last)
    return out.to(dtype), (last[0], last[1])


def chunk_gsa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s: Tensor,
    g: Tensor | None = None,
    scale: float | None = None,
    initial_state: tuple[Tensor, Tensor] | None = None,
    output_final_state: bool = False,
    checkpoint_level: int = 2,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, States]:
    """W_t = W_{t-1} Diag(exp(g_t)) + k_t s_t^T, p_t = softmax(scale W_t^T q_t),
    S_t = Diag(exp(g_t)) S_{t-1} + s_t v_t^T, o_t = S_t^T p_t, with M slots.

    q: [B, T, HQ, K], HQ a multiple of H; k: [B, T, H, K]; v: [B, T, H, V]; s: [B, T, H, M];
    g: [B, T, H, M], natural logarithms, -inf included. None: s and g of
    :func:`tarn.fla.fused_additive_gate` of s (ABC, arXiv 2110.02488). States: the pair
    W [B or N, H, K, M], S [B or N, H, M, V], two None unless asked for. checkpoint_level
    is 0, 1 or 2 and changes no number."""
    op = "chunk_gsa"
    _call.want_chunk_size(op, kwargs, None)
    _call.refuse_unknown(op, kwargs)
    if checkpoint_level not in (0, 1, 2):
        raise checks.value_error(op, "checkpoint_level", "0, 1 or 2", checkpoint_level)
    return _two_passes(
        op, q, k, v, s, g, scale, initial_state, output_final_state, cu_seqlens, grouped=True
    )


def fused_recurrent_gsa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s: Tensor,
    g: Tensor | None = None,
    scale: float | None = None,
    initial_state: tuple[Tensor, Tensor] | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, States]:
    """:func:`chunk_gsa` with one query head for each head. reverse: the last token of a
    sequence comes first; s and g of ABC run forward all the same."""
    return _two_passes(
        "fused_recurrent_gsa",
        q,
        k,
        v,
        s,
        g,
        scale,
        initial_state,
        output_final_state,
        cu_seqlens,
        reverse=reverse,
    )
