"""The base of every recurrent form."""

from __future__ import annotations

import torch

from tarn.recurrent._inputs import Lengths, State
from tarn.recurrent._state import AttentionState


class CausalSteps:
    """Causal self attention piece by piece: `step` takes one token of each
    sequence, `prefill` any number. A state is a value: neither modifies it."""

    kind: str  # the kind of its states
    steps_by_heads = True  # one token [N, H, .] of each sequence -> [N, H, M]

    def step(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        state: State = None,
    ) -> tuple[torch.Tensor, AttentionState]:
        """query, key [N, H, E], value [N, H, M], state None before the first
        token -> ([N, H, M], new state)."""
        out, new_state = self.prefill(query[:, None], key[:, None], value[:, None], None, state)
        return out[:, 0], new_state

    def prefill(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        lengths: Lengths | None = None,
        state: State = None,
    ) -> tuple[torch.Tensor, AttentionState]:
        """[N, L, H, .] -> ([N, L, H, M], new state), equal to L calls of step.
        lengths: [N], tokens of each sequence; None: L."""
        raise NotImplementedError(f"{type(self).__name__}: prefill is not defined")
