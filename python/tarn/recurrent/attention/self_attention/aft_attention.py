"""Attention free transformers as recurrences."""

from __future__ import annotations

import torch

from tarn.attention._steps import AftFullSteps, AftSimpleSteps
from tarn.attention_registry import (
    EventDispatcherInstance,
    Int,
    Optional,
    RecurrentAttentionRegistry,
)
from tarn.events import EventDispatcher
from tarn.recurrent.attention.self_attention._skin import StepForward


class RecurrentAFTFullAttention(AftFullSteps, StepForward, torch.nn.Module):
    """The recurrent form of `tarn.attention.AFTFullAttention` under a causal
    mask, with the same parameters u and v.

    Args:
        max_sequence_length: rows of the position tables; a longer sequence
            raises ValueError.
        aft_parameterization: rank of the position bias.

    State: keys and values of all tokens; it grows with them.
    """

    def __init__(
        self,
        max_sequence_length: int = 1024,
        aft_parameterization: int = 64,
        event_dispatcher: str | EventDispatcher = "",
    ) -> None:
        super().__init__()
        self.event_dispatcher: EventDispatcher = EventDispatcher.get(event_dispatcher)
        self.max_sequence_length = max_sequence_length
        shape = (max_sequence_length, aft_parameterization)
        self.u: torch.nn.Parameter = torch.nn.Parameter(torch.randn(shape) * 0.01)
        self.v: torch.nn.Parameter = torch.nn.Parameter(torch.randn(shape) * 0.01)


class RecurrentAFTSimpleAttention(AftSimpleSteps, StepForward, torch.nn.Module):
    """The recurrent form of `tarn.attention.AFTSimpleAttention` under a causal
    mask.

    State, of a fixed size, [N, H, E] each: m, the largest key of a channel so
    far; a = sum exp(k - m) v; b = sum exp(k - m).
    """

    def __init__(self, event_dispatcher: str | EventDispatcher = "") -> None:
        super().__init__()
        self.event_dispatcher: EventDispatcher = EventDispatcher.get(event_dispatcher)


RecurrentAttentionRegistry.register(
    "aft-full",
    RecurrentAFTFullAttention,
    [
        ("max_sequence_length", Optional(Int, 1024)),
        ("aft_parameterization", Optional(Int, 64)),
        ("event_dispatcher", Optional(EventDispatcherInstance, "")),
    ],
)
RecurrentAttentionRegistry.register(
    "aft-simple",
    RecurrentAFTSimpleAttention,
    [("event_dispatcher", Optional(EventDispatcherInstance, ""))],
)
