"""Attention to the best keys only, with a cache of keys and values."""

from __future__ import annotations

from typing import Any

import torch

from tarn import ops
from tarn.attention_registry import (
    EventDispatcherInstance,
    Float,
    Int,
    Optional,
    RecurrentAttentionRegistry,
)
from tarn.recurrent.attention.self_attention._cached import CachedAttention


class RecurrentExactTopKAttention(CachedAttention):
    """The recurrent form of `tarn.attention.ExactTopKAttention` under a causal
    mask.

    Args:
        topk: keys a query attends to, those of the largest scores.
        softmax_temp: factor of the scores; None: 1 / sqrt(E).
        attention_dropout: probability of dropping a weight, in training.

    State: keys and values of all tokens; grows with them.
    """

    kind = "exact-topk"

    def __init__(
        self,
        topk: int = 32,
        softmax_temp: float | None = None,
        attention_dropout: float = 0.1,
        event_dispatcher="",
    ) -> None:
        super().__init__(event_dispatcher)
        self.topk = topk
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
        return ops.exact_topk_attention(
            queries,
            keys,
            values,
            topk=self.topk,
            softmax_temp=self.softmax_temp,
            dropout=dropout,
            seed=ops.draw_seed(dropout),
            **masks,
        )


RecurrentAttentionRegistry.register(
    "exact-topk",
    RecurrentExactTopKAttention,
    [
        ("topk", Optional(Int, 32)),
        ("softmax_temp", Optional(Float)),
        ("attention_dropout", Optional(Float, 0.1)),
        ("event_dispatcher", Optional(EventDispatcherInstance, "")),
    ],
)
