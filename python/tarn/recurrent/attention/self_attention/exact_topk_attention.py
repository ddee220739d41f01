"""Attention to the best keys only, with a cache of keys and values."""

from __future__ import annotations

from tarn.attention._softmax import SoftmaxAttention
from tarn.attention._steps import TopKSteps
from tarn.attention_registry import (
    EventDispatcherInstance,
    Float,
    Int,
    Optional,
    RecurrentAttentionRegistry,
)
from tarn.events import EventDispatcher
from tarn.recurrent.attention.self_attention._skin import StepForward


class RecurrentExactTopKAttention(TopKSteps, StepForward, SoftmaxAttention):
    """The recurrent form of `tarn.attention.ExactTopKAttention` under a causal
    mask.

    Args:
        topk: keys a query attends to, those with the largest scores.
        softmax_temp: factor of the scores; None: 1 / sqrt(E).
        attention_dropout: probability of dropping a weight, in training.

    State: keys and values of all tokens; it grows with them.
    """

    def __init__(
        self,
        topk: int = 32,
        softmax_temp: float | None = None,
        attention_dropout: float = 0.1,
        event_dispatcher: str | EventDispatcher = "",
    ) -> None:
        super().__init__(softmax_temp, attention_dropout, event_dispatcher)
        self.topk = topk


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
