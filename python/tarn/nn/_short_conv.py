"""The gated short convolution of LFM2 (Liquid AI 2025, arXiv 2511.23404): products of gates
around a filter over the last few tokens. mixers/short_conv/form.h on the C++ side has the
equations."""

from __future__ import annotations

from typing import Any

import torch

from tarn import ops
from tarn._configurations import layer_facts
from tarn._fused import Branch
from tarn.nn._gated_parts import add_weights, convolve, draw_filters, kept_rows, want_read
from tarn.nn._mixer import Tensors, View, register_mixer
from tarn.nn._recurrent_mixer import RecurrentMixer


class ShortConvMixer(RecurrentMixer):
    """The mixer "short-conv".

    Args:
        view: a finished configuration as this layer sees it
            (`tarn.models.layer_view`): C = n_heads * d_value channels; heads do not
            matter.

    Parameters have the names and shapes of the weight file. State: window [B, W - 1, C],
    float32 (float64 under float64 weights).
    """

    convolution: Any
    query_projection: torch.nn.Linear
    key_projection: torch.nn.Linear
    value_projection: torch.nn.Linear
    out_projection: torch.nn.Linear

    def __init__(self, view: View):
        super().__init__(view)
        add_weights(self, layer_facts(view).shapes)
        draw_filters(self.convolution)

    def extra_repr(self) -> str:
        channels, width = self.convolution.weight.shape
        return f"kind={self.kind!r}, channels={channels}, width={width}"

    def _run(
        self,
        x: torch.Tensor,
        kept: torch.Tensor | None,
        lengths: torch.Tensor | None,
        state: Tensors | None,
        steps: torch.Tensor | None,
    ) -> tuple[Branch, Tensors]:
        """Rows [B, T, D] after a state, None: from the first. kept [B, T] bool,
        lengths [B]: which count."""
        want_read(self)
        maps = [self.query_projection, self.key_projection, self.value_projection]
        weights = [part.weight for part in maps]
        biases = [part.bias for part in maps if part.bias is not None]
        packed = kept_rows(ops.layer_heads(kept_rows(x, kept), weights, biases), kept)
        queries, keys, values = packed.chunk(3, 2)
        window = None if state is None else state["window"]
        made, window = convolve(self.convolution, keys * values, lengths, window, "none")
        new_state = {} if window is None else {"window": window}
        out = self.out_projection
        return Branch(queries * made, out.bias, out.weight), new_state


register_mixer("short-conv", ShortConvMixer)
