"""Multi-head self attention one token at a time."""

from __future__ import annotations

from typing import Any

import torch

from tarn.events import EventDispatcher, QKVEvent
from tarn.recurrent._inputs import Lengths, State, check_state, split_heads
from tarn.recurrent._state import AttentionState


class RecurrentAttentionLayer(torch.nn.Module):
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

    inner_attention: Any

    def __init__(
        self,
        attention: Any,
        d_model: int,
        n_heads: int,
        d_keys: int | None = None,
        d_values: int | None = None,
        event_dispatcher="",
    ) -> None:
        super().__init__()
        d_keys = d_keys or d_model // n_heads
        d_values = d_values or d_model // n_heads
        self.inner_attention = attention
        self.query_projection = torch.nn.Linear(d_model, d_keys * n_heads)
        self.key_projection = torch.nn.Linear(d_model, d_keys * n_heads)
        self.value_projection = torch.nn.Linear(d_model, d_values * n_heads)
        self.out_projection = torch.nn.Linear(d_values * n_heads, d_model)
        self.n_heads = n_heads
        self.event_dispatcher = EventDispatcher.get(event_dispatcher)

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
        queries, keys, values = self._project(query, key, value)
        out, new_state = self.inner_attention(queries, keys, values, state)
        return self.out_projection(out.flatten(1)), new_state

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
        stops at its own length, rows past it are unspecified. L = 0 is valid. Of
        an attention of this package only."""
        queries, keys, values = self._project(query, key, value)
        out, new_state = self.inner_attention.prefill(queries, keys, values, lengths, state)
        return self.out_projection(out.flatten(-2)), new_state

    def _project(self, query, key, value):
        queries = split_heads(self.query_projection(query), self.n_heads)
        keys = split_heads(self.key_projection(key), self.n_heads)
        values = split_heads(self.value_projection(value), self.n_heads)
        self.event_dispatcher.dispatch(QKVEvent(self, queries, keys, values))
        return queries, keys, values
