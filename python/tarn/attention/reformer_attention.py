"""Softmax attention among queries with similar hashes."""

from __future__ import annotations

import torch

from tarn import ops
from tarn.attention._masks import attention_arguments, key_arguments
from tarn.attention._softmax import HashingAttention, want_between
from tarn.attention_registry import (
    AttentionRegistry,
    Bool,
    EventDispatcherInstance,
    Float,
    Int,
    Optional,
)
from tarn.events import EventDispatcher
from tarn.masking import BaseMask, MaskError


class ReformerAttention(HashingAttention):
    """Attention with shared queries and keys inside chunks of positions sorted
    by hash (Kitaev et al. 2020, arXiv 2001.04451). The keys are the normalised
    queries; the argument keys only gives their number.

    Args:
        chunk_size: positions in a chunk; each reads its own and the one before.
        bits: planes of a hash, which make 2 * bits buckets.
        rounds: number of hashings; a query attends once to each key any of them brings near.
        masked: whether a query reads itself only if there is nothing else to read.
        softmax_temp, attention_dropout, event_dispatcher: as in FullAttention;
            no AttentionEvent is sent, since there is no matrix.
        same_bucket: whether only positions of the same bucket are read.
        hash_seed: seed of the planes. Evaluation is deterministic.
        compat: whether rounds are averaged, as fast-transformers 0.4 does.

    Not strictly causal under a causal mask: chunks depend on later queries.
    """

    def __init__(
        self,
        chunk_size: int = 32,
        bits: int = 63,
        rounds: int = 4,
        masked: bool = False,
        softmax_temp: float | None = None,
        attention_dropout: float = 0.1,
        event_dispatcher: str | EventDispatcher = "",
        *,
        same_bucket: bool = False,
        hash_seed: int = 0,
        compat: bool = False,
    ):
        super().__init__(softmax_temp, attention_dropout, event_dispatcher, hash_seed)
        kind = "ReformerAttention"
        self.chunk_size: int = want_between(kind, "chunk_size", chunk_size, 1)
        self.bits: int = want_between(kind, "bits", bits, 1, 63)
        self.rounds: int = want_between(kind, "rounds", rounds, 1)
        self.masked = masked
        self.same_bucket = same_bucket
        self.compat = compat

    def forward(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        attn_mask: BaseMask | None = None,
        query_lengths: BaseMask | None = None,
        key_lengths: BaseMask | None = None,
    ) -> torch.Tensor:
        """queries [N, L, H, E], values [N, L, H, M] -> [N, L, H, M]. Takes any masks.
        Raises MaskError (L and S differ), ValueError, TypeError."""
        batch, seq_len = queries.shape[:2]
        if keys.shape[1] != seq_len:
            raise MaskError(
                f"ReformerAttention: keys: want {seq_len} keys as queries, got {keys.shape[1]}"
            )
        return ops.reformer_attention(
            queries,
            values,
            chunk_size=self.chunk_size,
            bits=self.bits,
            rounds=self.rounds,
            masked=self.masked,
            same_bucket=self.same_bucket,
            compat=self.compat,
            hash_seed=self._key(),
            **attention_arguments("ReformerAttention", attn_mask, queries, keys),
            **key_arguments("ReformerAttention", key_lengths, batch, seq_len),
            **self._softmax_arguments(),
        )


AttentionRegistry.register(
    "reformer",
    ReformerAttention,
    [
        ("chunk_size", Optional(Int, 32)),
        ("bits", Optional(Int, 63)),
        ("rounds", Optional(Int, 4)),
        ("masked", Optional(Bool, False)),
        ("softmax_temp", Optional(Float)),
        ("attention_dropout", Optional(Float, 0.1)),
        ("event_dispatcher", Optional(EventDispatcherInstance, "")),
        ("same_bucket", Optional(Bool, False)),
        ("hash_seed", Optional(Int, 0)),
        ("compat", Optional(Bool, False)),
    ],
    yielding=["same_bucket", "hash_seed", "compat"],
)
