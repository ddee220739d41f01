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


def _blocks(self: Any, activations: Tensor, weight: Tensor) -> Tensor:
    """The products of the channels' blocks with weight [H, C / H, C / H], [B, T, C]."""
    rows = activations.reshape(-1, self.num_attention_heads, self.block_width).permute(1, 0, 2)
    return torch.bmm(rows, weight).transpose(0, 1).reshape(activations.shape)


def _with_gradient(
    self: Any, x: Tensor, input_gates: Tensor, recurrence_gates: Tensor, first: Tensor
) -> tuple[Tensor, Tensor]:
    """`tarn.ops.rg_lru`, but for the slope of the root, which ends at 1000: part of how the
    model is trained."""
    root = sys.modules[type(self).__module__].SqrtBoundDerivative
    decay = torch.sigmoid(recurrence_gates + self.recurrent_gate_bias.flatten())
    gates = _RATE * decay * torch.nn.functional.softplus(self.recurrent_param)
    factor = torch.where(first[..., None], 1.0, root.apply(1 - torch.exp(2 * gates)))
    inputs = x * torch.sigmoid(input_gates + self.input_gate_bias.flatten())
    return ops.elementwise_recurrence(
        inputs * factor.to(x.dtype),
        gates.masked_fill(first[..., None], -torch.inf),
        initial_state=self.recurrent_states,
        return_state=True,
    )


def forward(theirs: Any, self: Any, activations: Tensor, position_ids: Tensor) -> Tensor:
    """x [B, T, C]; position_ids [B or 1, T], 0 where a sequence begins: there the state is
    forgotten. The state h [B, C], float32, is the layer's own attribute."""
    if activations.dtype not in _DTYPES or activations.shape[1] == 0:
        return theirs(self, activations, position_ids)
    input_gates = _blocks(self, activations, self.input_gate_weight)
    recurrence_gates = _blocks(self, activations, self.recurrent_gate_weight)
    first = (position_ids == 0).expand(activations.shape[:2])
    with torch.autocast("cpu", enabled=False):  # it would round the recurrence's inputs
        if torch.is_grad_enabled() or input_gates.dtype != activations.dtype:
            out, state = _with_gradient(self, activations, input_gates, recurrence_gates, first)
        else:
            out, state = ops.rg_lru(
                activations,
                input_gates,
                recurrence_gates,
                self.recurrent_param,
                self.input_gate_bias.flatten(),
                self.recurrent_gate_bias.flatten(),
                begins=first.contiguous(),
                initial_state=self.recurrent_states,
                return_state=True,
            )
    self.recurrent_states = state
    return out
