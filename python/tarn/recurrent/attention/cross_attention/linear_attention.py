"""Linear attention to a memory: the memory becomes one matrix."""

from __future__ import annotations

import torch

from tarn import ops
from tarn.attention._linear import LINEAR_OWN, LINEAR_PARAMETERS
from tarn.attention_registry import RecurrentCrossAttentionRegistry
from tarn.recurrent._feature_map import RecurrentLinearBase
from tarn.recurrent._inputs import lengths_of, want_part
from tarn.recurrent._state import AttentionState
from tarn.recurrent.attention.cross_attention._base import CrossAttention
from tarn.recurrent.attention.cross_attention._memory import keep_of


class RecurrentCrossLinearAttention(CrossAttention, RecurrentLinearBase):
    """The recurrent form of `tarn.attention.LinearAttention` over a memory.

    Args: as RecurrentLinearAttention.

    State: S [N, H, C, M] and z [N, H, C] of the whole memory; a read costs
    O(H C M) however long the memory was. A plain pair [S, z] is one too.
    """

    kind = "cross-linear"
    _names = ("S", "z")

    def build_state(self, keys, values, key_lengths=None) -> AttentionState:
        """keys [N, S, H, E], values [N, S, H, M], key_lengths a mask or None."""
        self.feature_map.new_feature_map(keys.device)
        batch, seq_len = keys.shape[:2]
        no_queries = keys[:, :0]
        _, held = ops.mapped_linear_attention(
            no_queries,
            keys,
            values,
            causal=False,
            key_mask=keep_of(key_lengths, batch, seq_len, keys.device),
            return_state=True,
            **self.arguments(),
        )
        steps = lengths_of(None, batch, seq_len)
        return self.new_state(held, steps, self.facts(keys, values))

    def adopt(self, first, second, query, key_lengths) -> AttentionState:
        want_part("S", first, (query.shape[0], query.shape[-2], None, None))
        return self.state_of_pair(first, second, self.facts(query, first))

    def read(self, queries, state: AttentionState) -> torch.Tensor:
        """queries [N, L, H, E] -> [N, L, H, M]."""
        no_keys = queries[:, :0]
        no_values = queries.new_zeros(queries.shape[0], 0, *state["S"].shape[1::2])
        state.check(self.kind, queries.shape[0], self.facts(no_keys, no_values))
        out = ops.mapped_linear_attention(
            queries,
            no_keys,
            no_values,
            causal=False,
            initial_state=self.held(state),
            **self.arguments(),
        )
        assert isinstance(out, torch.Tensor)
        return out


RecurrentCrossAttentionRegistry.register(
    "linear",
    RecurrentCrossLinearAttention,
    LINEAR_PARAMETERS,
    yielding=LINEAR_OWN,
)
