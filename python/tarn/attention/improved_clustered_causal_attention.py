"""Clustered attention under a causal mask."""

from __future__ import annotations

import torch

from tarn import ops
from tarn.attention._masks import causal_offset_of
from tarn.attention.clustered_attention import CLUSTERED_PARAMETERS
from tarn.attention.improved_clustered_attention import ImprovedClusteredAttention
from tarn.attention_registry import AttentionRegistry, Int, Optional
from tarn.masking import BaseMask, MaskError


class ImprovedClusteredCausalAttention(ImprovedClusteredAttention):
    """Softmax of each query over those of its cluster's topk keys that are not
    after it; a query without such a key gets 0.

    Not strictly causal: which queries share a cluster depends on later ones.
    Arguments as in ImprovedClusteredAttention.
    """

    def forward(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        attn_mask: BaseMask | None = None,
        query_lengths: BaseMask | None = None,
        key_lengths: BaseMask | None = None,
    ) -> torch.Tensor:
        """Takes and returns what ClusteredAttention's forward does. Raises MaskError unless
        attn_mask is lower triangular with offset 0."""
        kind = "ImprovedClusteredCausalAttention"
        offset = causal_offset_of(kind, attn_mask, queries, keys)
        if offset != 0:
            raise MaskError(f"{kind}: attn_mask: want an offset of 0, got {offset}")
        arguments = self._clustering_arguments(queries, keys, query_lengths, key_lengths)
        return ops.causal_improved_clustered_attention(
            queries, keys, values, topk=self.topk, **arguments
        )


AttentionRegistry.register(
    "causal-improved-clustered",
    ImprovedClusteredCausalAttention,
    [*CLUSTERED_PARAMETERS, ("topk", Optional(Int, 32))],
)
