"""Clustered attention with exact scores for the keys that matter most."""

from __future__ import annotations

import torch

from tarn import ops
from tarn.attention._masks import want_no_attention_mask
from tarn.attention._softmax import want_between
from tarn.attention.clustered_attention import CLUSTERED_PARAMETERS, ClusteredAttention
from tarn.attention_registry import AttentionRegistry, Int, Optional
from tarn.events import EventDispatcher
from tarn.masking import BaseMask


class ImprovedClusteredAttention(ClusteredAttention):
    """ClusteredAttention in which each query scores the topk keys of its cluster
    itself; the other keys have the cluster's weights.

    topk: keys scored per query. The rest as in ClusteredAttention.
    """

    def __init__(
        self,
        clusters: int,
        iterations: int = 10,
        bits: int = 63,
        hash_bias: bool = True,
        topk: int = 32,
        softmax_temp: float | None = None,
        attention_dropout: float = 0.1,
        event_dispatcher: str | EventDispatcher = "",
        hash_seed: int = 0,
    ):
        super().__init__(
            clusters,
            iterations,
            bits,
            hash_bias,
            softmax_temp,
            attention_dropout,
            event_dispatcher,
            hash_seed,
        )
        self.topk: int = want_between(type(self).__name__, "topk", topk, 1)

    def forward(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        attn_mask: BaseMask | None = None,
        query_lengths: BaseMask | None = None,
        key_lengths: BaseMask | None = None,
    ) -> torch.Tensor:
        """Takes and returns what ClusteredAttention's forward does."""
        want_no_attention_mask("ImprovedClusteredAttention", attn_mask, queries, keys)
        arguments = self._clustering_arguments(queries, keys, query_lengths, key_lengths)
        return ops.improved_clustered_attention(queries, keys, values, topk=self.topk, **arguments)


AttentionRegistry.register(
    "improved-clustered",
    ImprovedClusteredAttention,
    [*CLUSTERED_PARAMETERS, ("topk", Optional(Int, 32))],
)
