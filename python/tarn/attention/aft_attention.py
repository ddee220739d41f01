"""Attention-free attention (Zhai et al. 2021, arXiv 2105.14103): the weights
are per channel and depend on keys and positions."""

from __future__ import annotations

import torch

from tarn import ops
from tarn.attention._masks import (
    attention_arguments,
    causal_offset_of,
    keeps_all,
    key_arguments,
)
from tarn.attention._steps import AftFullSteps, AftSimpleSteps
from tarn.attention_registry import AttentionRegistry, EventDispatcherInstance, Int, Optional
from tarn.events import EventDispatcher
from tarn.masking import BaseMask


class AFTFullAttention(AftFullSteps, torch.nn.Module):
    """``sigmoid(q_i) sum_j exp(k_j + w_ij) v_j / sum_j exp(k_j + w_ij)``, w = u v^T.

    Args:
        max_sequence_length: rows of the tables; longer inputs are an error.
        aft_parameterization: columns of the tables.
        event_dispatcher: a name or a dispatcher.

    Parameters u, v [max_sequence_length, aft_parameterization], initially
    0.01 N(0, 1), shared by heads.
    """

    def __init__(
        self,
        max_sequence_length: int = 1024,
        aft_parameterization: int = 64,
        event_dispatcher: str | EventDispatcher = "",
    ):
        super().__init__()
        self.max_sequence_length = max_sequence_length
        sizes = max_sequence_length, aft_parameterization
        self.u: torch.nn.Parameter = torch.nn.Parameter(torch.randn(*sizes) * 0.01)
        self.v: torch.nn.Parameter = torch.nn.Parameter(torch.randn(*sizes) * 0.01)
        self.event_dispatcher: EventDispatcher = EventDispatcher.get(event_dispatcher)

    def forward(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        attn_mask: BaseMask | None = None,
        query_lengths: BaseMask | None = None,
        key_lengths: BaseMask | None = None,
    ) -> torch.Tensor:
        """queries [N, L, H, E], keys and values [N, S, H, E] -> [N, L, H, E]. Takes
        any masks. Raises ValueError, TypeError."""
        seq_len_q, seq_len_k = queries.shape[1], keys.shape[1]
        if max(seq_len_q, seq_len_k) > self.max_sequence_length:
            raise ValueError(
                "AFTFullAttention: queries, keys: want at most max_sequence_length = "
                f"{self.max_sequence_length} positions, got {seq_len_q} and {seq_len_k}"
            )
        return ops.aft_full_attention(
            queries,
            keys,
            values,
            self.u[:seq_len_q] @ self.v[:seq_len_k].t(),
            **attention_arguments("AFTFullAttention", attn_mask, queries, keys),
            **key_arguments("AFTFullAttention", key_lengths, keys.shape[0], seq_len_k),
        )

    def extra_repr(self) -> str:
        return f"max_sequence_length={self.max_sequence_length}"


class AFTSimpleAttention(AftSimpleSteps, torch.nn.Module):
    """``sigmoid(q_i) sum_j exp(k_j) v_j / sum_j exp(k_j)``, over all kept keys or,
    with a lower triangular mask, the keys so far."""

    def __init__(self, event_dispatcher: str | EventDispatcher = ""):
        super().__init__()
        self.event_dispatcher: EventDispatcher = EventDispatcher.get(event_dispatcher)

    def forward(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        attn_mask: BaseMask | None = None,
        query_lengths: BaseMask | None = None,
        key_lengths: BaseMask | None = None,
    ) -> torch.Tensor:
        """queries [N, L, H, E], keys and values [N, S, H, E] -> [N, L, H, E].
        Raises MaskError, ValueError, TypeError."""
        kind = "AFTSimpleAttention"
        causal = not keeps_all(kind, attn_mask, queries, keys)
        offset = causal_offset_of(kind, attn_mask, queries, keys) if causal else 0
        return ops.aft_simple_attention(
            queries,
            keys,
            values,
            causal=causal,
            causal_offset=offset,
            **key_arguments(kind, key_lengths, keys.shape[0], keys.shape[1]),
        )


AttentionRegistry.register(
    "aft-full",
    AFTFullAttention,
    [
        ("max_sequence_length", Optional(Int, 1024)),
        ("aft_parameterization", Optional(Int, 64)),
        ("event_dispatcher", Optional(EventDispatcherInstance, "")),
    ],
)
AttentionRegistry.register(
    "aft-simple",
    AFTSimpleAttention,
    [("event_dispatcher", Optional(EventDispatcherInstance, ""))],
)
