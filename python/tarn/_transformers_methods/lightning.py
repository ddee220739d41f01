"""MiniMax's lightning attention, which its file computes in blocks of a prompt and by a loop
over the tokens after it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tarn import ops

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def forward(
    theirs: Any,
    self: Any,
    hidden_states: Tensor,
    position_embeddings: Any,
    attention_mask: Tensor | None,
    past_key_values: Any = None,
    **options: Any,
) -> tuple[Tensor, Tensor]:
    """x [B, T, D]; attention_mask: [B, T], 0 at pads, or None. Returns the layer's output and
    its state [B, H, K, K], which the cache holds too, in the dtype of x."""
    if hidden_states.dtype not in _DTYPES or hidden_states.shape[1] == 0:
        return theirs(
            self, hidden_states, position_embeddings, attention_mask, past_key_values, **options
        )
    batch, seq_len, _ = hidden_states.shape
    packed = self.act_fn(self.qkv_proj(hidden_states))
    if attention_mask is not None:
        packed = (packed * attention_mask[:, :, None]).to(packed.dtype)
    packed = packed.view(batch, seq_len, self.num_attention_heads, 3 * self.head_dim)
    queries, keys, values = packed.split(self.head_dim, 3)
    state = None
    if past_key_values is not None:
        state = past_key_values.get_linear_cache(self.layer_idx)
    out, state = ops.decay_attention(
        queries,
        keys,
        values,
        gates=-self.slope_rate.flatten().float(),
        initial_state=None if state is None else state.float(),
        scale=1.0,
        return_state=True,
    )
    state = state.to(values.dtype)
    out = self.norm(out.reshape(batch, seq_len, -1))
    out = self.out_proj(torch.sigmoid(self.output_gate(hidden_states)) * out)
    if past_key_values is not None:
        past_key_values.set_linear_cache(self.layer_idx, state)
    return out, state
