"""The kinds of events."""

from __future__ import annotations

from typing import Any

import torch


class Event:
    """Something that happened. source: the module that reports it, or any
    other object."""

    def __init__(self, source: Any):
        self.source = source


class AttentionEvent(Event):
    """attention_matrix [N, H, L, S]: the weights of a softmax kind, before
    dropout. In a recurrent step L = 1 and S counts the tokens so far."""

    def __init__(self, source: Any, attention_matrix: torch.Tensor):
        super().__init__(source)
        self.attention_matrix = attention_matrix


class QKVEvent(Event):
    """The input of an attention, in heads: queries [N, L, H, E],
    keys [N, S, H, E], values [N, S, H, M]; a recurrent step has no time axis,
    and a recurrent cross attention sends its keys and values when its state is
    built, its queries (the rest None) at every step."""

    def __init__(
        self,
        source: Any,
        queries: torch.Tensor | None,
        keys: torch.Tensor | None,
        values: torch.Tensor | None,
    ):
        super().__init__(source)
        self.queries = queries
        self.keys = keys
        self.values = values


class IntermediateOutput(Event):
    """x [N, L, D] after one layer of a stack, before the final norm. source is
    the stack, layer the index of the layer in it."""

    def __init__(self, source: Any, x: torch.Tensor, layer: int | None = None):
        super().__init__(source)
        self.x = x
        self.layer = layer
