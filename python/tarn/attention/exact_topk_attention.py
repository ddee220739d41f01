"""Softmax attention to the largest scores."""

from __future__ import annotations

import torch

from tarn import ops
from tarn.attention._masks import attention_arguments, key_arguments
from tarn.attention._softmax import SoftmaxAttention, want_between
from tarn.attention._steps import TopKSteps
from tarn.attention_registry import (
    AttentionRegistry,
    EventDispatcherInstance,
    Float,
    Int,
    Optional,
)
from tarn.events import AttentionEvent, EventDispatcher
from tarn.masking import BaseMask


class ExactTopKAttention(TopKSteps, SoftmaxAttention):
    """Softmax over the topk kept keys with the largest scores (ties: the earlier
    key). The rest is as in FullAttention, AttentionEvent included. O(L S)."""

    def __init__(
        self,
        topk: int = 32,
        softmax_temp: float | None = None,
        attention_dropout: float = 0.1,
        event_dispatcher: str | EventDispatcher = "",
    ):
        super().__init__(softmax_temp, attention_dropout, event_dispatcher)
        self.topk: int = want_between("ExactTopKAttention", "topk", topk, 1)

    def forward(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        attn_mask: BaseMask | None = None,
        query_lengths: BaseMask | None = None,
        key_lengths: BaseMask | None = None,
    ) -> torch.Tensor:
        """[N, L, H, E], [N, S, H, E], [N, S, H, M] -> [N, L, H, M]. Raises
        ValueError, TypeError."""
        options = {
            "topk": self.topk,
            **attention_arguments("ExactTopKAttention", attn_mask, queries, keys),
            **key_arguments("ExactTopKAttention", key_lengths, keys.shape[0], keys.shape[1]),
            **self._softmax_arguments(),
        }
        if not self.event_dispatcher.has_listeners(AttentionEvent, self):
            return ops.exact_topk_attention(queries, keys, values, **options)
        out, weights = ops.exact_topk_attention(queries, keys, values, need_weights=True, **options)
        self.event_dispatcher.dispatch(AttentionEvent(self, weights))
        return out


AttentionRegistry.register(
    "exact-topk",
    ExactTopKAttention,
    [
        ("topk", Optional(Int, 32)),
        ("softmax_temp", Optional(Float)),
        ("attention_dropout", Optional(Float, 0.1)),
        ("event_dispatcher", Optional(EventDispatcherInstance, "")),
    ],
)
