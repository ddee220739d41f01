"""Softmax attention to a memory, whose keys and values are projected once."""

from __future__ import annotations

from tarn.attention._softmax import SoftmaxAttention
from tarn.attention._steps import FullMemory
from tarn.attention_registry import (
    EventDispatcherInstance,
    Float,
    Optional,
    RecurrentCrossAttentionRegistry,
)
from tarn.recurrent.attention.cross_attention._base import CrossAttention


class RecurrentCrossFullAttention(FullMemory, CrossAttention, SoftmaxAttention):
    """The recurrent form of `tarn.attention.FullAttention` over a memory.

    Args:
        softmax_temp: factor of the scores; None: 1 / sqrt(E).
        attention_dropout: probability of dropping a weight, in training.
        event_dispatcher: name or object; AttentionEvent is sent if a listener is
            attached, weights [N, H, 1, S].

    State: keys [N, S, H, E], values [N, S, H, M] and which of them are kept. A
    plain pair [keys, values] is a state too; its mask is that of the call.
    """

    kind: str = FullMemory.memory_kind
    _one_call = True


RecurrentCrossAttentionRegistry.register(
    "full",
    RecurrentCrossFullAttention,
    [
        ("softmax_temp", Optional(Float)),
        ("attention_dropout", Optional(Float, 0.1)),
        ("event_dispatcher", Optional(EventDispatcherInstance, "")),
    ],
)
