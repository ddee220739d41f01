"""What the attentions to a memory share."""

from __future__ import annotations

import torch

from tarn.attention._steps import MemoryReader
from tarn.recurrent._inputs import Lengths, State
from tarn.recurrent._state import AttentionState


class CrossAttention(MemoryReader, torch.nn.Module):
    """A module that reads a memory, one query per call. The state is built by the
    first call, or is the plain pair that fast-transformers uses for it."""

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
