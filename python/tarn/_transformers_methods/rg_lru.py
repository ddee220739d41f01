"""RecurrentGemma's RG-LRU (De et al. 2024, arXiv 2402.19427), whose recurrence its file
computes by a loop over the tokens."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tarn import ops

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# The gradient of the root ends at 1000, which is part of how the model is trained.
_MOST_SLOPE = 1000.0


def _gate(rows: Tensor, weight: Tensor, bias: Tensor, like: Tensor) -> Tensor:
    """The rows [H, B T, C / H] by their blocks, [B, T, C]."""
    made = torch.baddbmm(bias[:, None, :], rows, weight)
    return made.transpose(0, 1).reshape(like.shape).to(like.dtype)


def forward(theirs: Any, self: Any, activations: Tensor, position_ids: Tensor) -> Tensor:
    """x [B, T, C]; position_ids [B or 1, T], 0 where a sequence begins: there the state is
    forgotten. The state h [B, C], float32, is the layer's own attribute."""
    if activations.dtype not in _DTYPES or activations.shape[1] == 0:
        return theirs(self, activations, position_ids)
    batch, seq_len, _ = activations.shape
    rows = activations.reshape(batch * seq_len, self.num_attention_heads, self.block_width)
    rows = rows.permute(1, 0, 2)
    write = _gate(rows, self.input_gate_weight, self.input_gate_bias, activations)
    decay = _gate(rows, self.recurrent_gate_weight, self.recurrent_gate_bias, activations)
    with torch.autocast("cpu", enabled=False):  # it would round the inputs
        out, self.recurrent_states = ops.rg_lru(
            activations,
            write,
            decay,
            self.recurrent_param,
            begins=(position_ids == 0).expand(batch, seq_len),
            initial_state=self.recurrent_states,
            most_slope=_MOST_SLOPE,
            return_state=True,
        )
    return out
