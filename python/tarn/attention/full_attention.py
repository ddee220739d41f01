"""Softmax attention."""

from __future__ import annotations

import torch

from tarn import ops
from tarn.attention._masks import attention_arguments, key_arguments
from tarn.attention._softmax import SoftmaxAttention
from tarn.attention._steps import FullMemory, FullSteps
from tarn.attention_registry import AttentionRegistry, EventDispatcherInstance, Float, Optional
from tarn.events import AttentionEvent
from tarn.masking import BaseMask


class FullAttention(FullSteps, FullMemory, SoftmaxAttention):
    """``softmax(softmax_temp q . k)`` over all keys that the masks keep.

    Args:
        softmax_temp: factor of the scores; None: 1/sqrt(E).
        attention_dropout: probability of dropping a weight, in training.
        event_dispatcher: a name or a dispatcher; it gets AttentionEvent. The matrix is
            only computed if a listener is attached.
    """

    _one_call = True

    def forward(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        attn_mask: BaseMask | None = None,
        query_lengths: BaseMask | None = None,
        key_lengths: BaseMask | None = None,
    ) -> torch.Tensor:
        """[N, L, H, E], [N, S, H, E], [N, S, H, M] -> [N, L, H, M]. Takes any masks; a
        query without keys gets 0. Raises ValueError, TypeError."""
        options = {
            **attention_arguments("FullAttention", attn_mask, queries, keys),
            **key_arguments("FullAttention", key_lengths, keys.shape[0], keys.shape[1]),
            **self._softmax_arguments(),
        }
        if not self.event_dispatcher.has_listeners(AttentionEvent, self):
            return ops.full_attention(queries, keys, values, **options)
        out, weights = ops.full_attention(queries, keys, values, need_weights=True, **options)
        self.event_dispatcher.dispatch(AttentionEvent(self, weights))
        return out


AttentionRegistry.register(
    "full",
    FullAttention,
    [
        ("softmax_temp", Optional(Float)),
        ("attention_dropout", Optional(Float, 0.1)),
        ("event_dispatcher", Optional(EventDispatcherInstance, "")),
    ],
)
