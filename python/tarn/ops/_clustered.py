"""Clustered attention: one set of weights for a group of similar queries (Vyas
et al. 2020, arXiv 2007.04825)."""

from typing import Any

import torch
from torch import Tensor

from tarn.ops import _checks as checks

__all__ = [
    "causal_improved_clustered_attention",
    "clustered_attention",
    "improved_clustered_attention",
]


def _call(
    kind: str, queries: Tensor, keys: Tensor, values: Tensor, options: dict[str, Any]
) -> Tensor:
    op = "clustered_attention"
    for name, tensor in (("queries", queries), ("keys", keys), ("values", values)):
        checks.want_tensor(op, name, tensor)
    checks.warn_layout(op, queries)
    for name in ("query_lengths", "key_mask", "key_lengths", "seed"):
        if options[name] is not None:
            checks.want_tensor(op, name, options[name])
    for name in ("clusters", "iterations", "bits", "topk", "hash_seed"):
        value = options[name]
        if isinstance(value, bool) or not isinstance(value, int):
            raise checks.type_error(op, name, "an integer", type(value).__name__)
    if options["softmax_temp"] is not None:
        checks.want_number(op, "softmax_temp", options["softmax_temp"])
    checks.want_number(op, "dropout", options["dropout"])
    return torch.ops.tarn.clustered_attention.default(
        queries,
        keys,
        values,
        kind,
        options["clusters"],
        options["iterations"],
        options["bits"],
        bool(options["hash_bias"]),
        options["topk"],
        options["query_lengths"],
        options["key_mask"],
        options["key_lengths"],
        options["softmax_temp"],
        float(options["dropout"]),
        options["seed"],
        options["hash_seed"],
    )[0]


def clustered_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    clusters: int,
    iterations: int = 10,
    bits: int = 63,
    hash_bias: bool = True,
    query_lengths: Tensor | None = None,
    key_mask: Tensor | None = None,
    key_lengths: Tensor | None = None,
    softmax_temp: float | None = None,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    hash_seed: int = 0,
) -> Tensor:
    """Softmax attention of the mean query of each cluster, for all its members:
    ``w_c = softmax(softmax_temp * qbar_c . k_j)`` over the kept keys and
    ``o_i = sum_j w_cj v_j`` with c the cluster of query i. Not causal.

    Clusters are found by k-means in Hamming space on hashes ``[q . a_b > c_b]``,
    per sequence and head, from `hash_seed` and positions alone: neither batch
    mates nor padding matter. No gradient flows through them.

    Args:
        queries: [B, T, H, K], float32, bfloat16, float16 or float64.
        keys: [B, S, H, K]; values: [B, S, H, V], dtype of queries.
        clusters: at least 1; capped at the valid queries of a sequence.
        iterations: rounds of k-means, at least 1. bits: bits of a hash, 1 to 63.
        hash_bias: whether hashes compare with random offsets or with 0.
        query_lengths: [B] int32 or int64; rows beyond are padding and give 0.
            None: T.
        key_mask: [B, S] bool, True = keep. key_lengths: [B] int32 or int64.
            What is masked, NaN included, has no influence.
        softmax_temp: factor of the scores; None: 1 / sqrt(K).
        dropout: probability in [0, 1) on the weights of a cluster, one draw for
            its members. seed: of `draw_seed`, wanted above 0.
        hash_seed: hashes and starts are a function of it.

    Returns:
        [B, T, H, V] with the dtype of queries; 0 where no key is kept.

    Raises:
        ValueError: shapes, ranges, devices. TypeError: types and dtypes. Both
        before any work.

    O(B H (clusters S (K + V) + T (64 K + iterations (clusters + bits)))) time
    and O(B H clusters S) memory, no T x S array. Differentiable to any
    order, on the clusters of the forward pass; the gradient keeps inputs and
    clusters and recomputes the rest. Not for torch.func. Thread-safe.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 5, 4, 8)
        >>> ops.clustered_attention(q, k, v, clusters=2).shape
        torch.Size([2, 5, 4, 8])
    """
    options = {**locals(), "topk": 1}
    return _call("clustered", queries, keys, values, options)


def improved_clustered_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    clusters: int,
    topk: int = 32,
    iterations: int = 10,
    bits: int = 63,
    hash_bias: bool = True,
    query_lengths: Tensor | None = None,
    key_mask: Tensor | None = None,
    key_lengths: Tensor | None = None,
    softmax_temp: float | None = None,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    hash_seed: int = 0,
) -> Tensor:
    """Clustered attention whose largest weights each query computes itself.

    T_c holds the `topk` kept keys of the largest w_c (ties: the lower position)
    and m_c their share of w_c. The weights of query i in cluster c are
    ``m_c softmax over T_c of softmax_temp * q_i . k_j`` on T_c and w_cj on all
    other keys; they add to 1, and equal full attention where T_c holds every
    kept key. Not causal.

    Args:
        topk: at least 1; capped at the kept keys of a sequence.
        The rest as in `clustered_attention`; dropout draws once for the weights
        a cluster shares and once a query for those on T_c.

    Returns, raises: as `clustered_attention`. In addition to its cost it takes
    O(B H T topk (K + V)) time and O(B H (T + clusters) (topk + K)) memory.
    Differentiable to any order, like that operator.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 5, 4, 8)
        >>> ops.improved_clustered_attention(q, k, v, clusters=2, topk=3).shape
        torch.Size([2, 5, 4, 8])
    """
    return _call("improved", queries, keys, values, dict(locals()))


def causal_improved_clustered_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    clusters: int,
    topk: int = 32,
    iterations: int = 10,
    bits: int = 63,
    hash_bias: bool = True,
    query_lengths: Tensor | None = None,
    key_mask: Tensor | None = None,
    key_lengths: Tensor | None = None,
    softmax_temp: float | None = None,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    hash_seed: int = 0,
) -> Tensor:
    """The part of `improved_clustered_attention` on T_c under a causal mask:
    weights ``softmax of softmax_temp * q_i . k_j over {j in T_c, j <= i}``, 0
    where that set is empty.

    NOT strictly causal: no later value is read, but which keys T_c holds depends
    on later queries and keys. It has no recurrent form.

    Arguments, returns, raises and cost are as in `improved_clustered_attention`;
    differentiable to any order, like that operator.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 5, 4, 8)
        >>> ops.causal_improved_clustered_attention(q, k, v, clusters=2, topk=3).shape
        torch.Size([2, 5, 4, 8])
    """
    return _call("causal-improved", queries, keys, values, dict(locals()))
