"""Multi-head attention to a fixed memory, one query at a time."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import Any

import torch

from tarn._fused import whole
from tarn._hooks import call, hooked
from tarn.attention._projections import Projections
from tarn.events import EventDispatcher
from tarn.recurrent._inputs import Lengths, State
from tarn.recurrent._state import AttentionState
from tarn.recurrent.attention.cross_attention._base import CrossAttention


class RecurrentCrossAttentionLayer(Projections):
    """The four projections around a recurrent cross attention; the twin of
    `tarn.attention.AttentionLayer` with keys and values from a memory.

    Args:
        attention: a module of this package, or any callable of (query [N, H, E],
            keys [N, S, H, E], values [N, S, H, M], key_lengths, state=...) ->
            ([N, H, M], state); keys and values are None once it has a state.
        d_model: width D of queries, memory and output.
        n_heads: number of heads H.
        d_keys, d_values: widths of a head; None: d_model // n_heads.
        event_dispatcher: name or object; QKVEvent is sent through it:
            keys and values when the state is built, queries at every call; None
            stands for the absent ones.
        d_memory: width of the memory; None: d_model.
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
        d_memory: int | None = None,
    ) -> None:
        sizes = d_model, n_heads, d_keys or None, d_values or None
        super().__init__(attention, *sizes, event_dispatcher, d_memory or None)

    def build_state(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        key_lengths: Lengths | None = None,
    ) -> AttentionState:
        """The state of the memory: keys, values [N, S, D_memory] (usually the
        same tensor), key_lengths a mask over them or None. It is built once; every
        query then only reads. For an attention of this package only."""
        heads = self._project(keys, values)
        state = call(self.inner_attention, "build_state", *heads, key_lengths)
        return replace(state, source=(weakref.ref(keys), keys._version))

    def forward(
        self,
        query: torch.Tensor,
        keys: torch.Tensor | None = None,
        values: torch.Tensor | None = None,
        key_lengths: Lengths | None = None,
        state: Any = None,
    ) -> tuple[torch.Tensor, Any]:
        """query [N, D] -> ([N, D], state). The first call builds the state from
        keys and values [N, S, D]; later ones take it, with keys None or the very
        tensor it was built from. Raises ValueError for another one, which would
        have no influence. A plain state, which does not know its source, needs the
        mask of its memory at every call, as in fast-transformers."""
        queries = self._queries(query)
        if isinstance(self.inner_attention, CrossAttention):
            state = self._state(queries, keys, values, key_lengths, state)
            heads, key_lengths = (None, None), None
        else:
            heads = (None, None) if state is not None else self._project(keys, values)
        out, new_state = self.inner_attention(queries, *heads, key_lengths, state=state)
        return whole(self._out(out, 1)), new_state

    @hooked
    def prefill(
        self,
        query: torch.Tensor,
        keys: torch.Tensor | None = None,
        values: torch.Tensor | None = None,
        key_lengths: Lengths | None = None,
        state: State = None,
    ) -> tuple[torch.Tensor, AttentionState]:
        """query [N, L, D] -> ([N, L, D], state): L queries at once. For an
        attention of this package only."""
        queries = self._queries(query)
        held = self._state(queries, keys, values, key_lengths, state)
        out = call(self.inner_attention, "read", queries, held)
        return whole(self._out(out, 2)), held

    def _queries(self, query: torch.Tensor) -> torch.Tensor:
        (queries,) = self._heads(query, "query")
        self._tell(queries, None, None)
        return queries

    def _project(
        self, keys: torch.Tensor | None, values: torch.Tensor | None
    ) -> tuple[torch.Tensor, ...]:
        """Keys and values of a memory in heads."""
        if keys is None or values is None:
            raise ValueError(
                "RecurrentCrossAttentionLayer: keys, values: want a memory for the "
                "first call, got None"
            )
        if keys is values:
            heads = self._heads(keys, "key", "value")
        else:
            heads = *self._heads(keys, "key"), *self._heads(values, "value")
        self._tell(None, *heads)
        return heads

    def _state(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor | None,
        values: torch.Tensor | None,
        key_lengths: Lengths | None,
        state: State,
    ) -> AttentionState:
        if state is None:
            return self.build_state(keys, values, key_lengths)  # type: ignore[arg-type]
        if not isinstance(state, AttentionState):
            return self.inner_attention.begin(queries, None, None, key_lengths, state)
        if keys is not None:
            held, version = state.source or (lambda: None, None)
            if held() is not keys or keys._version != version:
                raise ValueError(
                    "RecurrentCrossAttentionLayer: memory: want None, or the tensor the "
                    "state was built from unchanged, got another: the state already holds "
                    "its memory"
                )
        return state
