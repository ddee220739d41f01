"""Mixers with a decaying state, from the table that the C++ side builds its own from
(mixers/gated/form.h): RetNet, Lightning, Mamba-2, GLA, HGRN2, DeltaNet, Gated DeltaNet,
KDA and normed linear attention differ in which parts they have, not in how a part works."""

from __future__ import annotations

from typing import Any

import torch

from tarn import _tables as tables
from tarn import ops
from tarn._fused import Branch
from tarn._passed_rows import PassedRows, want_passed
from tarn._rotary_rows import rotary_rows
from tarn.nn._gated_parts import (
    convolve,
    head_features,
    kept_rows,
    left_to,
    products,
    split,
    want_read,
    wide,
)
from tarn.nn._gated_weights import GatedWeights
from tarn.nn._mixer import Tensors, register_mixer


class GatedMixer(GatedWeights):
    """A mixer whose row of the table of mixers has a form.

    Args:
        view: a finished configuration as this layer sees it
            (`tarn.models.layer_view`).
        layer: its number among the view's n_layers, from which the fixed decays of
            "lightning" and the bounds of "hgrn2" follow.

    Parameters have the names and shapes of the weight file: query_projection,
    key_projection, value_projection, out_projection (no biases), norm, and those that
    the form has besides. What is fixed (log_decay, lower_bound) are buffers. Matrices
    begin as torch.nn.Linear's, filters as torch.nn.Conv1d's. State: S [B, H, C, V], C the
    features of a key (K without a map; V + 1 columns where sums are divided), and, after a convolution, window [B, W - 1, C], float32 (float64 under float64 weights).
    """

    def extra_repr(self) -> str:
        return f"kind={self.kind!r}, heads={self.heads}, key_heads={self.key_heads}"

    def _places(self, x: torch.Tensor, steps: torch.Tensor | None) -> torch.Tensor | None:
        """Positions of T tokens after `steps` [B] others; None where rows are not rotated."""
        if not self.form["rotary"] or self.view["positions"] != "rotary":
            return None
        places = torch.arange(x.shape[1], device="cpu")
        return places if steps is None else steps[:, None] + places

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
        lengths [B]: which count. passed: the bounds of all layers, which the first makes."""
        want_read(self, (*self._first_maps, "out_projection"))
        bounds = self._bounds(passed)
        mixed, gate, decay, betas = self._project(x, kept)
        mixed, window = self._convolve(mixed, lengths, state)
        gates, second = self._gates(decay, bounds)
        heads = self._heads(mixed, second, self._places(x, steps))
        keys, skipped = kept_rows(heads["keys"], kept), heads["values"]
        if self.form["skip"]:
            heads["values"] = ops.head_scale(skipped, second)
        if self.divided:  # the sum of a 1 is that of the keys
            heads["values"] = torch.nn.functional.pad(skipped, (0, 1), value=1.0)
        if kept is not None and self.form["gate"] == "constant":
            gates = gates.expand(*kept.shape, self.heads)
        options: dict[str, Any] = {
            "gates": kept_rows(gates, kept),
            "lengths": lengths,
            "initial_state": None if state is None else state["S"],
            "scale": self.scale,
            "return_state": True,
        }
        if state is None:
            options["return_state"] = False
        operands = [heads["queries"], keys, heads["values"]]
        if self.form["delta"]:
            betas = torch.sigmoid(wide(betas))
            operands.append(2 * betas if self.view["negative_eigenvalues"] else betas)
            result = ops.delta_attention(*operands, **options)
        else:
            result = ops.decay_attention(*operands, **options)
        out, new_state = (result, {}) if state is None else (result[0], {"S": result[1]})
        if window is not None and state is not None:
            new_state["window"] = window
        if self.form["skip"]:
            out = ops.head_scale(skipped, self.D, out)
        if self.divided:
            out = out[..., :-1] / (out[..., -1:] + self.form["divisor_eps"])
        rows = self._norm_output(out, gate)
        return left_to(self.out_projection, rows), new_state

    def _project(self, x: torch.Tensor, kept: torch.Tensor | None) -> list[Any]:
        """Queries, keys and values side by side; the output gate, the decays and the
        betas, None where the form has none. One product for all of them. Rows that are
        not kept are zeros in front of it, so that gradients of the maps do not meet
        them, and after it."""
        maps = [getattr(self, name) for name in self._first_maps]
        packed = kept_rows(products(kept_rows(x, kept), maps), kept)
        found = iter(packed.split_with_sizes(self._widths, 2))
        mixed = next(found)
        gate: Any = None
        decay: Any = None
        betas: Any = None
        if self.form["output_gate"] != "none":
            gate = next(found)
        if self.form["gate"] not in ("none", "constant"):
            decay = next(found)
        if self.form["delta"]:
            betas = next(found)
        if self.form["low_rank_output_gate"]:
            up = self.gate_up_projection
            gate = ops.affine(gate, up.weight, up.bias)
        if self.form["gate"] in ("channel", "log-sigmoid"):
            up = self.decay_up_projection
            decay = ops.affine(decay, up.weight, up.bias)
        return [mixed, gate, decay, betas]

    def _convolve(
        self, mixed: torch.Tensor, lengths: torch.Tensor | None, state: Tensors | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        if not self.form["convolution"]:
            return mixed, None
        if not hasattr(self, "convolution"):  # of width 0: silu alone
            return torch.nn.functional.silu(mixed), None
        window = None if state is None else state["window"]
        return convolve(self.convolution, mixed, lengths, window)

    def _heads(
        self, mixed: torch.Tensor, bounded_keys: Any, places: torch.Tensor | None
    ) -> dict[str, Any]:
        """Queries, keys [B, T, key_heads, K] and values [B, T, H, V] as the recurrence
        reads them, but for the steps of values."""
        keys, values = self.key_heads * self.d_key, self.heads * self.d_value
        if self.form["unit"]:  # queries and keys at once
            both, last = mixed.split_with_sizes([2 * keys, values], 2)
            found = ops.unit_norm(split(both, 2 * self.key_heads), eps=self.form["unit_eps"])
            queries, made = found.chunk(2, 2)
        else:
            parts = mixed.split_with_sizes(self._parts, 2)
            queries, last = split(parts[0], self.key_heads), parts[-1]
            made = bounded_keys if len(parts) == 2 else split(parts[1], self.key_heads)
        last = split(last, self.heads)
        if not self.form["convolution"]:
            silu = torch.nn.functional.silu
            if self.form["silu_queries"]:
                queries = silu(queries)
            if self.form["silu_keys_values"]:
                made, last = silu(made), silu(last)
        if places is not None:
            cos, sin = rotary_rows(self.view, places, self.d_key)
            tables_ = cos.to(queries).unsqueeze(-2), sin.to(queries).unsqueeze(-2)
            queries = torch.ops.tarn.rotate(queries, *tables_)
            made = torch.ops.tarn.rotate(made, *tables_)
        if self.form["mapped"]:
            queries, made = self._features("query", queries), self._features("key", made)
        return {"queries": queries, "keys": made, "values": last}

    def _features(self, side: str, x: torch.Tensor) -> torch.Tensor:
        names = (f"{side}_map_projection", f"{side}_factor_projection")
        maps = [getattr(self, name) for name in names if hasattr(self, name)]
        unit = self.view["unit_queries" if side == "query" else "unit_keys"]
        return head_features(x, self.form, self.view["qk_map"], maps, unit)

    def _bounds(self, passed: PassedRows | None) -> torch.Tensor | None:
        """The lower bounds of the decay factors, [H K]; None where the form has none."""
        if not self.learns_bounds:
            return getattr(self, "lower_bound", None)
        if hasattr(self, "bound_logits"):
            table = ops.depth_bounds(self.bound_logits)
            if passed is not None:
                passed.table = table
        else:
            given = None if passed is None else passed.table
            wanted = (self._depth, self.heads * self.d_key)
            table = want_passed(self.kind, given, wanted)
        return table[self._layer]

    def _gates(self, decay: Any, bounds: Any) -> tuple[Any, Any]:
        """Logarithms of the decay, [H], [B, T, H] or [B, T, H, K], None without one; and the
        steps [B, T, H] of a form with a skip, the keys [B, T, H, K] of a bounded gate."""
        gate = self.form["gate"]
        if gate == "channel":
            return split(ops.decay_gate(decay, self.A_log, self.dt_bias), self.heads), None
        if gate == "head" and self.form["skip"]:
            least, most = self.steps
            return ops.decay_gate(
                decay, self.A_log, self.dt_bias, least=least, most=most, return_second=True
            )
        if gate == "head":
            return ops.decay_gate(decay, self.A_log, self.dt_bias), None
        if gate == "log-sigmoid":
            scale = 1 / self.form["log_sigmoid_divisor"]
            gates = ops.decay_gate(decay, form="log_sigmoid", scale=scale)
            return split(gates, self.heads), None
        if gate == "bounded":
            gates, second = ops.decay_gate(decay, None, bounds, form="bounded", return_second=True)
            return split(gates, self.heads), split(second, self.key_heads)
        return (wide(self.log_decay) if gate == "constant" else None), None

    def _norm_output(self, heads: torch.Tensor, gate: torch.Tensor | None) -> torch.Tensor:
        """The output norm and its gate, [B, T, H, V] -> [B, T, H V]."""
        if not hasattr(self, "norm"):
            assert gate is not None  # mamba2 alone may lack a norm, and has a gate
            return heads.flatten(2) * torch.nn.functional.silu(gate)
        groups = {"head": self.heads, "all": 1, "group": self.key_heads}[self.form["span"]]
        weight = self.norm.weight
        return ops.gated_norm(
            split(heads.flatten(2), groups),
            weight if self.form["span"] == "head" else weight.view(groups, -1),
            gate=None if gate is None else split(gate, groups),
            eps=self.view["output_norm_eps"] or self.view["norm_eps"],
            activation="sigmoid" if self.form["output_gate"] == "sigmoid" else "silu",
            gate_first=self.form["gate_first"],
        ).flatten(2)


for _name, _row in tables.mixers().items():
    if _row["family"] == "gated":
        register_mixer(_name, GatedMixer, by_layer=True)
