"""One query at the end of each packed sequence."""

from torch import Tensor

from tarn.fla import _softmax
from tarn.fla._packed import bounds_of
from tarn.ops import _checks as checks

__all__ = ["attn_decoding_one_step"]


def attn_decoding_one_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    scale: float | None = None,
    cu_seqlens: Tensor | None = None,
    do_gate_scale: bool = False,
    *,
    window_size: int | None = None,
    sink_bias: Tensor | None = None,
) -> Tensor:
    """The last row of :func:`tarn.fla.parallel_attn` for each of N sequences.

    q: [1, N, HQ, K]; k: [1, T, H, K]; v: [1, T, H, V]; g: [1, T, HQ] or None. cu_seqlens
    [N + 1] is needed; a sequence without keys, or a window of 0, gives zeros. do_gate_scale:
    the gates are multiplied by scale, too. Returns [1, N, HQ, V]."""
    op = "attn_decoding_one_step"
    if cu_seqlens is None:
        raise checks.value_error(op, "cu_seqlens", "a tensor [N + 1]", None)
    checks.want_tensor(op, "cu_seqlens", cu_seqlens)
    _softmax.want_call(op, q, k, v, g, sink_bias, window_size, cu_seqlens.shape[0] - 1, 0)
    if k.shape[0] != 1:
        raise checks.value_error(op, "k", "a batch of 1", k.shape[0])
    bounds = bounds_of(op, cu_seqlens, k.shape[1], k)
    factor = q.shape[3] ** -0.5 if scale is None else scale
    spans = [
        _softmax.Span(
            0, 1, i, i + 1, begin if window_size is None else max(begin, end - window_size), end
        )
        for i, (begin, end) in enumerate(zip(bounds[:-1], bounds[1:], strict=True))
    ]
    gates = g * factor if g is not None and do_gate_scale else g
    return _softmax.attention(q, k, v, gates, sink_bias, _softmax.Rules(factor, None), spans)
