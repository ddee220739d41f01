"""The softmax kinds that have a recurrent form; mixed into a SoftmaxAttention, which
has temperature, dropout and events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tarn import ops
from tarn.attention._steps.base import CausalSteps
from tarn.attention._steps.cached import CachedSteps
from tarn.events import AttentionEvent, EventDispatcher
from tarn.recurrent._inputs import Lengths, State, begin, lengths_of
from tarn.recurrent._state import AttentionState


class _Softmax:
    """What these classes expect of the class they are mixed into."""

    event_dispatcher: EventDispatcher
    _softmax_arguments: Callable[[], dict[str, Any]]


class FullSteps(CachedSteps, _Softmax):
    """Every key and value is kept; the state grows with the tokens."""

    kind = "full"

    def attend(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        masks: dict[str, Any],
        first: int | None,
    ) -> torch.Tensor:
        arguments = {**self._softmax_arguments(), **masks}
        if not self.event_dispatcher.has_listeners(AttentionEvent, self):
            return ops.full_attention(queries, keys, values, **arguments)
        out, weights = ops.full_attention(queries, keys, values, need_weights=True, **arguments)
        self.event_dispatcher.dispatch(AttentionEvent(self, weights))
        return out


class TopKSteps(CachedSteps, _Softmax):
    """Every key and value is kept; a query reads those with the largest scores."""

    kind = "exact-topk"
    topk: int

    def attend(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        masks: dict[str, Any],
        first: int | None,
    ) -> torch.Tensor:
        return ops.exact_topk_attention(
            queries, keys, values, topk=self.topk, **self._softmax_arguments(), **masks
        )


class LocalSteps(CausalSteps, _Softmax):
    """State, of a fixed size: the last floor(c / 2) + 1 keys and values, oldest
    first, right-aligned; what a short sequence leaves empty is masked by its
    number of tokens. O(c) time a step."""

    kind = "local"
    local_context: int  # c

    def prefill(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        lengths: Lengths | None = None,
        state: State = None,
    ) -> tuple[torch.Tensor, AttentionState]:
        """[N, L, H, .] -> ([N, L, H, M], state), equal to L calls of step.
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
            steps = torch.zeros(batch, dtype=torch.int64, device="cpu")
            past_keys = keys.new_zeros(batch, slots, *keys.shape[2:])
            past_values = values.new_zeros(batch, slots, *values.shape[2:])
        else:
            steps, past_keys, past_values = state.steps, state["keys"], state["values"]
        # The ring and the new tokens after it make one sequence; of the ring
        # only the keys are needed, not the queries.
        all_keys = torch.cat([past_keys, keys], dim=1)
        all_values = torch.cat([past_values, values], dim=1)
        held = steps.clamp(max=slots)
        places = torch.arange(slots + seq_len, device="cpu")
        keep = (places >= slots - held[:, None]) & (places < slots + new[:, None])
        if seq_len == 1:
            # Keys 1 to slots are the window of the one query.
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
        index = (new[:, None] + torch.arange(slots, device="cpu")).to(keys.device)
        tensors = {
            name: rows.gather(1, index[:, :, None, None].expand(-1, -1, *rows.shape[2:]))
            for name, rows in (("keys", all_keys), ("values", all_values))
        }
        return out, AttentionState(self.kind, tensors, steps + new, facts)

    def _attend(self, operator, queries, keys, values, keep, **options) -> torch.Tensor:
        arguments = self._softmax_arguments()
        return operator(
            queries, keys, values, key_mask=keep.to(keys.device), **arguments, **options
        )
