"""The calling convention of fast-transformers: one token, and the state also under
its old name."""

from __future__ import annotations

import torch

from tarn.attention._steps import CausalSteps
from tarn.recurrent._inputs import State, check_state
from tarn.recurrent._state import AttentionState


class StepForward(CausalSteps):
    """A module whose forward is its step."""

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        state: State = None,
        memory: State = None,
    ) -> tuple[torch.Tensor, AttentionState]:
        """query, key [N, H, E], value [N, H, M], state or None ->
        ([N, H, M], new state)."""
        return self.step(query, key, value, check_state(state, memory))
