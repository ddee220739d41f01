"""What the attentions to a memory share."""

from __future__ import annotations

import torch

from tarn.recurrent._inputs import Lengths, State, want_pair
from tarn.recurrent._state import AttentionState


class CrossAttention(torch.nn.Module):
    """How a query is answered: the state is built by the first call, or is the
    plain pair that fast-transformers has there."""

    def build_state(self, keys, values, key_lengths=None) -> AttentionState:
        """What a memory comes to."""
        raise NotImplementedError(f"{type(self).__name__}: build_state is not defined")

    def adopt(self, first, second, query, key_lengths) -> AttentionState:
        """A state of a plain pair, for queries [N, ..., H, E]."""
        raise NotImplementedError(f"{type(self).__name__}: adopt is not defined")

    def read(self, queries, state: AttentionState) -> torch.Tensor:
        """queries [N, L, H, E] -> [N, L, H, M]."""
        raise NotImplementedError(f"{type(self).__name__}: read is not defined")

    _names: tuple[str, str]

    def begin(self, query, keys, values, key_lengths, state: State) -> AttentionState:
        """The state to read: built from keys and values, given, or of a pair,
        whose mask is key_lengths."""
        if state is None:
            return self.build_state(keys, values, key_lengths)
        if isinstance(state, AttentionState):
            return state
        return self.adopt(*want_pair(state, self._names), query, key_lengths)

    def forward(
        self,
        query: torch.Tensor,
        keys: torch.Tensor | None = None,
        values: torch.Tensor | None = None,
        key_lengths: Lengths | None = None,
        state: State = None,
    ) -> tuple[torch.Tensor, AttentionState]:
        """query [N, H, E] -> ([N, H, M], state); keys [N, S, H, E] and values
        [N, S, H, M] where state is None."""
        held = self.begin(query, keys, values, key_lengths, state)
        return self.read(query[:, None], held)[:, 0], held
