"""Multi-head self attention one token at a time."""

from __future__ import annotations

from typing import Any

import torch

from tarn._fused import whole
from tarn._hooks import call, hooked
from tarn.attention._projections import Projections
from tarn.events import EventDispatcher
from tarn.recurrent._inputs import Lengths, State, check_state
from tarn.recurrent._state import AttentionState


class RecurrentAttentionLayer(Projections):
    """The four projections around a recurrent attention; the twin of
    `tarn.attention.AttentionLayer` under a causal mask, with the same
    parameters.

    Args:
        attention: a module of this package, or any callable of (query [N, H, E],
            key [N, H, E], value [N, H, M], state) -> ([N, H, M], state).
        d_model: width D of input and output.
        n_heads: number of heads H.
        d_keys, d_values: widths of a head; None: d_model // n_heads.
        event_dispatcher: name or object; QKVEvent is sent through it.
    """

    _one_call = True

    def __init__(
        self,
        attention: Any,
        d_model: int,
        n_heads: int,
        d_keys: int | None = None,
        d_values: int | None = None,
        event_dispatcher: str | EventDispatcher = "",
    ) -> None:
        sizes = d_model, n_heads, d_keys or None, d_values or None
        super().__init__(attention, *sizes, event_dispatcher)

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        state: Any = None,
        memory: Any = None,
    ) -> tuple[torch.Tensor, Any]:
        """query, key, value [N, D], one token of each of N sequences ->
        ([N, D], new state). state: None before the first token."""
        state = check_state(state, memory)
        queries, keys, values = self._all_heads(query, key, value)
        out, new_state = self.step_heads(queries, keys, values, state)
        return whole(self._out(out, 1)), new_state

    def step_heads(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, state: Any
    ) -> tuple[torch.Tensor, Any]:
        """The inner attention alone, on heads [N, H, width]."""
        return self.inner_attention(queries, keys, values, state)

    @hooked
    def prefill(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        lengths: Lengths | None = None,
        state: State = None,
    ) -> tuple[torch.Tensor, AttentionState]:
        """Whole sequences at once: [N, L, D] -> ([N, L, D], state), equal to L
        calls of forward. lengths: [N] or a LengthMask; each sequence's state
        stops at its own length, and rows past it are unspecified. L = 0 is valid.
        For an attention of this package only."""
        heads = self._all_heads(query, key, value)
        out, new_state = call(self.inner_attention, "prefill", *heads, lengths, state)
        return whole(self._out(out, 2)), new_state
