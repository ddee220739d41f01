"""Softmax attention to near keys."""

from __future__ import annotations

import torch

from tarn import ops
from tarn.attention._masks import attention_arguments, key_arguments
from tarn.attention._softmax import SoftmaxAttention
from tarn.attention._steps import LocalSteps
from tarn.attention_registry import (
    AttentionRegistry,
    EventDispatcherInstance,
    Float,
    Int,
    Optional,
)
from tarn.events import EventDispatcher
from tarn.masking import BaseMask


class LocalAttention(LocalSteps, SoftmaxAttention):
    """Softmax over the keys ``i - floor(c/2) <= j < i + floor((c+1)/2)`` that the
    masks keep: an odd c is symmetric, an even c has one key more on the left.

    local_context: c. The rest as in FullAttention. O(L c) time, no L x S matrix.
    """

    def __init__(
        self,
        local_context: int,
        softmax_temp: float | None = None,
        attention_dropout: float = 0.1,
        event_dispatcher: str | EventDispatcher = "",
    ):
        super().__init__(softmax_temp, attention_dropout, event_dispatcher)
        self.local_context = local_context

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
        return ops.local_attention(
            queries,
            keys,
            values,
            local_context=self.local_context,
            **attention_arguments("LocalAttention", attn_mask, queries, keys),
            **key_arguments("LocalAttention", key_lengths, keys.shape[0], keys.shape[1]),
            **self._softmax_arguments(),
        )


AttentionRegistry.register(
    "local",
    LocalAttention,
    [
        ("local_context", Int),
        ("softmax_temp", Optional(Float)),
        ("attention_dropout", Optional(Float, 0.1)),
        ("event_dispatcher", Optional(EventDispatcherInstance, "")),
    ],
)
