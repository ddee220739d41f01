"""Attention-free transformers: a weighted average per channel, gated by the
query (Zhai et al. 2021, arXiv 2105.14103)."""

from typing import Literal, NamedTuple, TypedDict, Unpack, overload

import torch
from torch import Tensor

from tarn.ops import _checks as checks

__all__ = ["AftState", "aft_full_attention", "aft_simple_attention"]


class AftState(NamedTuple):
    """What aft-simple carries from one token to the next, per channel.

    m [B, H, V] is the largest key so far, a = sum exp(k_j - m) v_j and
    b = sum exp(k_j - m); before the first key -inf, 0 and 0. float32, float64
    with float64 queries. A value: no operator changes it in place.

    Examples:
        >>> zeros = torch.zeros(2, 4, 8)
        >>> empty = ops.AftState(m=zeros - torch.inf, a=zeros, b=zeros)
        >>> q, k, v = torch.randn(3, 2, 5, 4, 8)
        >>> ops.aft_simple_attention(q, k, v, initial_state=empty).shape
        torch.Size([2, 5, 4, 8])
    """

    m: Tensor
    a: Tensor
    b: Tensor


def _want_tensors(op: str, **tensors: Tensor) -> None:
    for name, tensor in tensors.items():
        checks.want_tensor(op, name, tensor)
    if "queries" in tensors:
        checks.warn_layout(op, tensors["queries"])


def _want_masks(op: str, **masks: Tensor | None) -> None:
    for name, mask in masks.items():
        if mask is not None:
            checks.want_tensor(op, name, mask)


def _want_offset(op: str, causal_offset: int) -> None:
    if not isinstance(causal_offset, (int, torch.SymInt)):
        given = type(causal_offset).__name__
        raise checks.type_error(op, "causal_offset", "an integer", given)


# Options that the overloads share; the docstring says what they mean.
class _SimpleOptions(TypedDict, total=False):
    causal: bool
    causal_offset: int
    key_mask: Tensor | None
    key_lengths: Tensor | None
    initial_state: AftState | tuple[Tensor, Tensor, Tensor] | None


@overload
def aft_simple_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    return_state: Literal[False] = False,
    **options: Unpack[_SimpleOptions],
) -> Tensor: ...


@overload
def aft_simple_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    return_state: Literal[True],
    **options: Unpack[_SimpleOptions],
) -> tuple[Tensor, AftState]: ...


@overload
def aft_simple_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    return_state: bool,
    **options: Unpack[_SimpleOptions],
) -> Tensor | tuple[Tensor, AftState]: ...


def aft_simple_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    causal: bool = False,
    causal_offset: int = 0,
    key_mask: Tensor | None = None,
    key_lengths: Tensor | None = None,
    initial_state: AftState | tuple[Tensor, Tensor, Tensor] | None = None,
    return_state: bool = False,
) -> Tensor | tuple[Tensor, AftState]:
    """AFT without a position bias, elementwise per channel:
    ``o_i = sigmoid(q_i) * sum exp(k_j) v_j / sum exp(k_j)`` over the keys j that
    query i may read, and those in the initial state.

    Args:
        queries: [B, T, H, V], float32, bfloat16, float16 or float64.
        keys, values: [B, S, H, V], dtype of queries; all three have one width.
        causal: query i reads keys j <= i + causal_offset. Without it the
            average is the same for all queries.
        key_mask: [B, S] bool, True = keep. key_lengths: [B] int32 or int64, keys
            kept at the front. What is masked, NaN included, has no influence.
        initial_state: of `AftState`, from the keys that came before. Not
            modified; receives a gradient.
        return_state: whether to return the state after all kept keys too.

    Returns:
        out [B, T, H, V] with the dtype of queries, or (out, AftState). Queries
        that read nothing give 0 and send no gradient.

    Raises:
        ValueError: shapes, ranges, devices. TypeError: types and dtypes. Both
        before any work.

    With a running maximum no exponent is positive, so keys of any size are safe.
    With causal, prefill(a) then prefill(b) gives the bits of prefill(ab), and a
    step is a call with T = S = 1. O(B (T + S) H V) time. Differentiable to
    any order: gradients of gradients are composed, as are other devices, in
    O(B (T + S) H V log S) memory. The gradient keeps inputs only. Thread-safe, the
    same bits for any number of threads.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 5, 4, 8)
        >>> out, state = ops.aft_simple_attention(q, k, v, causal=True, return_state=True)
        >>> out.shape, state.a.shape
        (torch.Size([2, 5, 4, 8]), torch.Size([2, 4, 8]))
    """
    op = "aft_simple"
    _want_tensors(op, queries=queries, keys=keys, values=values)
    _want_masks(op, key_mask=key_mask, key_lengths=key_lengths)
    _want_offset(op, causal_offset)
    m = a = b = None
    if initial_state is not None:
        if not isinstance(initial_state, (tuple, list)) or len(initial_state) != 3:
            given = type(initial_state).__name__
            raise checks.type_error(op, "initial_state", "None or an AftState", given)
        m, a, b = initial_state
        _want_tensors(op, initial_m=m, initial_a=a, initial_b=b)
    out, m, a, b = torch.ops.tarn.aft_simple.default(
        queries,
        keys,
        values,
        key_mask,
        key_lengths,
        m,
        a,
        b,
        bool(causal),
        causal_offset,
    )
    return (out, AftState(m, a, b)) if return_state else out


def aft_full_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    position_bias: Tensor,
    *,
    causal: bool = False,
    causal_offset: int = 0,
    attention_mask: Tensor | None = None,
    key_mask: Tensor | None = None,
    key_lengths: Tensor | None = None,
) -> Tensor:
    """AFT with a position bias w, elementwise per channel: ``o_i = sigmoid(q_i) *
    sum_j exp(k_j + w_ij) v_j / sum_j exp(k_j + w_ij)`` over the keys query i may
    read.

    Args:
        queries: [B, T, H, V], float32, bfloat16, float16 or float64.
        keys, values: [B, S, H, V], dtype of queries; all three have one width.
        position_bias: w, [>= T, >= S], dtype of queries; its upper left corner
            is used. Shared by batch and heads. Differentiable.
        causal: query i reads keys j <= i + causal_offset.
        attention_mask: bool, broadcastable to [B, H, T, S], True = keep.
        key_mask: [B, S] bool, True = keep. key_lengths: [B] int32 or int64.
            What is masked, NaN included, has no influence.

    Returns:
        [B, T, H, V] with the dtype of queries. Queries that read nothing give 0
        and send no gradient.

    Raises:
        ValueError: shapes, ranges, devices. TypeError: types and dtypes. Both
        before any work.

    Safe for keys and biases of any size: a block whose range allows it is two
    matrix products, any other is computed pair by pair. O(B T S H V) time; no
    T x S array besides the bias, its gradient and the caller's mask.
    Differentiable once, in every dtype: a second-order gradient is a RuntimeError
    that names the operator. Not for torch.func. A sequence's result does not
    depend on its batch mates. Thread-safe.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 5, 4, 8)
        >>> ops.aft_full_attention(q, k, v, position_bias=torch.zeros(5, 5)).shape
        torch.Size([2, 5, 4, 8])
    """
    op = "aft_full"
    _want_tensors(op, queries=queries, keys=keys, values=values)
    _want_tensors(op, position_bias=position_bias)
    _want_masks(op, attention_mask=attention_mask)
    _want_masks(op, key_mask=key_mask, key_lengths=key_lengths)
    _want_offset(op, causal_offset)
    return torch.ops.tarn.aft_full.default(
        queries,
        keys,
        values,
        position_bias,
        bool(causal),
        causal_offset,
        attention_mask,
        key_mask,
        key_lengths,
    )[0]
