"""Linear attention as an RNN (Katharopoulos et al. 2020, eq. 18-20)."""

from __future__ import annotations

from typing import Any

import torch

from tarn import ops
from tarn.attention._linear import LINEAR_OWN, LINEAR_PARAMETERS
from tarn.attention_registry import RecurrentAttentionRegistry
from tarn.recurrent._feature_map import RecurrentLinearBase
from tarn.recurrent._inputs import Lengths, State, begin, check_state, lengths_of
from tarn.recurrent._state import AttentionState


class RecurrentLinearAttention(RecurrentLinearBase):
    """The recurrent form of `tarn.attention.CausalLinearAttention`.

    Args: as CausalLinearAttention.

    State, of a fixed size: S [N, H, C, M] and z [N, H, C], float32, and what
    the feature map needs (`extra`). A plain pair [S, z] is one too.
    """

    kind = "linear"

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        state: State = None,
        memory: State = None,
    ) -> tuple[torch.Tensor, AttentionState]:
        """query, key [N, H, E], value [N, H, M], state or None ->
        ([N, H, M], new state). O(H C M) time, the same at every token."""
        state = check_state(state, memory)
        batch = query.shape[0]
        if state is None:  # a new sequence: random maps may draw, facts tell which
            self.feature_map.new_feature_map(query.device)
        facts = self.facts(key, value)
        state = self._begin(state, batch, facts)
        out, held = ops.mapped_linear_attention_step(
            query, key, value, self.held(state), **self.arguments()
        )
        steps = torch.ones(batch, dtype=torch.int64)
        if state is not None:
            steps = steps + state.steps
        return out, self.new_state(held, steps, facts)

    def _begin(
        self, state: State, batch_size: int, facts: dict[str, Any]
    ) -> AttentionState | None:
        def adopt(S: torch.Tensor, z: torch.Tensor) -> AttentionState:
            return self.state_of_pair(S, z, facts)

        return begin(state, self.kind, batch_size, facts, ("S", "z"), adopt)

    def prefill(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        lengths: Lengths | None = None,
        state: State = None,
    ) -> tuple[torch.Tensor, AttentionState]:
        """[N, L, H, .] -> ([N, L, H, M], state), equal to L calls of forward,
        in chunks. lengths: [N], tokens of each sequence; None: L."""
        batch, seq_len = queries.shape[:2]
        new = lengths_of(lengths, batch, seq_len)
        if state is None:
            self.feature_map.new_feature_map(queries.device)
        facts = self.facts(keys, values)
        state = self._begin(state, batch, facts)
        out, held = ops.mapped_linear_attention(
            queries,
            keys,
            values,
            causal=True,
            key_lengths=None if lengths is None else new.to(keys.device),
            initial_state=self.held(state),
            return_state=True,
            **self.arguments(),
        )
        steps = new if state is None else state.steps + new
        return out, self.new_state(held, steps, facts)


for _name in ("linear", "causal-linear"):
    RecurrentAttentionRegistry.register(
        _name,
        RecurrentLinearAttention,
        LINEAR_PARAMETERS,
        yielding=LINEAR_OWN,
    )
