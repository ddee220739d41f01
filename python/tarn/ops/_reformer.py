"""Reformer attention: shared queries and keys, compared where a hash sorts them
together (Kitaev et al. 2020, arXiv 2001.04451)."""

import torch
from torch import Tensor

from tarn.ops import _checks as checks

__all__ = ["reformer_attention"]


def reformer_attention(
    queries: Tensor,
    values: Tensor,
    *,
    chunk_size: int = 32,
    bits: int = 63,
    rounds: int = 4,
    masked: bool = False,
    same_bucket: bool = False,
    compat: bool = False,
    causal: bool = False,
    causal_offset: int = 0,
    attention_mask: Tensor | None = None,
    key_mask: Tensor | None = None,
    key_lengths: Tensor | None = None,
    softmax_temp: float | None = None,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    hash_seed: int = 0,
) -> Tensor:
    """Attention of queries to themselves as keys, ``key_j = q_j / |q_j|`` (0 for
    a zero query), near them in the order of a random hash.

    In round r positions are sorted by (bucket, position), padding last, and cut
    in chunks; query i meets P_i^r, what it may read in its own chunk and the one
    before. The rounds together are one softmax over the union of all P_i^r: a
    key that N_ij rounds hold counts 1 / N_ij in each. NOT strictly causal under a
    causal mask: no later value is read, but buckets and chunk borders depend on
    later positions. It has no recurrent form.

    Args:
        queries: [B, T, H, K], float32, bfloat16, float16 or float64.
        values: [B, T, H, V], dtype of queries. Any T.
        chunk_size: at least 1. rounds: at least 1.
        bits: random directions of a round, 1 to 63, which make 2 bits buckets.
        masked: whether i reads itself only where nothing else is left.
        same_bucket: whether P_i^r also asks for equal buckets, as published.
        compat: the plain mean of the rounds' softmaxes, as
            idiap/fast-transformers computes it, instead of one softmax.
        causal, causal_offset: query i reads positions j <= i + causal_offset.
        attention_mask: bool, broadcastable to [B, H, T, T], True = keep.
        key_mask: [B, T] bool, True = keep. key_lengths: [B] int32 or int64.
            What is masked, NaN included, has no influence on other positions.
        softmax_temp: factor of the scores; None: 1 / sqrt(K).
        dropout: probability in [0, 1) on each round's weights. seed: of
            `draw_seed`, wanted above 0.
        hash_seed: the hashes are a function of it and of the round.

    Returns:
        [B, T, H, V] with the dtype of queries; 0 where nothing may be read.
        With chunk_size >= T, without same_bucket: full attention with shared
        queries and keys.

    Raises:
        ValueError: shapes, ranges, devices. TypeError: types and dtypes. Both
        before any work.

    O(B H T rounds (64 K + chunk_size (K + V + rounds))) time, O(B H T rounds
    chunk_size) memory, no T x T array. Differentiable to any order, on the buckets
    of the forward pass; the gradient keeps inputs and buckets and recomputes the
    rest. Not for torch.func. Neither batch mates nor padding matter. Thread-safe.

    Examples:
        >>> q, v = torch.randn(2, 2, 5, 4, 8)
        >>> ops.reformer_attention(q, v, chunk_size=4, rounds=2).shape
        torch.Size([2, 5, 4, 8])
    """
    op = "reformer_attention"
    checks.want_tensor(op, "queries", queries)
    checks.want_tensor(op, "values", values)
    checks.warn_layout(op, queries)
    masks = (("attention_mask", attention_mask), ("key_mask", key_mask))
    for name, tensor in (*masks, ("key_lengths", key_lengths), ("seed", seed)):
        if tensor is not None:
            checks.want_tensor(op, name, tensor)
    counts = (("chunk_size", chunk_size), ("bits", bits), ("rounds", rounds))
    for name, value in (*counts, ("hash_seed", hash_seed)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise checks.type_error(op, name, "an integer", type(value).__name__)
    if not isinstance(causal_offset, (int, torch.SymInt)):
        given = type(causal_offset).__name__
        raise checks.type_error(op, "causal_offset", "an integer", given)
    if softmax_temp is not None:
        checks.want_number(op, "softmax_temp", softmax_temp)
    checks.want_number(op, "dropout", dropout)
    return torch.ops.tarn.reformer_attention.default(
        queries,
        values,
        chunk_size,
        bits,
        rounds,
        bool(masked),
        bool(same_bucket),
        bool(compat),
        bool(causal),
        causal_offset,
        attention_mask,
        key_mask,
        key_lengths,
        softmax_temp,
        float(dropout),
        seed,
        hash_seed,
    )[0]
