"""Softmax attention to a memory, its keys and values projected once."""

from __future__ import annotations

from typing import Any

import torch

from tarn import ops
from tarn.attention_registry import (
    EventDispatcherInstance,
    Float,
    Optional,
    RecurrentCrossAttentionRegistry,
)
from tarn.events import AttentionEvent, EventDispatcher
from tarn.recurrent._inputs import Lengths, lengths_of
from tarn.recurrent._state import AttentionState
from tarn.recurrent.attention.cross_attention._memory import keep_of


class RecurrentCrossFullAttention(torch.nn.Module):
    """The recurrent form of `tarn.attention.FullAttention` over a memory.

    Args:
        softmax_temp: factor of the scores; None: 1 / sqrt(E).
        attention_dropout: probability of dropping a weight, in training.
        event_dispatcher: name or object; AttentionEvent is sent where somebody
            listens, weights [N, H, 1, S].

    State: keys [N, S, H, E], values [N, S, H, M] and which of them are kept.
    """

    kind = "cross-full"

    def __init__(
        self,
        softmax_temp: float | None = None,
        attention_dropout: float = 0.1,
        event_dispatcher="",
    ) -> None:
        super().__init__()
        self.softmax_temp = softmax_temp
        self.dropout = torch.nn.Dropout(attention_dropout)
        self.event_dispatcher = EventDispatcher.get(event_dispatcher)

    def facts(self, keys) -> dict[str, int | str]:
        return {"heads": keys.shape[-2], "d_key": keys.shape[-1], "dtype": str(keys.dtype)}

    def build_state(self, keys, values, key_lengths=None) -> AttentionState:
        """keys [N, S, H, E], values [N, S, H, M], key_lengths a mask or None."""
        batch, seq_len = keys.shape[:2]
        keep = keep_of(key_lengths, batch, seq_len, keys.device)
        if keep is None:
            keep = torch.ones(batch, seq_len, dtype=torch.bool, device=keys.device)
        tensors = {"keys": keys, "values": values, "keep": keep}
        steps = lengths_of(None, batch, seq_len)
        return AttentionState(self.kind, tensors, steps, self.facts(keys))

    def read(self, queries, state: AttentionState) -> torch.Tensor:
        """queries [N, L, H, E] -> [N, L, H, M]. O(L S)."""
        state.check(self.kind, queries.shape[0], self.facts(queries))
        dropout = self.dropout.p if self.training else 0.0
        arguments: dict[str, Any] = dict(
            key_mask=state["keep"],
            softmax_temp=self.softmax_temp,
            dropout=dropout,
            seed=ops.draw_seed(dropout),
        )
        if self.event_dispatcher.has_listeners(AttentionEvent, self):
            out, weights = ops.full_attention(
                queries, state["keys"], state["values"], need_weights=True, **arguments
            )
            self.event_dispatcher.dispatch(AttentionEvent(self, weights))
            return out
        return ops.full_attention(queries, state["keys"], state["values"], **arguments)

    def forward(
        self,
        query: torch.Tensor,
        keys: torch.Tensor | None = None,
        values: torch.Tensor | None = None,
        key_lengths: Lengths | None = None,
        state: AttentionState | None = None,
    ) -> tuple[torch.Tensor, AttentionState]:
        """query [N, H, E] -> ([N, H, M], state); keys [N, S, H, E] and values
        [N, S, H, M] where state is None."""
        if state is None:
            state = self.build_state(keys, values, key_lengths)
        return self.read(query[:, None], state)[:, 0], state


RecurrentCrossAttentionRegistry.register(
    "full",
    RecurrentCrossFullAttention,
    [
        ("softmax_temp", Optional(Float)),
        ("attention_dropout", Optional(Float, 0.1)),
        ("event_dispatcher", Optional(EventDispatcherInstance, "")),
    ],
)
