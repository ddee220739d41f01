"""Multi-head latent attention (DeepSeek-AI 2024, arXiv 2405.04434): keys and values of all
heads are made from one row of each token, which is all that the state keeps.
mixers/softmax/form.h on the C++ side has the equations."""

from __future__ import annotations

from typing import Any

import torch

from tarn import ops
from tarn._fused import Branch
from tarn.nn._gated_parts import split, want_read
from tarn.nn._mixer import View
from tarn.nn._softmax_base import SoftmaxBase


class LatentMixer(SoftmaxBase):
    """The mixer "full" with latent_width.

    Args:
        view: a finished configuration as this layer sees it
            (`tarn.models.layer_view`).

    Parameters have the names and shapes of the weight file: query_projection, or
    query_down_projection, query_down_norm and query_projection with query_latent_width;
    latent_projection, latent_norm, key_projection, value_projection, out_projection, sinks.
    State: latent [B, t, 1, R + S], the row of each earlier token and the part of its key that
    all heads share.
    """

    query_projection: torch.nn.Linear
    query_down_projection: torch.nn.Linear
    query_down_norm: Any
    latent_projection: torch.nn.Linear
    latent_norm: Any
    key_projection: torch.nn.Linear
    value_projection: torch.nn.Linear

    def __init__(self, view: View):
        super().__init__(view)
        self.latent: int = view["latent_width"]
        self.shared: int = view["shared_key_width"]
        self._down = view["query_latent_width"] > 0
        self._rotary = view["positions"] == "rotary" and view["rotate"]

    def extra_repr(self) -> str:
        return f"kind={self.kind!r}, heads={self.heads}, latent={self.latent}"

    def _project(self, x: torch.Tensor, places: torch.Tensor) -> dict[str, torch.Tensor]:
        want_read(self)
        first = self.query_down_projection if self._down else self.query_projection
        both = ops.layer_heads(x, [first.weight, self.latent_projection.weight])
        queries, row, shared = both.split_with_sizes(
            [first.out_features, self.latent, self.shared], 2
        )
        if self._down:
            queries = self._normed(queries.unsqueeze(2), self.query_down_norm).squeeze(2)
            queries = ops.affine(queries, self.query_projection.weight)
        queries = split(queries, self.heads)
        row, shared = self._normed(row.unsqueeze(2), self.latent_norm), shared.unsqueeze(2)
        if self._rotary:
            rows = self._tables(places, self.shared)
            own, last = queries.split_with_sizes([queries.shape[3] - self.shared, self.shared], 3)
            last = self._rotate(last.contiguous(), self.shared, rows)
            queries = torch.cat([own, last], 3)
            shared = self._rotate(shared.contiguous(), self.shared, rows)
        return {"queries": queries, "latent": torch.cat([row, shared], 3)}

    def _attend(self, rows: dict[str, torch.Tensor], masks: dict[str, Any]) -> Branch:
        row, shared = rows["latent"].split_with_sizes([self.latent, self.shared], 3)
        weights = [self.key_projection.weight, self.value_projection.weight]
        made = ops.layer_heads(row.squeeze(2).contiguous(), weights)
        widths = [weight.shape[0] for weight in weights]
        keys, values = (split(part, self.heads) for part in made.split_with_sizes(widths, 2))
        if self.shared:
            keys = torch.cat([keys, shared.expand(-1, -1, self.heads, -1)], 3)
        out = ops.full_attention(rows["queries"], keys, values, **masks, **self._options())
        return Branch(out.flatten(2), self.out_projection.bias, self.out_projection.weight)
