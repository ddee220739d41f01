"""The mixture of experts as the feed-forward part of a layer. With u the row as the part
reads it, the router chooses experts c_j of weights w_j by router(u), and

    y = sum_j w_j E_{c_j}(u) + g S(u)

E_e and the shared expert S are gated units or two maps without biases; g is 1, or
sigmoid(shared_gate(u))."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F

from tarn import ops

_CURVES: dict[str, Literal["silu", "gelu", "relu2"]] = {
    "swiglu": "silu",
    "geglu": "gelu",
    "relu2": "relu2",
}


@dataclass(frozen=True)
class MixtureOptions:
    """What a mixture of experts is like, by the names of config.json's section `moe`.

    experts: how many; experts_per_token: those that a token goes to. d_expert: hidden
    width of an expert; 0: d_ff. expert_part: "swiglu", "geglu" or "relu2". router:
    "softmax", "sigmoid" or "biased-sigmoid", of which a buffer router_bias [E] joins the
    scores where experts are chosen; router_normalize, router_scale: as in `tarn.ops.route_tokens`.
    d_shared: hidden width of the expert that all tokens go to; 0: none. shared_gate:
    whether it has a gate. balance_loss: factor of the loss that `tarn.nn.balance_loss`
    collects. Raises ValueError.
    """

    experts: int = 8
    experts_per_token: int = 2
    d_expert: int = 0
    expert_part: str = "swiglu"
    router: Literal["softmax", "sigmoid", "biased-sigmoid"] = "softmax"
    router_normalize: bool = True
    router_scale: float = 1.0
    d_shared: int = 0
    shared_gate: bool = False
    balance_loss: float = 0.01

    def __post_init__(self) -> None:
        if not 1 <= self.experts_per_token <= self.experts:
            raise ValueError(
                f"MixtureOptions: experts_per_token: want 1 to experts = {self.experts}, "
                f"got {self.experts_per_token}"
            )
        for name, value, words in (
            ("expert_part", self.expert_part, tuple(_CURVES)),
            ("router", self.router, ("softmax", "sigmoid", "biased-sigmoid")),
        ):
            if value not in words:
                names = ", ".join(repr(word) for word in words)
                raise ValueError(f"MixtureOptions: {name}: want one of {names}, got {value!r}")
        if self.shared_gate and not self.d_shared:
            raise ValueError(
                "MixtureOptions: shared_gate: want False without a shared expert, got True"
            )

    @property
    def scores(self) -> Literal["softmax", "sigmoid"]:
        """What the router makes of a logit."""
        return "softmax" if self.router == "softmax" else "sigmoid"

    @property
    def gated(self) -> bool:
        """Whether an expert multiplies its hidden rows by those of a third map."""
        return self.expert_part != "relu2"


class Experts(torch.nn.Module):
    """The stacked maps of all experts: linear1 and linear3 [E, F, D], linear2 [E, D, F],
    each drawn as torch.nn.Linear draws its weights."""

    linear3: torch.nn.Parameter | None
    loss: torch.Tensor | None  # of the last call in training mode

    def __init__(self, options: MixtureOptions, d_model: int, d_ff: int):
        super().__init__()
        self.options = options
        self.loss = None
        width = options.d_expert or d_ff

        def maps(out: int, inputs: int) -> torch.nn.Parameter:
            bound = 1 / math.sqrt(inputs)
            weight = torch.empty(options.experts, out, inputs)
            return torch.nn.Parameter(weight.uniform_(-bound, bound))

        self.linear1: torch.nn.Parameter = maps(width, d_model)
        self.linear2: torch.nn.Parameter = maps(d_model, width)
        self.linear3 = maps(width, d_model) if options.gated else None

    def __getstate__(self) -> dict[str, Any]:
        """A copy has no loss: its graph belongs to the call that made it."""
        return {**self.__dict__, "loss": None}

    def forward(
        self,
        x: torch.Tensor,
        logits: torch.Tensor,
        bias: torch.Tensor | None = None,
        kept: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """x [..., D] and the router's logits [..., E] -> [..., D]. bias [E]: of a biased
        router. kept [...] bool: which rows the load-balancing loss counts; None: all."""
        options = self.options
        scores = options.scores
        weights, chosen = ops.route_tokens(
            logits,
            options.experts_per_token,
            scores=scores,
            bias=bias,
            normalize=options.router_normalize,
            scale=options.router_scale,
        )
        if self.training and options.balance_loss > 0:
            counted = (logits, chosen) if kept is None else (logits[kept], chosen[kept])
            loss = ops.load_balancing_loss(*counted, scores=scores)
            self.loss = options.balance_loss * loss
        return ops.expert_feed_forward(
            x,
            chosen,
            weights.to(x.dtype),
            self.linear1,
            self.linear2,
            self.linear3,
            activation=_CURVES[options.expert_part],
        )


class SharedExpert(torch.nn.Module):
    """The expert that all tokens go to."""

    linear3: torch.nn.Linear | None

    def __init__(self, options: MixtureOptions, d_model: int):
        super().__init__()
        self.part = options.expert_part
        width = options.d_shared
        self.linear1: torch.nn.Linear = torch.nn.Linear(d_model, width, bias=False)
        self.linear2: torch.nn.Linear = torch.nn.Linear(width, d_model, bias=False)
        gate = torch.nn.Linear(d_model, width, bias=False) if options.gated else None
        self.linear3 = gate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [..., D] -> [..., D]."""
        hidden = self.linear1(x)
        if self.part == "relu2":
            hidden = F.relu(hidden).square()
        else:
            hidden = F.silu(hidden) if self.part == "swiglu" else F.gelu(hidden)
        return self.linear2(hidden if self.linear3 is None else hidden * self.linear3(x))


def add_mixture(layer: Any, options: MixtureOptions, d_model: int, d_ff: int) -> None:
    """Gives a layer the children router, experts and, where there is a shared expert,
    shared and shared_gate."""
    layer.router = torch.nn.Linear(d_model, options.experts, bias=False)
    biased = options.router == "biased-sigmoid"
    layer.register_buffer("router_bias", torch.zeros(options.experts) if biased else None)
    layer.experts = Experts(options, d_model, d_ff)
    layer.shared = SharedExpert(options, d_model) if options.d_shared else None
    gate = torch.nn.Linear(d_model, 1, bias=False) if options.shared_gate else None
    layer.shared_gate = gate


def mixture(layer: Any, x: torch.Tensor, kept: torch.Tensor | None) -> torch.Tensor:
    """The part of a layer with these children: x [..., D] -> [..., D]. Dropout acts on the
    sum alone, where the layer adds it."""
    y = layer.experts(x, layer.router(x), layer.router_bias, kept)
    if layer.shared is None:
        return y
    shared = layer.shared(x)
    if layer.shared_gate is not None:
        shared = shared * torch.sigmoid(layer.shared_gate(x))
    return y + shared


def balance_loss(model: torch.nn.Module) -> torch.Tensor:
    """The load-balancing losses of a model's mixtures of experts in its last call in
    training mode, each times its factor, added up: a scalar to add to the training loss;
    0 for a model without mixtures. They are forgotten afterwards."""
    total = torch.zeros(())
    for module in model.modules():
        if isinstance(module, Experts) and module.loss is not None:
            total = total.to(module.loss.device) + module.loss
            module.loss = None
    return total
