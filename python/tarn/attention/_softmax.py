"""What the softmax kinds share."""

from __future__ import annotations

from typing import Any

import torch

from tarn import ops
from tarn._randomness import ForwardCounter, mix_key
from tarn.events import EventDispatcher


def want_between(kind: str, name: str, value: int, least: int, most: int | None = None) -> int:
    """Returns value. Raises a ValueError that names the argument of a constructor,
    before any call."""
    if value < least or (most is not None and value > most):
        bounds = f"from {least}" + ("" if most is None else f" to {most}")
        raise ValueError(f"{kind}: {name}: want an integer {bounds}, got {value!r}")
    return value


class SoftmaxAttention(torch.nn.Module):
    """Temperature, dropout of weights and events. Dropout draws one seed per call
    from torch's default generator."""

    def __init__(
        self,
        softmax_temp: float | None = None,
        attention_dropout: float = 0.1,
        event_dispatcher: str | EventDispatcher = "",
    ):
        super().__init__()
        self.softmax_temp = softmax_temp
        # A module so that code which sets `attention.dropout.p` finds it.
        self.dropout: torch.nn.Dropout = torch.nn.Dropout(attention_dropout)
        self.event_dispatcher: EventDispatcher = EventDispatcher.get(event_dispatcher)

    def _softmax_arguments(self) -> dict[str, Any]:
        """softmax_temp, dropout and seed of one call."""
        dropout = self.dropout.p if self.training else 0.0
        return {
            "softmax_temp": self.softmax_temp,
            "dropout": dropout,
            "seed": ops.draw_seed(dropout),
        }


class HashingAttention(SoftmaxAttention):
    """The base of the kinds that hash, with the key of their random planes: a function
    of (hash_seed, layer, call) in training and of (hash_seed, layer) in
    evaluation, which is therefore deterministic."""

    def __init__(
        self,
        softmax_temp: float | None = None,
        attention_dropout: float = 0.1,
        event_dispatcher: str | EventDispatcher = "",
        hash_seed: int = 0,
    ):
        super().__init__(softmax_temp, attention_dropout, event_dispatcher)
        self.hash_seed = hash_seed
        self._layer = 0
        self._calls = ForwardCounter()

    def assign_layer(self, layer: int, seed: int | None = None) -> None:
        """Sets the number that tells layers with one hash_seed apart."""
        self._layer = layer

    def _key(self) -> int:
        call = 1 + self._calls.advance() if self.training else 0
        return mix_key(self.hash_seed, self._layer, call)
