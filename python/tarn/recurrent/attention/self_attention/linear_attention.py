"""Linear attention as an RNN (Katharopoulos et al. 2020, eq. 18-20)."""

from __future__ import annotations

import torch

from tarn import ops
from tarn.attention._linear import LINEAR_PARAMETERS
from tarn.attention_registry import RecurrentAttentionRegistry
from tarn.recurrent._feature_map import RecurrentLinearBase
from tarn.recurrent._inputs import Lengths, begin, check_state, lengths_of
from tarn.recurrent._state import AttentionState


class RecurrentLinearAttention(RecurrentLinearBase):
    """The recurrent form of `tarn.attention.CausalLinearAttention`.

    Args: as CausalLinearAttention.

    State, of a fixed size: S [N, H, C, M] and z [N, H, C], float32, and what
    the feature map needs (`extra`).
    """

    kind = "linear"

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        state: AttentionState | None = None,
        memory: AttentionState | None = None,
    ) -> tuple[torch.Tensor, AttentionState]:
        """query, key [N, H, E], value [N, H, M], state or None ->
        ([N, H, M], new state). O(H C M) time, the same at every token."""
        state = check_state(state, memory)
        batch = query.shape[0]
        if state is None:  # a new sequence: random maps may draw, facts tell which
            self.feature_map.new_feature_map(query.device)
        facts = self.facts(key, value)
        state = begin(state, self.kind, batch, facts, ("S", "z"))
        out, held = ops.mapped_linear_attention_step(
            query, key, value, self.held(state), **self.arguments()
        )
        steps = torch.ones(batch, dtype=torch.int64)
        if state is not None:
            steps = steps + state.steps
        return out, self.new_state(held, steps, facts)

    def prefill(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        lengths: Lengths | None = None,
        state: AttentionState | None = None,
    ) -> tuple[torch.Tensor, AttentionState]:
        """[N, L, H, .] -> ([N, L, H, M], state), equal to L calls of forward,
        in chunks. lengths: [N], tokens of each sequence; None: L."""
        batch, seq_len = queries.shape[:2]
        new = lengths_of(lengths, batch, seq_len)
        if state is None:
            self.feature_map.new_feature_map(queries.device)
        facts = self.facts(keys, values)
        state = begin(state, self.kind, batch, facts, ("S", "z"))
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
    )
