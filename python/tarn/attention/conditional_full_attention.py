"""Softmax attention for short sequences, another kind for long ones."""

from __future__ import annotations

from typing import Any

import torch

from tarn.attention.full_attention import FullAttention
from tarn.attention_registry import (
    AttentionRegistry,
    EventDispatcherInstance,
    Float,
    Int,
    Optional,
)
from tarn.events import EventDispatcher
from tarn.masking import BaseMask


class ConditionalFullAttention(torch.nn.Module):
    """FullAttention where both L and S are at most length_limit, else
    other_attention. The sizes are those of the tensors, padding included. Its
    name in the builders is `conditional-full:other`."""

    def __init__(
        self,
        other_attention: Any,
        length_limit: int = 512,
        softmax_temp: float | None = None,
        attention_dropout: float = 0.1,
        event_dispatcher: str | EventDispatcher = "",
    ):
        super().__init__()
        self.full_attention: FullAttention = FullAttention(
            softmax_temp, attention_dropout, event_dispatcher
        )
        self.other_attention = other_attention
        self.length_limit = length_limit
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
        """[N, L, H, E], [N, S, H, E], [N, S, H, M] -> [N, L, H, M]; masks as the
        kind that runs takes them."""
        short = self._short(queries, keys)
        chosen = self.full_attention if short else self.other_attention
        return chosen(queries, keys, values, attn_mask, query_lengths, key_lengths)

    def _short(self, queries: torch.Tensor, keys: torch.Tensor) -> bool:
        """Whether full_attention runs."""
        return max(queries.shape[1], keys.shape[1]) <= self.length_limit


AttentionRegistry.register(
    "conditional-full",
    ConditionalFullAttention,
    [
        ("length_limit", Optional(Int, 512)),
        ("softmax_temp", Optional(Float)),
        ("attention_dropout", Optional(Float, 0.1)),
        ("event_dispatcher", Optional(EventDispatcherInstance, "")),
    ],
)
