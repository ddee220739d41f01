"""Linear attention as an RNN (Katharopoulos et al. 2020, eq. 18-20)."""

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
    RecurrentAttentionRegistry,
)
from tarn.events import EventDispatcher
from tarn.recurrent._feature_map import MappedAttention
from tarn.recurrent._inputs import begin, check_state, lengths_of
from tarn.recurrent._state import AttentionState


class RecurrentLinearAttention(MappedAttention):
    """The recurrent form of `tarn.attention.CausalLinearAttention`.

    Args:
        query_dimensions: width E of a head's queries and keys.
        feature_map: called with query_dimensions, gives the feature map; None:
            elu(x) + 1.
        eps: added to the denominator where `compat`; else unused.
        event_dispatcher: name or object.
        compat: denominators of fast-transformers, with eps; default: exact.

    State, of a fixed size: S [N, H, C, M] and z [N, H, C], float32, and what
    the feature map needs (`extra`).
    """

    kind = "linear"

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

    def forward(self, query, key, value, state=None, memory=None):
        """query, key [N, H, E], value [N, H, M], state or None ->
        ([N, H, M], new state). O(H C M) time, the same at every token."""
        state = check_state(state, memory)
        batch = query.shape[0]
        facts = self.facts(key, value)
        state = begin(state, self.kind, batch, facts, ("S", "z"))
        if state is None:
            self.feature_map.new_feature_map(query.device)
        out, held = ops.mapped_linear_attention_step(
            query, key, value, self.held(state), **self.arguments()
        )
        steps = torch.ones(batch, dtype=torch.int64)
        if state is not None:
            steps = steps + state.steps
        return out, self.state(held, steps, facts)

    def prefill(self, queries, keys, values, lengths=None, state=None):
        """[N, L, H, .] -> ([N, L, H, M], state), equal to L calls of forward,
        in chunks. lengths: [N], tokens of each sequence; None: L."""
        batch, seq_len = queries.shape[:2]
        new = lengths_of(lengths, batch, seq_len)
        facts = self.facts(keys, values)
        state = begin(state, self.kind, batch, facts, ("S", "z"))
        if state is None:
            self.feature_map.new_feature_map(queries.device)
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
        return out, self.state(held, steps, facts)

    def state(self, held: ops.LinearState, steps: torch.Tensor, facts) -> AttentionState:
        tensors = {"S": held.S, "z": held.z}
        if held.extra is not None:
            tensors["extra"] = held.extra
        return AttentionState(self.kind, tensors, steps, facts)


for _name in ("linear", "causal-linear"):
    RecurrentAttentionRegistry.register(
        _name,
        RecurrentLinearAttention,
        [
            ("query_dimensions", Int),
            ("feature_map", Optional(Callable)),
            ("eps", Optional(Float, 1e-6)),
            ("event_dispatcher", Optional(EventDispatcherInstance, "")),
            ("compat", Optional(Bool, False)),
        ],
    )
