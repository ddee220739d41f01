"""The tensors of a gated mixer: names and shapes of the spec, first values of the papers."""

from __future__ import annotations

import math
from typing import Any

import torch

from tarn import _tables as tables
from tarn import ops
from tarn._configurations import layer_facts
from tarn.nn._gated_parts import draw_filters, draw_step_bias
from tarn.nn._mixer import View
from tarn.nn._recurrent_mixer import RecurrentMixer

# The projections that read a row of the layer, in the order of their results.
_FIRST = (
    "query_projection", "key_projection", "value_projection", "gate_projection",
    "gate_down_projection", "decay_projection", "decay_down_projection", "beta_projection",
)  # fmt: skip
_RATES = (1.0, 16.0)  # the initial ones of a decay
# Features of a head for each channel, where they are not as many.
_WIDER = {"hedgehog": 2, "dpfp": 8}


def _form_of(row: dict[str, Any], view: View) -> dict[str, Any]:
    """The row as the keys of one layer have it."""
    form = dict(row)
    if view["gate_activation"] != "own" and not form["skip"]:
        form["output_gate"] = view["gate_activation"]
    if form["skip"]:
        form["gate_first"] = not view["mamba2_norm_first"]
    form["low_rank_output_gate"] &= form["output_gate"] != "none"
    return form


class GatedWeights(RecurrentMixer):
    """What a GatedMixer owns, and the sizes that follow from its view."""

    log_decay: torch.Tensor
    lower_bound: torch.Tensor
    bound_logits: torch.nn.Parameter
    A_log: torch.nn.Parameter
    dt_bias: torch.nn.Parameter
    D: torch.nn.Parameter
    convolution: Any
    norm: Any
    out_projection: torch.nn.Linear
    gate_up_projection: torch.nn.Linear
    decay_up_projection: torch.nn.Linear

    def __init__(self, view: View, layer: int = 0):
        super().__init__(view)
        row = tables.mixer(self.kind)
        assert row is not None  # the configuration was read
        self.form: dict[str, Any] = _form_of(row["form"], view)
        self.steps: tuple[float, float] = (0.0, math.inf)  # between which dt is kept
        if self.form["skip"]:
            self.steps = view["least_step"], view["most_step"] or math.inf
        self.heads: int = view["n_heads"]
        grouped = self.form["grouped"] and view["key_heads"]
        self.key_heads: int = view["key_heads"] if grouped else self.heads
        self.d_key: int = view["d_key"]
        self.d_value: int = view["d_value"]
        wider = _WIDER.get(view["qk_map"], 1) if self.form["mapped"] else 1
        self.scale: float = (wider * self.d_key) ** -0.5 if self.form["scaled"] else 1.0
        self.divided: bool = self.form["mapped"] and view["divided_sums"]
        bounded = self.form["gate"] == "bounded"
        shapes = layer_facts(view).shapes
        for name, shape in shapes.items():
            self._register(name, shape, f"{name.removesuffix('weight')}bias" in shapes)
        self.learns_bounds: bool = bounded and view["learned_bounds"]
        self.passes = self.learns_bounds
        self._layer, self._depth = layer, max(view["n_layers"], 1)
        self._begin(layer)
        first = [name for name in _FIRST if hasattr(self, name)]
        self._first_maps = tuple(first)
        keys, values = self.key_heads * self.d_key, self.heads * self.d_value
        self._parts = [keys, values] if bounded else [keys, keys, values]
        rest = first[len(self._parts) :]
        self._widths = [
            sum(self._parts),
            *(shapes[f"{name}.weight"][0] for name in rest),
        ]

    def _register(self, name: str, shape: list[int], bias: bool) -> None:
        """A tensor of the spec: a map with its bias, a buffer, a parameter."""
        owner, _, part = name.rpartition(".")
        if owner.endswith("_projection"):
            if part == "weight":
                setattr(self, owner, torch.nn.Linear(shape[1], shape[0], bias=bias))
        elif owner:
            if not hasattr(self, owner):
                setattr(self, owner, torch.nn.Module())
            getattr(self, owner).register_parameter(part, torch.nn.Parameter(torch.ones(shape)))
        elif name in ("log_decay", "lower_bound"):
            self.register_buffer(name, torch.zeros(shape))
        else:
            self.register_parameter(name, torch.nn.Parameter(torch.ones(shape)))

    @torch.no_grad()
    def _begin(self, layer: int) -> None:
        """Sets the initial values of all parameters but matrices: those of the papers, which
        the trainer sets, too."""
        gate, count = self.form["gate"], max(self.view["n_layers"], 1)
        if gate == "constant" and self.form["rotary"]:
            self.log_decay.copy_(ops.retention_gates(self.heads))
        elif gate == "constant":
            self.log_decay.copy_(ops.lightning_gates(self.heads, layer, count))
        elif gate == "bounded" and not self.learns_bounds:
            self.lower_bound.fill_(layer / count)
        elif hasattr(self, "bound_logits"):
            self.bound_logits.zero_()
        elif gate == "log-sigmoid":
            torch.nn.init.zeros_(self.decay_up_projection.bias)
        elif self.form["mapped"] and self.view["qk_map"] == "hedgehog":
            for side in ("query", "key"):  # the identity
                made = getattr(self, f"{side}_map_projection")
                torch.nn.init.eye_(made.weight)
                torch.nn.init.zeros_(made.bias)
        elif gate in ("head", "channel"):
            self.A_log.copy_(self.A_log.uniform_(*_RATES).log())
            draw_step_bias(self.dt_bias)
        if hasattr(self, "convolution"):
            draw_filters(self.convolution)
