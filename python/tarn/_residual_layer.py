"""What every transformer layer is around its attentions: residuals, norms and
the feed-forward network, whole sequences or single tokens alike."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
import torch.nn.functional as F

from tarn.events import EventDispatcher

_NORMS = ("post", "pre")
_ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu}


def _want(layer: str, argument: str, value: object, choices: Collection[str]) -> None:
    if value not in choices:
        names = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{layer}: {argument}: want one of {names}, got {value!r}")


class ResidualLayer(torch.nn.Module):
    """Feed-forward part, residuals and norms of both kinds of layer."""

    def __init__(
        self,
        attentions: dict[str, Any],
        d_model: int,
        d_ff: int | None,
        dropout: float,
        activation: str,
        event_dispatcher: str | EventDispatcher,
        norm: str,
        norm_eps: float,
    ):
        super().__init__()
        # First, as in fast-transformers: optimiser states go by the order.
        for name, attention in attentions.items():
            setattr(self, name, attention)  # a module or any other callable
        _want(type(self).__name__, "activation", activation, _ACTIVATIONS)
        _want(type(self).__name__, "norm", norm, _NORMS)
        d_ff = d_ff or 4 * d_model
        self.linear1 = torch.nn.Linear(d_model, d_ff)
        self.linear2 = torch.nn.Linear(d_ff, d_model)
        self.norm1 = torch.nn.LayerNorm(d_model, eps=norm_eps)
        self.norm2 = torch.nn.LayerNorm(d_model, eps=norm_eps)
        self.dropout = torch.nn.Dropout(dropout)
        self.activation = _ACTIVATIONS[activation]
        self.pre_norm = norm == "pre"
        self.event_dispatcher = EventDispatcher.get(event_dispatcher)

    def _residual(
        self,
        x: torch.Tensor,
        norm: torch.nn.Module,
        sublayer: Callable[[torch.Tensor], torch.Tensor],
    ) -> torch.Tensor:
        """post: norm(x + drop(f(x)));  pre: x + drop(f(norm(x)))."""
        if self.pre_norm:
            return x + self.dropout(sublayer(norm(x)))
        return norm(x + self.dropout(sublayer(x)))

    def _feed_forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))
