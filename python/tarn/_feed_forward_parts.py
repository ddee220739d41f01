"""The feed-forward parts of layers, a row each: which maps a layer holds for its part, and
what stands between them. With u the row as the part reads it and f the curve:

    linear2(drop(f(linear1(u))))                     two maps
    linear2(drop(f(linear1(u)) * linear3(u)))        gated
    linear2(drop(relu(linear1(u + token_shift * (u' - u)))**2))   shifting, u' the row before
    the same times sigmoid(gate(u + gate_shift * (u' - u)))       shifting and receiving
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F

from tarn._moe_part import MixtureOptions, add_mixture
from tarn._token_shift import begin_shifts

Curve = Callable[[torch.Tensor], torch.Tensor]


def gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x, approximate="tanh")


def _square_relu(x: torch.Tensor) -> torch.Tensor:
    return F.relu(x).square()


@dataclass(frozen=True)
class FeedForwardPart:
    """One row. curve: None for the layer's own activation. kernel: whether an operator
    computes the part, and those that take a whole layer know it. empty: a layer without
    a part, which then lacks its last norm too. mixture: `_moe_part.py`."""

    empty: bool = False
    mixture: bool = False
    biased: bool = False
    gated: bool = False
    shifting: bool = False
    receiving: bool = False
    curve: Curve | None = None
    kernel: bool = False

    def hidden(self, x: torch.Tensor, up: torch.Tensor | None, activation: Curve) -> torch.Tensor:
        """What is between the maps: x of linear1, up of linear3. A layer that is given a
        linear3 becomes a swiglu."""
        curve = self.curve or (activation if up is None else F.silu)
        y = curve(x)
        return y if up is None else y * up


PARTS: dict[str, FeedForwardPart] = {
    "mlp": FeedForwardPart(biased=True, kernel=True),
    "swiglu": FeedForwardPart(gated=True, curve=F.silu, kernel=True),
    "channel-mix": FeedForwardPart(shifting=True, curve=_square_relu),
    "none": FeedForwardPart(empty=True),
    "geglu": FeedForwardPart(gated=True, curve=F.gelu),
    "relu2": FeedForwardPart(curve=_square_relu),
    "moe": FeedForwardPart(mixture=True),
    "geglu-tanh": FeedForwardPart(gated=True, curve=gelu_tanh),
    "gated-channel-mix": FeedForwardPart(shifting=True, receiving=True, curve=_square_relu),
}


def part_of(name: str, bias: str = "auto") -> FeedForwardPart:
    """The part of a name, whose maps have biases as it says ("auto"), "all" or "none"; the
    operators know its own choice alone. Raises ValueError."""
    if bias not in ("auto", "all", "none"):
        raise ValueError(f"feed_forward_bias: want 'auto', 'all' or 'none', got {bias!r}")
    part = PARTS[name]
    maps = not (part.empty or part.mixture or part.shifting)
    if bias == "auto" or not maps or part.biased == (bias == "all"):
        return part
    return replace(part, biased=not part.biased, kernel=False)


def add_maps(
    layer: Any,
    part: FeedForwardPart,
    d_model: int,
    d_ff: int,
    options: MixtureOptions | None = None,
) -> None:
    """Gives the layer the children of its part, in the order of its weights: linear1 and
    linear2 where there is a part, linear3, token_shift, gate_shift and gate where it has
    them, else None; or those of a mixture of experts."""
    layer.token_shift = layer.gate_shift = layer.gate = None
    if part.shifting:
        layer.token_shift = torch.nn.Parameter(torch.empty(d_model))
    if part.receiving:
        layer.gate_shift = torch.nn.Parameter(torch.empty(d_model))
    begin_shifts(layer)
    layer.linear3 = None
    if part.mixture:
        add_mixture(layer, options or MixtureOptions(), d_model, d_ff)
        return
    if not part.empty:
        layer.linear1 = torch.nn.Linear(d_model, d_ff, bias=part.biased)
        layer.linear2 = torch.nn.Linear(d_ff, d_model, bias=part.biased)
    if part.gated:
        layer.linear3 = torch.nn.Linear(d_model, d_ff, bias=part.biased)
    if part.receiving:
        layer.gate = torch.nn.Linear(d_model, d_model, bias=False)
