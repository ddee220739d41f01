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
from tarn.recurrent._inputs import lengths_of, want_part
from tarn.recurrent._state import AttentionState
from tarn.recurrent.attention.cross_attention._base import CrossAttention
from tarn.recurrent.attention.cross_attention._memory import keep_of


class RecurrentCrossFullAttention(CrossAttention):
    """The recurrent form of `tarn.attention.FullAttention` over a memory.

    Args:
        softmax_temp: factor of the scores; None: 1 / sqrt(E).
        attention_dropout: probability of dropping a weight, in training.
        event_dispatcher: name or object; AttentionEvent is sent where somebody
            listens, weights [N, H, 1, S].

    State: keys [N, S, H, E], values [N, S, H, M] and which of them are kept. A
    plain pair [keys, values] is one too; its mask then is the call's.
    """

    kind = "cross-full"
    _names = ("keys", "values")

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

    def adopt(self, first, second, query, key_lengths) -> AttentionState:
        want_part("keys", first, (query.shape[0], None, *query.shape[-2:]))
        want_part("values", second, (*first.shape[:3], None))
        return self.build_state(first, second, key_lengths)

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


RecurrentCrossAttentionRegistry.register(
    "full",
    RecurrentCrossFullAttention,
    [
        ("softmax_temp", Optional(Float)),
        ("attention_dropout", Optional(Float, 0.1)),
        ("event_dispatcher", Optional(EventDispatcherInstance, "")),
    ],
)
