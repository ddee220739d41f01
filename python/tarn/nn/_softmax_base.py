"""What softmax attention with its own keys and values and its latent variant share."""

from __future__ import annotations

from typing import Any

import torch

from tarn import _tables as tables
from tarn import ops
from tarn._configurations import layer_facts
from tarn._fused import Branch, whole
from tarn._rotary_rows import rotary_rows
from tarn.attention._steps.cached import cache_masks
from tarn.nn._gated_parts import kept_rows
from tarn.nn._mixer import Mixer, Tensors, View
from tarn.recurrent._inputs import append_rows


class SoftmaxBase(Mixer):
    """What both variants share: parameters by the spec, and a state of all earlier rows, to
    which a call appends its own."""

    out_projection: torch.nn.Linear
    sinks: torch.nn.Parameter | None

    def __init__(self, view: View):
        super().__init__(view)
        self.heads: int = view["n_heads"]
        self.causal: bool = view["arch"] != "encoder"
        self.sinks = None
        shapes = layer_facts(view).shapes
        for name, shape in shapes.items():
            owner, _, part = name.partition(".")
            if not part:
                setattr(self, owner, torch.nn.Parameter(torch.zeros(shape)))
            elif owner.endswith("_norm"):
                norm = torch.nn.Module()
                norm.register_parameter("weight", torch.nn.Parameter(torch.ones(shape)))
                setattr(self, owner, norm)
            elif part == "weight":
                linear = torch.nn.Linear(shape[1], shape[0], bias=f"{owner}.bias" in shapes)
                setattr(self, owner, linear)
        drops = (tables.mixer(self.kind) or {})["dropout"]
        self._dropout: float = view["attention_dropout"] if drops else 0.0

    def unbiased(self, x: torch.Tensor, key_mask: torch.Tensor | None = None) -> Branch:
        """Does what Mixer.unbiased does; out_projection is left to be applied."""
        kept = None
        if key_mask is not None:
            kept = key_mask.to(x.device).expand(x.shape[:2])
        rows = self._project(kept_rows(x, kept), torch.arange(x.shape[1], device="cpu"))
        return self._attend(rows, {"causal": self.causal, "key_mask": kept})

    def mix(
        self, x: torch.Tensor, kept: torch.Tensor, state: Tensors
    ) -> tuple[torch.Tensor, Tensors]:
        """Does what Mixer.mix does, where all kept tokens come before those that are not."""
        held = next(iter(state.values())).shape[1]
        steps = torch.full((x.shape[0],), held, device="cpu")
        branch, new_state = self._continue(x, kept.sum(1).cpu(), state, steps)
        return whole(branch), new_state

    def _continue(
        self, x: torch.Tensor, lengths: torch.Tensor | None, state: Tensors, steps: torch.Tensor
    ) -> tuple[Branch, Tensors]:
        batch, seq_len = x.shape[:2]
        new = torch.full((batch,), seq_len, device="cpu") if lengths is None else lengths
        rows = self._project(x, steps[:, None] + torch.arange(seq_len, device="cpu"))
        if batch > 0 and seq_len > 0:
            for name in state:
                rows[name] = append_rows(state[name], steps, rows[name], new)
        else:
            rows.update(state)
        cached = next(iter(state))
        branch = self._attend(rows, cache_masks(steps, new, seq_len, rows[cached]))
        # Padding after the longest sequence is not kept.
        held = int((steps + new).max()) if batch else 0
        return branch, {name: rows[name][:, :held] for name in state}

    def _project(self, x: torch.Tensor, places: torch.Tensor) -> dict[str, torch.Tensor]:
        """What a call attends with: rows [B, T, D] at places [T] or [B, T] as queries
        [B, T, H, K], the tensors of the state and, where there is one, the gate."""
        raise NotImplementedError

    def _attend(self, rows: dict[str, torch.Tensor], masks: dict[str, Any]) -> Branch:
        """Attends, and leaves out_projection to the caller."""
        raise NotImplementedError

    def _options(self, window: int = 0) -> dict[str, Any]:
        """Options of the operator that do not depend on the call."""
        view = self.view
        options: dict[str, Any] = {"softcap": view["softcap"], "sinks": self.sinks}
        if view["score_scale"]:
            options["softmax_temp"] = view["score_scale"]
        if window:
            options["window"] = window
        if self.training and self._dropout > 0:
            options.update(dropout=self._dropout, seed=ops.draw_seed())
        return options

    def _normed(self, x: torch.Tensor, norm: Any) -> torch.Tensor:
        eps = self.view["head_norm_eps"] or self.view["norm_eps"]
        return ops.gated_norm(x, norm.weight, eps=eps)

    def _tables(self, places: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines of the layer's frequencies, which are not scaled where it has
        another base than the model."""
        base = self.view["own_rotary_base"]
        if not base:
            return rotary_rows(self.view, places, width)
        cos, sin = torch.ops.tarn.rotary_rows(places, width, base)
        return cos, sin

    def _rotate(self, x: torch.Tensor, width: int, tables_: Any) -> torch.Tensor:
        """x [B, T, H, K] with its first channels rotated."""
        cos, sin = (table.to(x).unsqueeze(-2) for table in tables_)
        if width == x.shape[3]:
            return torch.ops.tarn.rotate(x, cos, sin)
        first, rest = x.split_with_sizes([width, x.shape[3] - width], 3)
        return torch.cat([torch.ops.tarn.rotate(first.contiguous(), cos, sin), rest], 3)
