"""Softmax attention with forget gates (Lin et al. 2025, arXiv 2503.02130) by pieces of
`tarn.ops.full_attention`: the biases of one piece are all that exist at a time, and the
gradient computes them again."""

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from tarn import ops
from tarn.fla import _call
from tarn.fla._value_gates import under_transforms
from tarn.ops import _checks as checks

_PAIRS = 1 << 20  # biases of a piece, where 64 queries of one row need no more
_QUERIES = 64


class Span(NamedTuple):
    """Queries [first, last) of rows [row, end) and their keys [low, high)."""

    row: int
    end: int
    first: int
    last: int
    low: int
    high: int


class Rules(NamedTuple):
    scale: float
    window: int | None


# Queries, keys, values, sums of gates [B, T, H] or None, sink [H] or None.
Piece = tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]


def spans_of(rows: int, heads: int, bounds: list[int], window: int | None) -> list[Span]:
    """The pieces of causal attention over the sequences between the bounds."""
    found: list[Span] = []
    for begin, end in zip(bounds[:-1], bounds[1:], strict=True):
        tokens = max(end - begin, 1)
        keys = tokens if window is None else min(tokens, window + _QUERIES)
        block = max(1, _PAIRS // max(heads * keys * min(tokens, _QUERIES), 1))
        queries = max(_QUERIES, _PAIRS // max(min(block, rows) * heads * keys, 1))
        for row in range(0, rows, block):
            for first in range(begin, end, queries):
                last = min(first + queries, end)
                low = begin if window is None else max(begin, first - window + 1)
                found.append(Span(row, min(row + block, rows), first, last, low, last))
    return found


def _biases(
    q: Tensor, sums: Tensor | None, resets: Tensor | None, keys: int, window: int | None
) -> Tensor | None:
    """[B or 1, H or 1, queries, keys]: the sum of the gates after a key up to a query,
    -inf across a reset or outside the window. The last query is at the last key."""
    queries, bias = q.shape[1], None
    if sums is not None and resets is not None:
        sums, resets = sums.transpose(1, 2), resets.transpose(1, 2)
        bias = (sums[:, :, -queries:, None] - sums[:, :, None]).to(_call.wide(q).dtype)
        bias = bias.masked_fill(resets[:, :, -queries:, None] != resets[:, :, None], -torch.inf)
    if window is not None and keys > window:
        place = torch.arange(keys, device=q.device)
        hidden = place[-queries:, None] - place >= window
        zeros = torch.zeros((), dtype=_call.wide(q).dtype, device=q.device)
        bias = (zeros if bias is None else bias).masked_fill(hidden, -torch.inf)
        bias = bias.expand(bias.shape if bias.dim() == 4 else (1, 1, queries, keys))
    return bias


def _attend(piece: Piece, resets: Tensor | None, rules: Rules) -> Tensor:
    q, k, v, sums, sink = piece
    keys = k.shape[1]
    bias = _biases(q, sums, resets, keys, rules.window) if keys else None
    if sink is not None:  # a first key of zeros with this score, whose value is 0
        k, v = (torch.nn.functional.pad(x, (0, 0, 0, 0, 1, 0)) for x in (k, v))
        column = sink.to(_call.wide(q).dtype).view(1, -1, 1, 1)
        shape = (q.shape[0], q.shape[2], q.shape[1])
        bias = column.new_zeros(()) if bias is None else bias
        bias = torch.cat([column.expand(*shape, 1), bias.expand(*shape, keys)], -1)
    return ops.full_attention(
        q,
        k,
        v,
        causal=True,
        causal_offset=k.shape[1] - q.shape[1],
        bias=bias,
        softmax_temp=rules.scale,
    )


def _cut(tensors: Piece, span: Span) -> Piece:
    q, k, v, sums, sink = tensors
    rows, keys = slice(span.row, span.end), slice(span.low, span.high)
    return (
        q[rows, span.first : span.last],
        k[rows, keys],
        v[rows, keys],
        None if sums is None else sums[rows, keys],
        sink,
    )


def _resets(resets: Tensor | None, span: Span) -> Tensor | None:
    return None if resets is None else resets[span.row : span.end, span.low : span.high]


def _whole(spans: list[Span], resets: Tensor | None, rules: Rules, tensors: Piece) -> Tensor:
    q, v = tensors[0], tensors[2]
    out = q.new_zeros(*q.shape[:3], v.shape[3])
    for span in spans:
        found = _attend(_cut(tensors, span), _resets(resets, span), rules)
        out[span.row : span.end, span.first : span.last] = found
    return out


class _Pieces(torch.autograd.Function):
    """All pieces without their biases; the gradient computes piece after piece again. A
    gradient of a gradient has all of them at once."""

    @staticmethod
    def forward(
        ctx: Any, spans: list[Span], resets: Tensor | None, rules: Rules, *tensors: Any
    ) -> Tensor:
        ctx.save_for_backward(resets, *tensors)
        ctx.spans, ctx.rules = spans, rules
        return _whole(spans, resets, rules, cast(Piece, tensors))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        grad, resets = grads[0], ctx.saved_tensors[0]
        tensors: list[Any] = list(ctx.saved_tensors[1:])
        wanted = [i for i, need in enumerate(ctx.needs_input_grad[3:]) if need]
        totals: list[Any] = [None] * len(tensors)
        if torch.is_grad_enabled():
            # Views of the arguments, which may depend on each other: partial derivatives.
            tensors = [None if x is None else x.view_as(x) for x in tensors]
            out = _whole(ctx.spans, resets, ctx.rules, cast(Piece, tuple(tensors)))
            found = torch.autograd.grad(
                out, [tensors[i] for i in wanted], grad, create_graph=True, materialize_grads=True
            )
            for i, one in zip(wanted, found, strict=True):
                totals[i] = one
            return None, None, None, *totals
        for i in wanted:
            totals[i] = torch.zeros_like(tensors[i], dtype=_call.wide(tensors[i]).dtype)
        for span in ctx.spans:
            with torch.enable_grad():
                cut = _cut(cast(Piece, tuple(tensors)), span)
                piece: Any = tuple(
                    None if x is None else x.detach().requires_grad_(i in wanted)
                    for i, x in enumerate(cut)
                )
                out = _attend(piece, _resets(resets, span), ctx.rules)
            found = torch.autograd.grad(
                out,
                [piece[i] for i in wanted],
                grad[span.row : span.end, span.first : span.last],
                materialize_grads=True,
            )
            places = _places(totals, span)
            for i, one in zip(wanted, found, strict=True):
                places[i].add_(one)
        for i in wanted:
            totals[i] = totals[i].to(tensors[i].dtype)
        return None, None, None, *totals


def _places(totals: list[Any], span: Span) -> list[Any]:
    """Where a piece's gradients are added: views of the whole ones."""
    rows, keys = slice(span.row, span.end), slice(span.low, span.high)
    cuts = [slice(span.first, span.last), keys, keys, keys]
    views = [None if x is None else x[rows, cut] for x, cut in zip(totals, cuts, strict=False)]
    return [*views, totals[4]]


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gates: Tensor | None,
    sink: Tensor | None,
    rules: Rules,
    spans: list[Span],
) -> Tensor:
    """[B, queries, HQ, V] in the dtype of v. k, v: [B, T, H, ..]; gates: [B, T, HQ]; sink: [HQ].
    Sums of gates are float64: differences of sums that far from 0 lose digits in float32."""
    dtype = torch.promote_types(torch.promote_types(q.dtype, k.dtype), v.dtype)
    group = q.shape[2] // max(k.shape[2], 1)
    keys, values = (
        x.to(dtype) if group == 1 else x.to(dtype).repeat_interleave(group, 2) for x in (k, v)
    )
    sums = resets = None
    if gates is not None:
        forgets = gates == -torch.inf
        sums = gates.double().masked_fill(forgets, 0).cumsum(1)
        resets = forgets.cumsum(1, dtype=torch.int32)
    tensors = (q.to(dtype), keys, values, sums, sink)
    if len(spans) == 1 or under_transforms():
        return _whole(spans, resets, rules, tensors).to(v.dtype)
    found: Any = _Pieces.apply(spans, resets, rules, *tensors)
    return found.to(v.dtype)


def want_call(
    op: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None,
    sink: Tensor | None,
    window: int | None,
    queries: int,
    least: int,
) -> None:
    """Checks everything but the bounds; queries: how many q holds along T."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        checks.want_tensor(op, name, x)
        if x.dim() != 4:
            wanted = "[batch, seq_len, heads, width]"
            raise checks.value_error(op, name, wanted, checks.shape_text(x.shape))
    batch, tokens, heads = k.shape[:3]
    if heads == 0 or q.shape[2] % heads != 0:
        raise checks.value_error(op, "q", f"a multiple of {heads} heads", q.shape[2])
    checks.want_shape(op, "q", q, (batch, queries, q.shape[2], k.shape[3]))
    checks.want_shape(op, "v", v, (batch, tokens, heads, v.shape[3]))
    if g is not None:
        checks.want_tensor(op, "g", g)
        checks.want_shape(op, "g", g, (batch, tokens, q.shape[2]))
    if sink is not None:
        checks.want_tensor(op, "sink_bias", sink)
        checks.want_shape(op, "sink_bias", sink, (q.shape[2],))
    if window is not None and window < least:
        raise checks.value_error(op, "window_size", f"{least} or more", window)
