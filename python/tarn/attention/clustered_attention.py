"""Softmax attention of groups of queries."""

from __future__ import annotations

from typing import Any

import torch

from tarn import ops
from tarn.attention._masks import key_arguments, query_lengths_of, want_no_attention_mask
from tarn.attention._softmax import HashingAttention, want_between
from tarn.attention_registry import (
    AttentionRegistry,
    Bool,
    EventDispatcherInstance,
    Float,
    Int,
    Optional,
    Spec,
)
from tarn.events import EventDispatcher
from tarn.masking import BaseMask

CLUSTERED_PARAMETERS: list[tuple[str, Spec]] = [
    ("clusters", Int),
    ("iterations", Optional(Int, 10)),
    ("bits", Optional(Int, 63)),
    ("hash_bias", Optional(Bool, True)),
    ("softmax_temp", Optional(Float)),
    ("attention_dropout", Optional(Float, 0.1)),
    ("event_dispatcher", Optional(EventDispatcherInstance, "")),
    ("hash_seed", Optional(Int, 0)),
]


class ClusteredAttention(HashingAttention):
    """Queries are hashed and clustered; a cluster's mean query attends for all
    its members (Vyas et al. 2020, arXiv 2007.04825).

    Args:
        clusters: K; at most the number of valid queries is used.
        iterations: rounds of k-means in Hamming space.
        bits: bits of a hash, up to 63.
        hash_bias: whether the planes have offsets.
        softmax_temp, attention_dropout, event_dispatcher: as in FullAttention;
            no AttentionEvent is sent, since there is no matrix.
        hash_seed: seed of planes and start positions. Evaluation is deterministic.
    """

    def __init__(
        self,
        clusters: int,
        iterations: int = 10,
        bits: int = 63,
        hash_bias: bool = True,
        softmax_temp: float | None = None,
        attention_dropout: float = 0.1,
        event_dispatcher: str | EventDispatcher = "",
        hash_seed: int = 0,
    ):
        super().__init__(softmax_temp, attention_dropout, event_dispatcher, hash_seed)
        kind = type(self).__name__
        self.clusters: int = want_between(kind, "clusters", clusters, 1)
        self.iterations: int = want_between(kind, "iterations", iterations, 1)
        self.bits: int = want_between(kind, "bits", bits, 1, 63)
        self.hash_bias = hash_bias

    def _clustering_arguments(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        query_lengths: BaseMask | None,
        key_lengths: BaseMask | None,
    ) -> dict[str, Any]:
        kind = type(self).__name__
        batch, seq_len_q = queries.shape[:2]
        return {
            "clusters": self.clusters,
            "iterations": self.iterations,
            "bits": self.bits,
            "hash_bias": self.hash_bias,
            "hash_seed": self._key(),
            "query_lengths": query_lengths_of(kind, query_lengths, batch, seq_len_q),
            **key_arguments(kind, key_lengths, keys.shape[0], keys.shape[1]),
            **self._softmax_arguments(),
        }

    def forward(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        attn_mask: BaseMask | None = None,
        query_lengths: BaseMask | None = None,
        key_lengths: BaseMask | None = None,
    ) -> torch.Tensor:
        """[N, L, H, E], [N, S, H, E], [N, S, H, M] -> [N, L, H, M]; rows beyond
        their query length are 0. Takes key masks only. Raises MaskError, ValueError."""
        want_no_attention_mask("ClusteredAttention", attn_mask, queries, keys)
        arguments = self._clustering_arguments(queries, keys, query_lengths, key_lengths)
        return ops.clustered_attention(queries, keys, values, **arguments)


AttentionRegistry.register(
    "clustered", ClusteredAttention, CLUSTERED_PARAMETERS, yielding=["hash_seed"]
)
