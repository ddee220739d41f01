"""Attention to the latest tokens, with a ring of keys and values."""

from __future__ import annotations

from tarn.attention._softmax import SoftmaxAttention, want_between
from tarn.attention._steps import LocalSteps
from tarn.attention_registry import (
    EventDispatcherInstance,
    Float,
    Int,
    Optional,
    RecurrentAttentionRegistry,
)
from tarn.events import EventDispatcher
from tarn.recurrent.attention.self_attention._skin import StepForward


class RecurrentLocalAttention(LocalSteps, StepForward, SoftmaxAttention):
    """The recurrent form of `tarn.attention.LocalAttention` under a causal
    mask: a token reads itself and the floor(local_context / 2) tokens before it.

    Args:
        local_context: width c of the window.
        softmax_temp: factor of the scores; None: 1 / sqrt(E).
        attention_dropout: probability of dropping a weight, in training.

    State, of a fixed size: the last floor(c / 2) + 1 keys and values, oldest
    first, right-aligned; what a short sequence leaves empty is masked by its
    number of tokens.
    """

    def __init__(
        self,
        local_context: int,
        softmax_temp: float | None = None,
        attention_dropout: float = 0.1,
        event_dispatcher: str | EventDispatcher = "",
    ) -> None:
        super().__init__(softmax_temp, attention_dropout, event_dispatcher)
        self.local_context: int = want_between(
            "RecurrentLocalAttention", "local_context", local_context, 1
        )


RecurrentAttentionRegistry.register(
    "local",
    RecurrentLocalAttention,
    [
        ("local_context", Int),
        ("softmax_temp", Optional(Float)),
        ("attention_dropout", Optional(Float, 0.1)),
        ("event_dispatcher", Optional(EventDispatcherInstance, "")),
    ],
)
