"""Softmax attention as published models have it: fewer heads of keys than of queries,
biases or none, norms of queries and keys, rotary positions on the first channels, a gate, a
window of the last tokens, a soft cap, sinks. mixers/softmax/form.h on the C++ side has the
equations."""

from __future__ import annotations

from typing import Any

import torch

from tarn import _tables as tables
from tarn import ops
from tarn._fused import Branch
from tarn.nn._gated_parts import left_to, products, split, want_read
from tarn.nn._latent import LatentMixer
from tarn.nn._mixer import Mixer, View, register_mixer
from tarn.nn._softmax_base import SoftmaxBase

_GATED = "gated-full"


class SoftmaxMixer(SoftmaxBase):
    """The mixers "full" and "local" with keys of their own beyond those of
    `tarn.nn.Attention`, and "gated-full".

    Args:
        view: a finished configuration as this layer sees it
            (`tarn.models.layer_view`).

    Parameters have the names and shapes of the weight file: query_projection,
    key_projection, value_projection, gate_projection where there is a gate, out_projection,
    with biases where the configuration says so, query_norm and key_norm where queries and
    keys are normalised, sinks. State: the keys and values of earlier tokens, [B, t,
    key_heads, K] and [B, t, key_heads, V], of which a window reads the last ones.
    """

    query_norm: Any
    key_norm: Any

    def __init__(self, view: View):
        super().__init__(view)
        self.key_heads: int = view["key_heads"] or self.heads
        first = ("query_projection", "key_projection", "value_projection", "gate_projection")
        self._first_maps = tuple(name for name in first if hasattr(self, name))
        self._widths = [getattr(self, name).out_features for name in self._first_maps]
        self._norm = view["head_norm"]
        if self.kind == _GATED:
            self._norm = "head" if view["query_key_norm"] else "none"
        self._rotated: int = 0
        if view["positions"] == "rotary" and view["rotate"]:
            self._rotated = view["rotary_width"] or view["d_key"]
        self._context = view["local_context"] if self.kind == "local" else 0
        self._window = self._context // 2 + 1 if self._context else view["window"]

    def extra_repr(self) -> str:
        return f"kind={self.kind!r}, heads={self.heads}, key_heads={self.key_heads}"

    def _project(self, x: torch.Tensor, places: torch.Tensor) -> dict[str, torch.Tensor]:
        want_read(self, (*self._first_maps, "out_projection"))
        maps = [getattr(self, name) for name in self._first_maps]
        parts = products(x, maps).split_with_sizes(self._widths, 2)
        counts = (self.heads, self.key_heads, self.key_heads, self.heads)
        names = ("queries", "keys", "values", "gate")
        found: dict[str, torch.Tensor] = dict(zip(names, parts, strict=False))
        if self._norm == "full":
            for name, norm in (("queries", self.query_norm), ("keys", self.key_norm)):
                found[name] = self._normed(found[name].unsqueeze(2), norm).squeeze(2)
        found = {
            name: split(part, count)
            for (name, part), count in zip(found.items(), counts, strict=False)
        }
        if self._norm == "head":
            for name, norm in (("queries", self.query_norm), ("keys", self.key_norm)):
                found[name] = self._normed(found[name], norm)
        if self._rotated:
            rows = self._tables(places, self._rotated)
            for name in ("queries", "keys"):
                found[name] = self._rotate(found[name], self._rotated, rows)
        return found

    def _attend(self, rows: dict[str, torch.Tensor], masks: dict[str, Any]) -> Branch:
        """The keys and values of a group are repeated for its heads."""
        group = self.heads // self.key_heads
        keys, values = rows["keys"], rows["values"]
        if group > 1:
            keys, values = (part.repeat_interleave(group, 2) for part in (keys, values))
        if self._context and not self.causal:
            out = ops.local_attention(
                rows["queries"], keys, values, local_context=self._context,
                **masks, **self._options(),
            )  # fmt: skip
        else:
            masks = self._windowed(masks)
            window = self._window if masks.get("causal") else 0
            out = ops.full_attention(
                rows["queries"], keys, values, **masks, **self._options(window)
            )
        if "gate" in rows:
            out = out * torch.sigmoid(rows["gate"])
        return left_to(self.out_projection, out.flatten(2))

    def _windowed(self, masks: dict[str, Any]) -> dict[str, Any]:
        """The masks of sequences of unequal lengths, under which the window is a mask too."""
        allowed = masks.get("attention_mask")
        if not self._window or allowed is None:
            return masks
        # The last allowed key of a row is the row's own place.
        last = allowed.sum(-1, keepdim=True) - 1
        places = torch.arange(allowed.shape[-1], device=allowed.device)
        return {**masks, "attention_mask": allowed & (places > last - self._window)}


GatedSoftmaxMixer = SoftmaxMixer


def has_form(view: View) -> bool:
    """Whether a layer of "full" or "local" is more than the attention of the builders: some
    key of its form is not at its default."""
    fields = tables.config_fields()
    given = any(
        view[name] != field["default"]
        for name, field in fields.items()
        if field["section"] == "softmax_form"
    )
    rotated = view["positions"] == "rotary" and view["rotary_width"] not in (0, view["d_key"])
    return given or rotated or view["key_heads"] not in (0, view["n_heads"])


def _make(view: View) -> Mixer:
    if view["attention"] == "full" and view["latent_width"] > 0:
        return LatentMixer(view)
    return SoftmaxMixer(view)


register_mixer("full", _make, when=has_form)
register_mixer("local", _make, when=has_form)
register_mixer(_GATED, _make)
