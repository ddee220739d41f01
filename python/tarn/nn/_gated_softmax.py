"""Softmax attention as today's hybrids have it between recurrent layers: fewer heads of
keys than of queries, norms of queries and keys, rotary positions on the first channels and
an output gate. mixers/softmax/form.h on the C++ side has the equations."""

from __future__ import annotations

from typing import Any

import torch

from tarn import ops
from tarn._configurations import layer_facts
from tarn._fused import Branch
from tarn.attention._steps.cached import cache_masks
from tarn.nn._gated_parts import kept_rows, split, want_read
from tarn.nn._mixer import Mixer, Tensors, View, register_mixer
from tarn.recurrent._inputs import append_rows

_KIND = "gated-full"


class GatedSoftmaxMixer(Mixer):
    """The mixer "gated-full".

    Args:
        view: a finished configuration as this layer sees it
            (`tarn.models.layer_view`).

    Parameters have the names and shapes of the weight file: query_projection,
    key_projection, value_projection, gate_projection where output_gate, out_projection (no
    biases), query_norm and key_norm where query_key_norm. State: the keys and values of
    earlier tokens, [B, t, key_heads, K] and [B, t, key_heads, V].
    """

    query_norm: Any
    key_norm: Any
    out_projection: torch.nn.Linear

    def __init__(self, view: View):
        super().__init__(view)
        self.heads: int = view["n_heads"]
        self.key_heads: int = view["key_heads"] or self.heads
        for name, shape in layer_facts(view).shapes.items():
            owner = name.removesuffix(".weight")
            if owner.endswith("_projection"):
                setattr(self, owner, torch.nn.Linear(shape[1], shape[0], bias=False))
            else:
                norm = torch.nn.Module()
                norm.register_parameter("weight", torch.nn.Parameter(torch.ones(shape)))
                setattr(self, owner, norm)
        first = ("query_projection", "key_projection", "value_projection", "gate_projection")
        self._first_maps = tuple(name for name in first if hasattr(self, name))
        self._widths = [getattr(self, name).out_features for name in self._first_maps]
        self._turned: int = 0
        if view["positions"] == "rotary":
            self._turned = view["rotary_width"] or view["d_key"]

    def unbiased(self, x: torch.Tensor, key_mask: torch.Tensor | None = None) -> Branch:
        """Does what Mixer.unbiased does; out_projection is left to be applied."""
        kept = None
        if key_mask is not None:
            kept = key_mask.to(x.device).expand(x.shape[:2])
        heads = self._project(kept_rows(x, kept), torch.arange(x.shape[1], device="cpu"))
        return self._attend(heads, {"causal": True, "key_mask": kept})

    def mix(
        self, x: torch.Tensor, kept: torch.Tensor, state: Tensors
    ) -> tuple[torch.Tensor, Tensors]:
        """Does what Mixer.mix does, where all kept tokens come before those that are not."""
        steps = torch.full((x.shape[0],), state["keys"].shape[1], device="cpu")
        branch, new_state = self._continue(x, kept.sum(1).cpu(), state, steps)
        assert branch.weight is not None
        return ops.affine(branch.rows, branch.weight), new_state

    def extra_repr(self) -> str:
        return f"kind={self.kind!r}, heads={self.heads}, key_heads={self.key_heads}"

    def _continue(
        self, x: torch.Tensor, lengths: torch.Tensor | None, state: Tensors, steps: torch.Tensor
    ) -> tuple[Branch, Tensors]:
        batch, seq_len = x.shape[:2]
        new = torch.full((batch,), seq_len, device="cpu") if lengths is None else lengths
        heads = self._project(x, steps[:, None] + torch.arange(seq_len, device="cpu"))
        if batch > 0 and seq_len > 0:
            for name in ("keys", "values"):
                heads[name] = append_rows(state[name], steps, heads[name], new)
        else:
            heads.update(state)
        branch = self._attend(heads, cache_masks(steps, new, seq_len, heads["keys"]))
        # Padding after the longest sequence is not kept.
        held = int((steps + new).max()) if batch else 0
        return branch, {name: heads[name][:, :held] for name in ("keys", "values")}

    def _project(self, x: torch.Tensor, places: torch.Tensor) -> dict[str, torch.Tensor]:
        """Heads of rows [B, T, D] at places [T] or [B, T]: queries [B, T, H, K], keys
        [B, T, key_heads, K], values [B, T, key_heads, V] and, where there is one, the gate
        [B, T, H, V]. One product for all of them."""
        want_read(self)
        weights = [getattr(self, name).weight for name in self._first_maps]
        parts = ops.layer_heads(x, weights).split_with_sizes(self._widths, 2)
        counts = (self.heads, self.key_heads, self.key_heads, self.heads)
        names = ("queries", "keys", "values", "gate")
        found = {
            name: split(part, count)
            for name, part, count in zip(names, parts, counts, strict=False)
        }
        if self.view["query_key_norm"]:
            eps = self.view["norm_eps"]
            for name, norm in (("queries", self.query_norm), ("keys", self.key_norm)):
                found[name] = ops.gated_norm(found[name], norm.weight, eps=eps)
        if self._turned:
            tables = torch.ops.tarn.rotary_rows(places, self._turned, self.view["rotary_base"])
            for name in ("queries", "keys"):
                found[name] = self._rotate(found[name], tables)
        return found

    def _rotate(self, x: torch.Tensor, tables: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        cos, sin = (table.to(x).unsqueeze(-2) for table in tables)
        first, rest = x.split_with_sizes([self._turned, x.shape[3] - self._turned], 3)
        turned = torch.ops.tarn.rotate(first.contiguous(), cos, sin)
        return torch.cat([turned, rest], 3) if rest.shape[3] else turned

    def _attend(self, heads: dict[str, torch.Tensor], masks: dict[str, Any]) -> Branch:
        """Attends, applies the gate, and leaves out_projection to the caller. The keys and
        values of a group are repeated for its heads."""
        group = self.heads // self.key_heads
        keys, values = heads["keys"], heads["values"]
        if group > 1:
            keys, values = (part.repeat_interleave(group, 2) for part in (keys, values))
        out = ops.full_attention(heads["queries"], keys, values, **masks)
        if "gate" in heads:
            out = out * torch.sigmoid(heads["gate"])
        return Branch(out.flatten(2), None, self.out_projection.weight)


def gated_softmax(kind: str) -> bool:
    """Whether a kind is this mixer."""
    return kind == _KIND


register_mixer(_KIND, GatedSoftmaxMixer)
