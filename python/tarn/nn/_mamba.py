"""Mamba-1 (Gu and Dao 2023, arXiv 2312.00752): a selective scan between a short
convolution and an output gate. mixers/mamba/form.h on the C++ side has the equations."""

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
    draw_step_bias,
    kept_rows,
    left_to,
    products,
    want_read,
    wide,
)
from tarn.nn._mixer import Tensors, View, register_mixer
from tarn.nn._recurrent_mixer import RecurrentMixer


class MambaMixer(RecurrentMixer):
    """The mixer "mamba1".

    Args:
        view: a finished configuration as this layer sees it
            (`tarn.models.layer_view`): C = n_heads * d_value channels with N = d_key
            states each; heads do not matter.

    Parameters have the names and shapes of the weight file. State: S [B, C, N] and, after a
    convolution, window [B, W - 1, C], float32 (float64 under float64 weights).
    """

    A_log: torch.nn.Parameter
    D: torch.nn.Parameter
    dt_bias: torch.nn.Parameter
    convolution: Any
    decay_down_norm: Any
    key_norm: Any
    query_norm: Any
    value_projection: torch.nn.Linear
    gate_projection: torch.nn.Linear
    decay_down_projection: torch.nn.Linear
    key_projection: torch.nn.Linear
    query_projection: torch.nn.Linear
    decay_up_projection: torch.nn.Linear
    out_projection: torch.nn.Linear

    def __init__(self, view: View):
        super().__init__(view)
        add_weights(self, layer_facts(view).shapes)
        draw_step_bias(self.dt_bias)
        with torch.no_grad():  # A = -1, ..., -N for every channel, section 3.6
            self.A_log.copy_(torch.arange(1, self.A_log.shape[1] + 1).log())
        if hasattr(self, "convolution"):
            draw_filters(self.convolution)

    def extra_repr(self) -> str:
        channels, states = self.A_log.shape
        return f"kind={self.kind!r}, channels={channels}, states={states}"

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
        want_read(self, ("value_projection", "gate_projection", "out_projection"))
        # Rows that are not kept are zeros before the product, so that the gradients of the
        # maps do not meet them.
        maps = [self.value_projection, self.gate_projection]
        packed = kept_rows(products(kept_rows(x, kept), maps), kept)
        values, gate = packed.chunk(2, 2)
        new_state: Tensors = {}
        if hasattr(self, "convolution"):
            window = None if state is None else state["window"]
            values, window = convolve(self.convolution, values, lengths, window)
            if window is not None:
                new_state["window"] = window
        else:
            values = torch.nn.functional.silu(values)
        steps, keys, queries = self._select(values)
        result = ops.selective_scan(
            values,
            kept_rows(steps, kept),  # a step of 0 leaves the state as it is
            -wide(self.A_log).exp(),
            keys,
            queries,
            skip=self.D,
            lengths=lengths,
            initial_state=None if state is None else state["S"],
            return_state=state is not None,
        )
        if isinstance(result, tuple):
            out, new_state["S"] = result
        else:
            out = result
        rows = out * torch.nn.functional.silu(gate)
        return left_to(self.out_projection, rows), new_state

    def _select(self, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """What a token chooses: steps [B, T, C], keys and queries [B, T, N]."""
        maps = [self.decay_down_projection, self.key_projection, self.query_projection]
        widths = [part.weight.shape[0] for part in maps]
        made = ops.affine(values, torch.cat([part.weight for part in maps]))
        steps, keys, queries = made.split_with_sizes(widths, 2)
        if hasattr(self, "key_norm"):
            eps = self.view["selection_norm_eps"] or self.view["norm_eps"]

            def normed(x: torch.Tensor, norm: Any) -> torch.Tensor:
                return ops.gated_norm(x.unsqueeze(2), norm.weight, eps=eps).squeeze(2)

            steps = normed(steps, self.decay_down_norm)
            keys, queries = normed(keys, self.key_norm), normed(queries, self.query_norm)
        steps = wide(ops.affine(steps, self.decay_up_projection.weight)) + self.dt_bias
        return torch.nn.functional.softplus(steps), keys, queries


register_mixer("mamba1", MambaMixer)
