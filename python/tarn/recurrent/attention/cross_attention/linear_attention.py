"""Linear attention to a memory: the memory becomes one matrix."""

from __future__ import annotations

from collections.abc import Callable as Function
from typing import Any

import torch

from tarn import ops
from tarn.attention_registry import (
    Bool,
    Callable,
    EventDispatcherInstance,
    Float,
    Int,
    Optional,
    RecurrentCrossAttentionRegistry,
)
from tarn.events import EventDispatcher
from tarn.recurrent._feature_map import MappedAttention
from tarn.recurrent._inputs import lengths_of
from tarn.recurrent._state import AttentionState
from tarn.recurrent.attention.cross_attention._memory import keep_of


class RecurrentCrossLinearAttention(MappedAttention):
    """The recurrent form of `tarn.attention.LinearAttention` over a memory.

    Args: as RecurrentLinearAttention.

    State: S [N, H, C, M] and z [N, H, C] of the whole memory; a read costs
    O(H C M) however long the memory was.
    """

    kind = "cross-linear"

    def __init__(
        self,
        query_dimensions: int,
        feature_map: Function[[int], Any] | None = None,
        eps: float = 1e-6,
        event_dispatcher="",
        compat: bool = False,
    ) -> None:
        super().__init__(query_dimensions, feature_map, eps, compat)
        self.event_dispatcher = EventDispatcher.get(event_dispatcher)

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
        tensors = {"S": held.S, "z": held.z}
        if held.extra is not None:
            tensors["extra"] = held.extra
        steps = lengths_of(None, batch, seq_len)
        return AttentionState(self.kind, tensors, steps, self.facts(keys, values))

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

    def forward(self, query, keys=None, values=None, key_lengths=None, state=None):
        """query [N, H, E] -> ([N, H, M], state); keys [N, S, H, E] and values
        [N, S, H, M] where state is None."""
        if state is None:
            state = self.build_state(keys, values, key_lengths)
        return self.read(query[:, None], state)[:, 0], state


RecurrentCrossAttentionRegistry.register(
    "linear",
    RecurrentCrossLinearAttention,
    [
        ("query_dimensions", Int),
        ("feature_map", Optional(Callable)),
        ("eps", Optional(Float, 1e-6)),
        ("event_dispatcher", Optional(EventDispatcherInstance, "")),
        ("compat", Optional(Bool, False)),
    ],
)
