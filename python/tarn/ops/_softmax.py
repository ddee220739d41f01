"""Softmax attention over every key (full), a window of keys (local), the keys with
the highest scores (exact top-k)."""

from __future__ import annotations

from typing import Any, Literal, TypedDict, Unpack, overload

import torch
from torch import Tensor

from tarn.ops import _checks as checks

__all__ = ["exact_topk_attention", "full_attention", "local_attention"]


# Options that overloads share; the docstrings say what they mean.
class _Options(TypedDict, total=False):
    causal: bool
    causal_offset: int
    attention_mask: Tensor | None
    key_mask: Tensor | None
    key_lengths: Tensor | None
    bias: Tensor | None
    softmax_temp: float | None
    dropout: float
    seed: Tensor | None


class _FullOptions(_Options, total=False):
    window: int
    softcap: float
    sinks: Tensor | None


class _TopKOptions(_Options, total=False):
    topk: int


@overload
def full_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    need_weights: Literal[False] = False,
    **options: Unpack[_FullOptions],
) -> Tensor: ...


@overload
def full_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    need_weights: Literal[True],
    **options: Unpack[_FullOptions],
) -> tuple[Tensor, Tensor]: ...


@overload
def full_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    need_weights: bool,
    **options: Unpack[_FullOptions],
) -> Tensor | tuple[Tensor, Tensor]: ...


def full_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    causal: bool = False,
    causal_offset: int = 0,
    attention_mask: Tensor | None = None,
    key_mask: Tensor | None = None,
    key_lengths: Tensor | None = None,
    bias: Tensor | None = None,
    softmax_temp: float | None = None,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    window: int = 0,
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    need_weights: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Softmax attention over every key that the masks allow.

    ``s_ij = softmax_temp * q_i . k_j + bias_ij``, ``p_i = softmax of s_i over A(i)``,
    ``out_i = sum_j p_ij v_j``. A(i): the keys that all given masks keep. What is
    not in A(i) is skipped, NaN included; an empty A(i) gives 0 and no gradient.

    Shapes: B batch, T queries, S keys, H heads, K and V widths.

    Args:
        queries: [B, T, H, K], float32, bfloat16, float16 or float64; any strides.
        keys: [B, S, H, K]. values: [B, S, H, V]; dtype of queries.
        causal: whether query i reads only keys j <= i + causal_offset.
        causal_offset: S - T aligns the last query with the last key.
        attention_mask: bool, broadcastable to [B, H, T, S], True = keep.
        key_mask: [B, S] bool, True = keep.
        key_lengths: [B] int32 or int64, keys kept at the front of each row.
        bias: real, broadcastable to [B, H, T, S], added to the scores and
            differentiable (the gradient is summed to its shape); -inf hides.
        softmax_temp: factor of q . k. None: 1 / sqrt(K); 0 is honoured.
        dropout: probability in [0, 1) on the final weights; seed: of
            `draw_seed`, wanted above 0.
        window: w >= 1, with causal: query i reads the last w keys alone,
            j > i + causal_offset - w. 0: every key.
        softcap: c > 0: c * tanh(softmax_temp * q . k / c) is the product to which
            bias is added (Gemma 2). 0: none.
        sinks: [H] real, differentiable: exp(sinks[h]) joins the sum that divides
            the weights of head h, and no value belongs to it (gpt-oss); -inf: none.
        need_weights: whether to return the weights too, before dropout.

    Returns:
        out [B, T, H, V] with the dtype of queries, or (out, weights
        [B, H, T, S]). T = 0, S = 0 and B = 0 are valid.

    Raises:
        ValueError: shapes, ranges, devices. TypeError: types and dtypes. Both
        before any work.

    One blocked kernel serves the smaller dtypes: O(B H T S (K + V)) time, with a
    window O(B H T (w + 128) (K + V)),
    O(B H T) memory besides the result, the gradient by recomputation (O(S (K + V))
    memory per thread), the same bits for any number of threads, padding and batch.
    Differentiable to any order: a gradient of a gradient is composed, as are
    weights, float64 and other devices (by torch's scaled_dot_product_attention
    where only causality is requested), in O(B H T S) memory; there a NaN that only
    attention_mask, causal or bias hides spreads. Thread-safe.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 5, 4, 8)
        >>> out, weights = ops.full_attention(q, k, v, causal=True, need_weights=True)
        >>> out.shape, weights.shape
        (torch.Size([2, 5, 4, 8]), torch.Size([2, 4, 5, 5]))
    """
    call = _call(
        "full_attention", queries, keys, values, attention_mask, key_mask, key_lengths, bias,
        seed, causal, causal_offset, 0, softmax_temp, dropout,
    )  # fmt: skip
    more = _more("full_attention", queries, window, softcap, sinks)
    if need_weights:
        out, weights = torch.ops.tarn.softmax_attention_weights.default(*call, *more)
        return out, weights
    return torch.ops.tarn.softmax_attention.default(*call, *more)[0]


def local_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    local_context: int,
    causal: bool = False,
    causal_offset: int = 0,
    attention_mask: Tensor | None = None,
    key_mask: Tensor | None = None,
    key_lengths: Tensor | None = None,
    bias: Tensor | None = None,
    softmax_temp: float | None = None,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    softcap: float = 0.0,
    sinks: Tensor | None = None,
) -> Tensor:
    """`full_attention` over a window of `local_context` keys:
    ``i - c // 2 <= j < i + (c + 1) // 2``; an odd c is symmetric, an even one
    has one key more before i than after it.

    Args: as `full_attention`; local_context: c, at least 1.
    Returns: out [B, T, H, V].
    Raises: ValueError, TypeError, as `full_attention`.

    O(B H T (c + 128) (K + V)) time and O(B H T) memory: blocks outside the
    window are never visited. The composed form (float64, other devices, gradients
    of gradients) is linear too, but for bias, attention_mask and dropout, where
    it takes O(B H T S). Differentiable to any order. Thread-safe.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 5, 4, 8)
        >>> ops.local_attention(q, k, v, local_context=3, causal=True).shape
        torch.Size([2, 5, 4, 8])
    """
    _want_positive("local_attention", "local_context", local_context)
    call = _call(
        "local_attention", queries, keys, values, attention_mask, key_mask, key_lengths, bias,
        seed, causal, causal_offset, local_context, softmax_temp, dropout,
    )  # fmt: skip
    more = _more("local_attention", queries, 0, softcap, sinks)
    return torch.ops.tarn.softmax_attention.default(*call, *more)[0]


@overload
def exact_topk_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    need_weights: Literal[False] = False,
    **options: Unpack[_TopKOptions],
) -> Tensor: ...


@overload
def exact_topk_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    need_weights: Literal[True],
    **options: Unpack[_TopKOptions],
) -> tuple[Tensor, Tensor]: ...


@overload
def exact_topk_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    need_weights: bool,
    **options: Unpack[_TopKOptions],
) -> Tensor | tuple[Tensor, Tensor]: ...


def exact_topk_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    topk: int = 32,
    causal: bool = False,
    causal_offset: int = 0,
    attention_mask: Tensor | None = None,
    key_mask: Tensor | None = None,
    key_lengths: Tensor | None = None,
    bias: Tensor | None = None,
    softmax_temp: float | None = None,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    need_weights: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Softmax attention over the `topk` allowed keys with the highest scores.

    Of equal scores the lower position is taken. Where a query may read no more
    than topk keys this is `full_attention`. The choice is a constant for the
    gradient.

    Args: as `full_attention`; topk: at least 1. Dropout draws by place among
        the chosen keys, so its mask is not that of `full_attention`.
    Returns: out [B, T, H, V], or (out, weights [B, H, T, S]).
    Raises: ValueError, TypeError, as `full_attention`.

    O(B H T S K) time for the choice (one kernel, float64 a stable sort); blocks
    of 64 queries, so no T x S buffer lives; the gradient keeps the chosen keys
    and values, O(B H T topk (K + V)). Differentiable to any order. Thread-safe.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 5, 4, 8)
        >>> ops.exact_topk_attention(q, k, v, topk=3).shape
        torch.Size([2, 5, 4, 8])
    """
    _want_positive("exact_topk_attention", "topk", topk)
    call = _call(
        "exact_topk_attention", queries, keys, values, attention_mask, key_mask, key_lengths,
        bias, seed, causal, causal_offset, 0, softmax_temp, dropout,
    )  # fmt: skip
    out, weights = torch.ops.tarn.exact_topk_attention.default(*call, topk, need_weights)
    return (out, weights) if need_weights else out


def _more(
    op: str, queries: Tensor, window: int, softcap: float, sinks: Tensor | None
) -> tuple[int, float, Tensor | None]:
    """The arguments that exact top-k does not take, types checked."""
    if isinstance(window, bool) or not isinstance(window, (int, torch.SymInt)):
        raise checks.type_error(op, "window", "an integer", type(window).__name__)
    checks.want_number(op, "softcap", softcap)
    if sinks is not None:
        checks.want_tensor(op, "sinks", sinks, queries)
    return window, float(softcap), sinks


def _want_positive(op: str, argument: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, torch.SymInt)):
        raise checks.type_error(op, argument, "an integer", type(value).__name__)
    if value < 1:
        raise checks.value_error(op, argument, "a positive integer", value)


def _call(
    op: str,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    attention_mask: Tensor | None,
    key_mask: Tensor | None,
    key_lengths: Tensor | None,
    bias: Tensor | None,
    seed: Tensor | None,
    causal: bool,
    causal_offset: int,
    local_context: int,
    softmax_temp: float | None,
    dropout: float,
) -> tuple[Any, ...]:
    """The operators' arguments in their order, types checked; sizes and values
    are checked by the operators."""
    checks.want_operands(op, ("B", "T", "H", "K"), queries, keys, values)
    for argument, tensor in (
        ("attention_mask", attention_mask),
        ("key_mask", key_mask),
        ("key_lengths", key_lengths),
        ("bias", bias),
        ("seed", seed),
    ):
        if tensor is not None:
            checks.want_tensor(op, argument, tensor, queries if argument != "seed" else None)
    if isinstance(causal_offset, bool) or not isinstance(causal_offset, (int, torch.SymInt)):
        given = type(causal_offset).__name__
        raise checks.type_error(op, "causal_offset", "an integer", given)
    if softmax_temp is not None:
        checks.want_number(op, "softmax_temp", softmax_temp)
        softmax_temp = float(softmax_temp)
    checks.want_number(op, "dropout", dropout)
    return (
        queries, keys, values, attention_mask, key_mask, key_lengths, bias, seed, bool(causal),
        causal_offset, local_context, softmax_temp, float(dropout),
    )  # fmt: skip
