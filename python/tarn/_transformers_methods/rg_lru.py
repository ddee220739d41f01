"""RecurrentGemma's RG-LRU (De et al. 2024, arXiv 2402.19427), whose recurrence its file
computes by a loop over the tokens."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

from tarn import ops

_RATE = -8.0  # the paper's -c
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def _gate(rows: Tensor, weight: Tensor, bias: Tensor, like: Tensor) -> Tensor:
    """sigma of the rows [H, B T, C / H] by their blocks, [B, T, C]."""
    made = torch.baddbmm(bias[:, None, :], rows, weight)
    return torch.sigmoid(made.transpose(0, 1).reshape(like.shape))


def forward(theirs: Any, self: Any, activations: Tensor, position_ids: Tensor) -> Tensor:
    """x [B, T, C]; position_ids [B or 1, T], 0 where a sequence begins: there the state is
    forgotten. The state h [B, C], float32, is the layer's own attribute."""
    if activations.dtype not in _DTYPES or activations.shape[1] == 0:
        return theirs(self, activations, position_ids)
    batch, seq_len, channels = activations.shape
    rows = activations.reshape(batch * seq_len, self.num_attention_heads, self.block_width)
    rows = rows.permute(1, 0, 2)
    write = _gate(rows, self.input_gate_weight, self.input_gate_bias, activations)
    decay = _gate(rows, self.recurrent_gate_weight, self.recurrent_gate_bias, activations)
    gates = _RATE * decay * torch.nn.functional.softplus(self.recurrent_param)
    # The gradient of their root ends at 1000, which is part of how the model is trained.
    root = sys.modules[type(self).__module__].SqrtBoundDerivative.apply(1 - torch.exp(2 * gates))
    first = (position_ids == 0)[:, :, None]
    inputs = activations * write
    inputs = inputs * torch.where(first, 1.0, root).to(inputs.dtype)
    with torch.autocast("cpu", enabled=False):  # it would round the inputs
        out, self.recurrent_states = ops.elementwise_recurrence(
            inputs,
            gates.masked_fill(first, -torch.inf),
            initial_state=self.recurrent_states,
            return_state=True,
        )
    return out
