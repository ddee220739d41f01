"""Attention to the latest tokens, with a ring of keys and values."""

from __future__ import annotations

from typing import Any

import torch

from tarn import ops
from tarn.attention_registry import (
    EventDispatcherInstance,
    Float,
    Int,
    Optional,
    RecurrentAttentionRegistry,
)
from tarn.events import EventDispatcher
from tarn.recurrent._inputs import Lengths, begin, check_state, lengths_of
from tarn.recurrent._state import AttentionState


class RecurrentLocalAttention(torch.nn.Module):
    """The recurrent form of `tarn.attention.LocalAttention` under a causal
    mask: a token reads the floor(local_context / 2) before it and itself.

    Args:
        local_context: width c of the window.
        softmax_temp: factor of the scores; None: 1 / sqrt(E).
        attention_dropout: probability of dropping a weight, in training.

    State, of a fixed size: the last floor(c / 2) + 1 keys and values, oldest
    first, right-aligned; what a short sequence leaves empty is masked by its
    number of tokens.
    """

    kind = "local"

    def __init__(
        self,
        local_context: int,
        softmax_temp: float | None = None,
        attention_dropout: float = 0.1,
        event_dispatcher="",
    ) -> None:
        super().__init__()
        if local_context < 1:
            raise ValueError(
                f"RecurrentLocalAttention: local_context: want at least 1, got {local_context}"
            )
        self.local_context = local_context
        self.softmax_temp = softmax_temp
        self.dropout = torch.nn.Dropout(attention_dropout)
        self.event_dispatcher = EventDispatcher.get(event_dispatcher)

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        state: AttentionState | None = None,
        memory: AttentionState | None = None,
    ) -> tuple[torch.Tensor, AttentionState]:
        """query, key [N, H, E], value [N, H, M], state or None ->
        ([N, H, M], new state). O(c) time and memory."""
        state = check_state(state, memory)
        out, state = self.prefill(query[:, None], key[:, None], value[:, None], None, state)
        return out[:, 0], state

    def prefill(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        lengths: Lengths | None = None,
        state: AttentionState | None = None,
    ) -> tuple[torch.Tensor, AttentionState]:
        """[N, L, H, .] -> ([N, L, H, M], state), equal to L calls of forward.
        O(L c) time."""
        batch, seq_len = queries.shape[:2]
        slots = self.local_context // 2 + 1
        new = lengths_of(lengths, batch, seq_len)
        facts: dict[str, Any] = {
            "local_context": self.local_context,
            "heads": keys.shape[-2],
            "d_key": keys.shape[-1],
            "d_value": values.shape[-1],
            "dtype": str(values.dtype),
        }
        state = begin(state, self.kind, batch, facts, ("keys", "values"))
        if state is None:
            steps = torch.zeros(batch, dtype=torch.int64)
            past_keys = keys.new_zeros(batch, slots, *keys.shape[2:])
            past_values = values.new_zeros(batch, slots, *values.shape[2:])
        else:
            steps, past_keys, past_values = state.steps, state["keys"], state["values"]
        # The ring in front of the new tokens makes one sequence; its own
        # queries are not wanted, only its keys.
        all_keys = torch.cat([past_keys, keys], dim=1)
        all_values = torch.cat([past_values, values], dim=1)
        held = steps.clamp(max=slots)
        places = torch.arange(slots + seq_len)
        keep = (places >= slots - held[:, None]) & (places < slots + new[:, None])
        if seq_len == 1:
            # Keys 1 .. slots are the window of the one query.
            out = self._attend(
                ops.full_attention, queries, all_keys[:, 1:], all_values[:, 1:], keep[:, 1:]
            )
        else:
            padding = queries.new_zeros(batch, slots, *queries.shape[2:])
            out = self._attend(
                ops.local_attention,
                torch.cat([padding, queries], dim=1),
                all_keys,
                all_values,
                keep,
                local_context=self.local_context,
                causal=True,
            )[:, slots:]
        # The last `slots` rows up to each sequence's end.
        index = (new[:, None] + torch.arange(slots)).to(keys.device)
        tensors = {
            name: rows.gather(1, index[:, :, None, None].expand(-1, -1, *rows.shape[2:]))
            for name, rows in (("keys", all_keys), ("values", all_values))
        }
        return out, AttentionState(self.kind, tensors, steps + new, facts)

    def _attend(self, operator, queries, keys, values, keep, **options) -> torch.Tensor:
        dropout = self.dropout.p if self.training else 0.0
        return operator(
            queries,
            keys,
            values,
            key_mask=keep.to(keys.device),
            softmax_temp=self.softmax_temp,
            dropout=dropout,
            seed=ops.draw_seed(dropout),
            **options,
        )


RecurrentAttentionRegistry.register(
    "local",
    RecurrentLocalAttention,
    [
        ("local_context", Int),
        ("softmax_temp", Optional(Float)),
        ("attention_dropout", Optional(Float, 0.1)),
        ("event_dispatcher", Optional(EventDispatcherInstance, "")),
    ],
)
