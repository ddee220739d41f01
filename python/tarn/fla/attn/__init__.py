"""fla.ops.attn: causal softmax attention, with forget gates, a window and a sink if wanted."""

from torch import Tensor

from tarn.fla import _softmax
from tarn.fla._packed import bounds_of
from tarn.ops import _checks as checks

__all__ = ["parallel_attn"]


def attention_of(
    op: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None,
    scale: float | None,
    window_size: int | None,
    cu_seqlens: Tensor | None,
    sink_bias: Tensor | None,
) -> Tensor:
    """The call of :func:`parallel_attn` and of tarn.fla.parallel_forgetting_attn."""
    checks.want_tensor(op, "k", k)
    _softmax.want_call(op, q, k, v, g, sink_bias, window_size, k.shape[1] if k.dim() > 1 else 0, 1)
    bounds = [0, k.shape[1]]
    if cu_seqlens is not None:
        if q.shape[0] != 1:
            raise checks.value_error(op, "q (with cu_seqlens)", "a batch of 1", q.shape[0])
        bounds = bounds_of(op, cu_seqlens, k.shape[1], q)
    rules = _softmax.Rules(q.shape[3] ** -0.5 if scale is None else scale, window_size)
    spans = _softmax.spans_of(q.shape[0], q.shape[2], bounds, window_size)
    return _softmax.attention(q, k, v, g, sink_bias, rules, spans)


def parallel_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    scale: float | None = None,
    window_size: int | None = None,
    cu_seqlens: Tensor | None = None,
    chunk_indices: Tensor | None = None,
    *,
    sink_bias: Tensor | None = None,
) -> Tensor:
    """s_ij = scale q_i . k_j + g_{j+1} + ... + g_i for the keys j <= i of a sequence,
    p_i = exp(s_i) / (sum_j exp(s_ij) + exp(sink_bias)), o_i = sum_j p_ij v_j.

    q: [B, T, HQ, K], HQ a multiple of H; k: [B, T, H, K]; v: [B, T, H, V]; g: [B, T, HQ],
    natural logarithms, -inf included, or None: zeros. window_size: the last keys that a query
    reads, itself among them. sink_bias: [HQ]; None: no sink. O(B HQ T^2 (K + V)) time; biases
    exist for 64 queries or 2^20 pairs at a time, in the gradient too."""
    return attention_of("parallel_attn", q, k, v, g, scale, window_size, cu_seqlens, sink_bias)
