"""Softmax attention with a cache of keys and values."""

from __future__ import annotations

from typing import Any

import torch

from tarn import ops
from tarn.attention_registry import (
    EventDispatcherInstance,
    Float,
    Optional,
    RecurrentAttentionRegistry,
)
from tarn.events import AttentionEvent
from tarn.recurrent.attention.self_attention._cached import CachedAttention


class RecurrentFullAttention(CachedAttention):
    """The recurrent form of `tarn.attention.FullAttention` under a causal mask.

    Args:
        softmax_temp: factor of the scores; None: 1 / sqrt(E).
        attention_dropout: probability of dropping a weight, in training.
        event_dispatcher: name or object; AttentionEvent is sent where somebody
            listens, weights [N, H, 1, t].

    State: keys and values of all tokens; grows with them.
    """

    kind = "full"

    def __init__(
        self,
        softmax_temp: float | None = None,
        attention_dropout: float = 0.1,
        event_dispatcher="",
    ) -> None:
        super().__init__(event_dispatcher)
        self.softmax_temp = softmax_temp
        self.dropout = torch.nn.Dropout(attention_dropout)

    def attend(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        masks: dict[str, Any],
        first: int | None,
    ) -> torch.Tensor:
        dropout = self.dropout.p if self.training else 0.0
        arguments: dict[str, Any] = dict(
            softmax_temp=self.softmax_temp,
            dropout=dropout,
            seed=ops.draw_seed(dropout),
            **masks,
        )
        if self.event_dispatcher.has_listeners(AttentionEvent, self):
            out, weights = ops.full_attention(
                queries, keys, values, need_weights=True, **arguments
            )
            self.event_dispatcher.dispatch(AttentionEvent(self, weights))
            return out
        return ops.full_attention(queries, keys, values, **arguments)


RecurrentAttentionRegistry.register(
    "full",
    RecurrentFullAttention,
    [
        ("softmax_temp", Optional(Float)),
        ("attention_dropout", Optional(Float, 0.1)),
        ("event_dispatcher", Optional(EventDispatcherInstance, "")),
    ],
)
