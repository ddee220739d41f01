"""RWKV-6 (Peng et al. 2024, arXiv 2404.05892) and RWKV-7 (Peng et al. 2025, arXiv
2503.14456): projections of a row mixed with the one before it, around one recurrence.
mixers/rwkv/form.h on the C++ side has the equations."""

from __future__ import annotations

import math
from typing import Any

import torch

from tarn import ops
from tarn._configurations import layer_facts
from tarn._passed_rows import PassedRows, want_passed
from tarn._fused import Branch
from tarn._token_shift import last_row
from tarn.nn._gated_parts import kept_rows, split, want_read
from tarn.nn._mixer import Tensors, View, register_mixer
from tarn.nn._recurrent_mixer import RecurrentMixer

_LARGEST_DECAY = math.exp(-0.5)  # of RWKV-7


class RwkvMixer(RecurrentMixer):
    """The mixer "rwkv6" or "rwkv7".

    Args:
        view: a finished configuration as this layer sees it
            (`tarn.models.layer_view`).
        layer: its number among the view's n_layers: shifts and decays begin as ramps
            over the channels that change from layer to layer.

    Parameters have the names and shapes of the weight file. State: S [B, H, K, K] and the
    row before the next one, shift [B, D], float32 (float64 under float64 weights).
    """

    token_shift: torch.nn.Parameter
    shift_base: torch.nn.Parameter
    bonus: torch.nn.Parameter
    key_scale: torch.nn.Parameter
    key_rate: torch.nn.Parameter
    value_down_projection: torch.nn.Linear
    value_up_projection: torch.nn.Linear
    norm: Any
    shift_up_projection: Any
    shift_down_projection: torch.nn.Linear
    out_projection: torch.nn.Linear

    def __init__(self, view: View, layer: int = 0):
        super().__init__(view)
        self.seven: bool = self.kind == "rwkv7"
        self.heads: int = view["n_heads"]
        self.d_key: int = view["d_key"]
        shapes = layer_facts(view).shapes
        for name, shape in shapes.items():
            self._register(name, shape, f"{name.removesuffix('weight')}bias" in shapes)
        self.passes = self.seven and view["value_residual"]
        self._reads = bool(view.get("reads_passed"))
        self._begin(layer, max(view["n_layers"], 1))

    def extra_repr(self) -> str:
        return f"kind={self.kind!r}, heads={self.heads}"

    def _register(self, name: str, shape: list[int], bias: bool) -> None:
        owner, _, part = name.rpartition(".")
        if owner.endswith("_projection") and owner != "shift_up_projection":
            if part == "weight":
                setattr(self, owner, torch.nn.Linear(shape[1], shape[0], bias=bias))
        elif owner:
            if not hasattr(self, owner):
                setattr(self, owner, torch.nn.Module())
            getattr(self, owner).register_parameter(part, torch.nn.Parameter(torch.ones(shape)))
        else:
            self.register_parameter(name, torch.nn.Parameter(torch.ones(shape)))

    @torch.no_grad()
    def _begin(self, layer: int, layers: int) -> None:
        """Sets the trainer's initial values: the first channels look back and forget slowly;
        the second factors of the low-rank maps are small, so that their biases decide at
        first."""
        inputs, d = self.token_shift.shape
        width = self.heads * self.d_key
        rising, falling = layer / max(layers - 1, 1), 1 - layer / layers
        channel, ramp = torch.arange(d) / d, torch.arange(width) / max(width - 1, 1)
        powers = (0.2, 0.9, 0.7, 0.7, 0.2, 0.9) if self.seven else (0.5, 1.0, 1.0, 1.0, 0.5)
        self.token_shift.copy_(torch.stack([1 - channel ** (p * falling) for p in powers]))
        ups: dict[str, torch.Tensor] = {}
        if self.seven:
            ups["decay"] = -6.5 + 5 * ramp ** (0.85 + math.sqrt(rising))
            ups["rate"] = torch.zeros(width)
            if self._reads:
                ups["value"] = 0.73 - 0.4 * (ramp - 0.5)
            self.bonus.fill_(-0.04)
            self.key_scale.fill_(0.71)
            self.key_rate.fill_(1.02)
        else:
            ups["decay"] = -6 + 5 * ramp ** (0.7 + 1.3 * rising)
            self.shift_base.copy_(1 - channel**falling)
            self.shift_up_projection.weight.uniform_(-1e-2, 1e-2)
            zigzag = 0.1 * ((torch.arange(width) + 1) % 3 - 1)
            self.bonus.copy_((rising * (1 - ramp) + zigzag).view(self.heads, self.d_key))
        for name, bias in ups.items():
            up = getattr(self, f"{name}_up_projection")
            up.weight.mul_(0.1)
            up.bias.copy_(bias)
        self.norm.bias.zero_()

    def _run(
        self,
        x: torch.Tensor,
        kept: torch.Tensor | None,
        lengths: torch.Tensor | None,
        state: Tensors | None,
        steps: torch.Tensor | None,
        passed: PassedRows | None = None,
    ) -> tuple[Branch, Tensors]:
        """Rows [B, T, D] after a state, None: from the first. kept [B, T] bool,
        lengths [B]: which count. passed: the values of the first layer, which sets them."""
        want_read(self)
        if self._reads:
            rows = None if passed is None else passed.rows
            want_passed(self.kind, rows, (*x.shape[:2], self.heads * self.d_key))
        x = kept_rows(x, kept)
        before = None if state is None else state["shift"]
        rows = self._mixtures(x, ops.token_shift(x, before=before))
        queries = self._split(self._map("query", rows[0]))
        keys = self._map("key", rows[2])
        values = self._split(self._shared_values(rows[3], passed))
        decays = self._map("decay_up", torch.tanh(self._map("decay_down", rows[1])))
        options: dict[str, Any] = {"lengths": lengths, "return_state": state is not None}
        if state is not None:
            options["initial_state"] = state["S"]
        if self.seven:
            factors = self._map("gate_up", torch.sigmoid(self._map("gate_down", rows[4])))
            rates = torch.sigmoid(self._map("rate_up", self._map("rate_down", rows[5])))
            unit = self._split(keys * self.key_scale)
            unit = ops.unit_norm(unit, eps=self.view["unit_eps"]).to(keys.dtype)
            mixed = torch.ops.tarn.entry_form.default(keys, rates, self.key_rate, "mixed_gate")
            keys = kept_rows(self._split(mixed), kept)
            writes = kept_rows(unit * self._split(rates), kept)
            gates = ops.decay_gate(decays, form="sigmoid", scale=_LARGEST_DECAY)
            gates = kept_rows(self._split(gates), kept)
            result = ops.dplr_attention(
                queries, keys, values, -unit, writes, gates=gates, scale=1.0, **options
            )
        else:
            factors = self._map("gate", rows[4])
            keys = kept_rows(self._split(keys), kept)
            gates = ops.decay_gate(decays, form="exponential")
            gates = kept_rows(self._split(gates), kept)
            result = ops.decay_attention(
                queries, keys, values, gates=gates, bonus=self.bonus, scale=1.0, **options
            )
        out, new_state = (result, {}) if state is None else (result[0], {"S": result[1]})
        if state is not None:
            new_state["shift"] = last_row(x, state["shift"], lengths)
        return Branch(
            self._finish(out, queries, keys, values, factors), None, self.out_projection.weight
        ), new_state

    def _shared_values(self, x: torch.Tensor, passed: PassedRows | None) -> torch.Tensor:
        """The values, of which layers after the first take a share from its own."""
        values = self._map("value", x)
        if self._reads:
            assert passed is not None and passed.rows is not None
            share = torch.sigmoid(self._map("value_up", self._map("value_down", x)))
            return torch.lerp(values, passed.rows, share)
        if self.passes and passed is not None:
            passed.rows = values
        return values

    def _map(self, name: str, x: torch.Tensor) -> torch.Tensor:
        projection = getattr(self, f"{name}_projection")
        return ops.affine(x, projection.weight, projection.bias)

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        return split(x, self.heads)

    def _mixtures(self, x: torch.Tensor, step: torch.Tensor) -> list[torch.Tensor]:
        """Rows for queries, decays, keys, values, gates and, in RWKV-7, rates; step: the
        row before each, less the row."""
        row_mixes = torch.ops.tarn.row_mixes.default
        shifts = list(self.token_shift.unbind(0))
        if self.seven:
            return row_mixes(x, step, shifts)
        first = row_mixes(x, step, [self.shift_base])[0]
        down = torch.tanh(ops.affine(first, self.shift_down_projection.weight))
        ups = self.shift_up_projection.weight.chunk(len(shifts), 0)
        parts = zip(down.chunk(len(shifts), 2), ups, shifts, strict=True)
        return [  # a shift for each row too
            torch.addcmul(x, step, ops.affine(part.contiguous(), up) + shift)
            for part, up, shift in parts
        ]

    def _finish(
        self,
        out: torch.Tensor,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        factors: torch.Tensor,
    ) -> torch.Tensor:
        """Group norm, each head a group, and what follows it: [B, T, H K]."""
        normed = ops.gated_norm(
            out,
            self.norm.weight.view(self.heads, self.d_key),
            self.norm.bias.view(self.heads, self.d_key),
            None if self.seven else self._split(factors),
            eps=self.view["output_norm_eps"] or self.view["norm_eps"] * self.d_key,
            centred=True,
        )
        if not self.seven:
            return normed.flatten(2)
        rows = torch.ops.tarn.gate_correction.default(
            normed.flatten(2), queries, keys, self.bonus, values, factors
        )
        return rows.to(out.dtype)


for _name in ("rwkv6", "rwkv7"):
    register_mixer(_name, RwkvMixer, by_layer=True)
