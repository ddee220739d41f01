"""Linear attention to a memory: the memory becomes one matrix."""

from __future__ import annotations

import torch

from tarn import ops
from tarn.attention._linear import LINEAR_PARAMETERS
from tarn.attention_registry import RecurrentCrossAttentionRegistry
from tarn.recurrent._feature_map import RecurrentLinearBase
from tarn.recurrent._inputs import Lengths, lengths_of
from tarn.recurrent._state import AttentionState
from tarn.recurrent.attention.cross_attention._memory import keep_of


class RecurrentCrossLinearAttention(RecurrentLinearBase):
    """The recurrent form of `tarn.attention.LinearAttention` over a memory.

    Args: as RecurrentLinearAttention.

    State: S [N, H, C, M] and z [N, H, C] of the whole memory; a read costs
    O(H C M) however long the memory was.
    """

    kind = "cross-linear"

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

    def forward(
        self,
        query: torch.Tensor,
        keys: torch.Tensor | None = None,
        values: torch.Tensor | None = None,
        key_lengths: Lengths | None = None,
        state: AttentionState | None = None,
    ) -> tuple[torch.Tensor, AttentionState]:
        """query [N, H, E] -> ([N, H, M], state); keys [N, S, H, E] and values
        [N, S, H, M] where state is None."""
        if state is None:
            state = self.build_state(keys, values, key_lengths)
        return self.read(query[:, None], state)[:, 0], state


RecurrentCrossAttentionRegistry.register(
    "linear",
    RecurrentCrossLinearAttention,
    LINEAR_PARAMETERS,
)
