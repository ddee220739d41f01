"""Griffin's recurrent block around the real-gated linear recurrent unit, RG-LRU (De et al.
2024, arXiv 2402.19427). mixers/lru/form.h on the C++ side has the equations."""

from __future__ import annotations

from typing import Any

import torch

from tarn import ops
from tarn._configurations import layer_facts
from tarn._fused import Branch
from tarn.nn._gated_parts import (
    add_weights,
    convolve,
    draw_filters,
    kept_rows,
    split,
    want_read,
)
from tarn.nn._mixer import Tensors, View, register_mixer
from tarn.nn._recurrent_mixer import RecurrentMixer

_RATE = 8.0  # the paper's c
# The decay of an open gate begins evenly in this range (section 2.4).
_DECAYS = (0.9, 0.999)


class RgLruMixer(RecurrentMixer):
    """The mixer "rg-lru".

    Args:
        view: a finished configuration as this layer sees it
            (`tarn.models.layer_view`): C = n_heads * d_value channels, whose gates have
            n_heads blocks [d_value, d_value].

    Parameters have the names and shapes of the weight file. State: h [B, C] and, after a
    convolution, window [B, W - 1, C], float32 (float64 under float64 weights).
    """

    Lambda: torch.nn.Parameter
    convolution: Any
    input_gate: Any
    recurrence_gate: Any
    value_projection: torch.nn.Linear
    gate_projection: torch.nn.Linear
    out_projection: torch.nn.Linear

    def __init__(self, view: View):
        super().__init__(view)
        add_weights(self, layer_facts(view).shapes)
        with torch.no_grad():
            for gate in (self.input_gate, self.recurrence_gate):
                bound = gate.weight.shape[2] ** -0.5
                gate.weight.uniform_(-bound, bound)
                gate.bias.zero_()
            decays = torch.empty_like(self.Lambda).uniform_(*_DECAYS)
            self.Lambda.copy_(torch.expm1(-decays.log() / _RATE).log())
        if hasattr(self, "convolution"):
            draw_filters(self.convolution)

    def extra_repr(self) -> str:
        heads, block, _ = self.input_gate.weight.shape
        return f"kind={self.kind!r}, channels={heads * block}, heads={heads}"

    def _run(
        self,
        x: torch.Tensor,
        kept: torch.Tensor | None,
        lengths: torch.Tensor | None,
        state: Tensors | None,
        steps: torch.Tensor | None,
    ) -> tuple[Branch, Tensors]:
        """Rows [B, T, D] after a state, None: from the first. kept [B, T] bool,
        lengths [B]: which count. steps [B]: tokens before these."""
        want_read(self)
        # Rows that are not kept are zeros before the product, so that the gradients of the
        # maps do not meet them.
        maps = [self.value_projection, self.gate_projection]
        weights, biases = [part.weight for part in maps], [part.bias for part in maps]
        packed = kept_rows(ops.layer_heads(kept_rows(x, kept), weights, biases), kept)
        values, z = packed.chunk(2, 2)
        new_state: Tensors = {}
        if hasattr(self, "convolution"):
            window = None if state is None else state["window"]
            values, window = convolve(self.convolution, values, lengths, window, "none")
            if window is not None:
                new_state["window"] = window
        result = ops.rg_lru(
            values,
            _gate(self.input_gate, values),
            _gate(self.recurrence_gate, values),
            self.Lambda,
            self.input_gate.bias,
            self.recurrence_gate.bias,
            begins=None if state is None else _first(x, steps),
            kept=kept,
            lengths=lengths,
            initial_state=None if state is None else state["h"],
            return_state=state is not None,
        )
        if isinstance(result, tuple):
            out, new_state["h"] = result
        else:
            out = result
        rows = out.to(z.dtype) * torch.nn.functional.gelu(z, approximate="tanh")
        return Branch(rows, self.out_projection.bias, self.out_projection.weight), new_state


def _gate(gate: Any, values: torch.Tensor) -> torch.Tensor:
    """weight values [B, T, C] with weight [H, V, V] of blocks."""
    weight = gate.weight.to(values.dtype)
    return torch.einsum("bthi,hoi->btho", split(values, weight.shape[0]), weight).flatten(2)


def _first(x: torch.Tensor, steps: torch.Tensor | None) -> torch.Tensor:
    """[B, T] bool: the first tokens of sequences that begin here."""
    row = torch.arange(x.shape[1], device=x.device) == 0
    if steps is None:
        return row.expand(x.shape[:2])
    return (steps.to(x.device) == 0)[:, None] & row


register_mixer("rg-lru", RgLruMixer)
