"""The mLSTM of xLSTM (Beck et al. 2024, arXiv 2405.04517) in the form of xLSTM-7B: a matrix
state with exponential input gates. mixers/mlstm/form.h on the C++ side has the equations."""

from __future__ import annotations

from typing import Any

import torch

from tarn import ops
from tarn._configurations import layer_facts
from tarn._fused import Branch
from tarn.nn._gated_parts import add_weights, kept_rows, split, want_read
from tarn.nn._mixer import Tensors, View, register_mixer
from tarn.nn._recurrent_mixer import RecurrentMixer

# The first values of the biases of the gates, in xLSTM-7B.
_INPUT_BIAS, _FORGET_BIASES = -10.0, (3.0, 6.0)


class MlstmMixer(RecurrentMixer):
    """The mixer "mlstm".

    Args:
        view: a finished configuration as this layer sees it
            (`tarn.models.layer_view`).

    Parameters have the names and shapes of the weight file. State: S [B, H, K, V + 1], the
    matrix with its normaliser as the last column, and m [B, H], float32 (float64 under
    float64 weights).
    """

    norm: Any
    query_projection: torch.nn.Linear
    key_projection: torch.nn.Linear
    value_projection: torch.nn.Linear
    gate_projection: torch.nn.Linear
    input_projection: torch.nn.Linear
    forget_projection: torch.nn.Linear
    out_projection: torch.nn.Linear

    def __init__(self, view: View):
        super().__init__(view)
        add_weights(self, layer_facts(view).shapes)
        with torch.no_grad():
            self.input_projection.bias.fill_(_INPUT_BIAS)
            biases = torch.linspace(*_FORGET_BIASES, view["n_heads"])
            self.forget_projection.bias.copy_(biases)

    def extra_repr(self) -> str:
        heads, d_key, d_value = (self.view[key] for key in ("n_heads", "d_key", "d_value"))
        return f"kind={self.kind!r}, heads={heads}, d_key={d_key}, d_value={d_value}"

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
        if lengths is not None:
            kept = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        heads, d_key, d_value = (self.view[key] for key in ("n_heads", "d_key", "d_value"))
        gates = [self.gate_projection, self.input_projection, self.forget_projection]
        weights = [
            self.query_projection.weight,
            self.key_projection.weight,
            self.value_projection.weight,
            torch.cat([part.weight for part in gates]),
        ]
        # Rows that are not kept are zeros before the product, so that the gradients of the
        # maps do not meet them.
        packed = kept_rows(ops.layer_heads(kept_rows(x, kept), weights), kept)
        keys_width, values_width = heads * d_key, heads * d_value
        widths = [keys_width, keys_width, values_width, values_width, heads, heads]
        queries, keys, values, z, inputs, forgets = packed.split_with_sizes(widths, 2)
        before = None if state is None else (state["S"], state["m"])
        made = ops.mlstm(
            split(queries, heads),
            split(keys, heads),
            split(values, heads),
            inputs,
            forgets,
            self.input_projection.bias,
            self.forget_projection.bias,
            softcap=self.view["gate_softcap"],
            kept=kept,
            initial_state=before,
            return_state=before is not None,
        )
        new_state: Tensors = {}
        if isinstance(made, tuple):
            made, (new_state["S"], new_state["m"]) = made
        rows = ops.gated_norm(
            made.to(z.dtype),
            self.norm.weight.view(heads, d_value),
            gate=split(z, heads),
            eps=self.view["norm_eps"],
            centred=True,
            activation="sigmoid",
        )
        return Branch(rows.flatten(2), None, self.out_projection.weight), new_state


register_mixer("mlstm", MlstmMixer)
