"""Softmax attention with a cache of keys and values."""

from __future__ import annotations

from tarn.attention._softmax import SoftmaxAttention
from tarn.attention._steps import FullSteps
from tarn.attention_registry import (
    EventDispatcherInstance,
    Float,
    Optional,
    RecurrentAttentionRegistry,
)
from tarn.recurrent.attention.self_attention._skin import StepForward


class RecurrentFullAttention(FullSteps, StepForward, SoftmaxAttention):
    """The recurrent form of `tarn.attention.FullAttention` under a causal mask.

    Args:
        softmax_temp: factor of the scores; None: 1 / sqrt(E).
        attention_dropout: probability of dropping a weight, in training.
        event_dispatcher: name or object; AttentionEvent is sent if a listener is
            attached, weights [N, H, 1, t].

    State: keys and values of all tokens; it grows with them.
    """

    _one_call = True


RecurrentAttentionRegistry.register(
    "full",
    RecurrentFullAttention,
    [
        ("softmax_temp", Optional(Float)),
        ("attention_dropout", Optional(Float, 0.1)),
        ("event_dispatcher", Optional(EventDispatcherInstance, "")),
    ],
)
