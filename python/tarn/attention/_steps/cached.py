"""Recurrent forms that keep every key and value: full, exact-topk, aft-full."""

from __future__ import annotations

from typing import Any

import torch

from tarn.attention._steps.base import CausalSteps
from tarn.recurrent._inputs import (
    Lengths,
    State,
    append_rows,
    begin,
    lengths_of,
    same_length,
    steps_of,
    want_part,
)
from tarn.recurrent._state import AttentionState

_NAMES = ("keys", "values")


def cache_masks(
    steps: torch.Tensor, new: torch.Tensor, seq_len: int, keys: torch.Tensor
) -> dict[str, Any]:
    """Keyword arguments of the operators under which query i of row n, of seq_len, reads
    the keys [N, t, ...] up to place steps[n] + i, of which steps[n] + new[n] are tokens."""
    first = same_length(steps)
    if first is not None and int(new.sum()) == len(new) * seq_len:
        return {"causal": True, "causal_offset": first}
    lengths = (steps + new).to(keys.device)
    if first is not None:
        return {"causal": True, "causal_offset": first, "key_lengths": lengths}
    last = steps[:, None] + torch.arange(seq_len, device="cpu")
    allowed = torch.arange(keys.shape[1], device="cpu") <= last[:, :, None]
    return {"attention_mask": allowed[:, None].to(keys.device), "key_lengths": lengths}


class CachedSteps(CausalSteps):
    """Appends each token's key and value to the state and attends to all of
    them: O(t) time and memory at token t. Kinds define `attend`.

    State: keys [N, t, H, E] and values [N, t, H, M]; a plain pair of them, in
    the order [N, H, t, .] of fast-transformers, is a state too."""

    def attend(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        masks: dict[str, Any],
        first: int | None,
    ) -> torch.Tensor:
        """queries [N, L, H, E] over the cache [N, t, H, .]; `masks`: keyword
        arguments of the operators. first: tokens before queries[:, 0], None
        where sequences differ."""
        raise NotImplementedError

    def facts(self, keys: torch.Tensor, values: torch.Tensor) -> dict[str, Any]:
        """What a state must agree on with the module that reads it."""
        heads, d_key = keys.shape[-2:]
        return self.facts_of(heads, d_key, values.shape[-1], values.dtype)

    @staticmethod
    def facts_of(heads: int, d_key: int, d_value: int, dtype: torch.dtype) -> dict[str, Any]:
        """The same facts from the sizes."""
        return {"heads": heads, "d_key": d_key, "d_value": d_value, "dtype": str(dtype)}

    def _adopt(self, keys: torch.Tensor, values: torch.Tensor) -> AttentionState:
        """A state made of plain caches, keys [N, H, t, E] and values [N, H, t, M],
        all of whose tokens are valid."""
        want_part("keys", keys, (None,) * 4)
        want_part("values", values, (*keys.shape[:3], None))
        tensors = {"keys": keys.transpose(1, 2), "values": values.transpose(1, 2)}
        steps = torch.full((keys.shape[0],), keys.shape[2], dtype=torch.int64, device="cpu")
        facts = self.facts(tensors["keys"], tensors["values"])
        return AttentionState(self.kind, tensors, steps, facts)

    def step(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        state: State = None,
    ) -> tuple[torch.Tensor, AttentionState]:
        """Does what CausalSteps.step does. Sequences of equal length skip what prefill does
        for unequal ones."""
        batch = query.shape[0]
        facts = self.facts(key, value)
        held = begin(state, self.kind, batch, facts, _NAMES, self._adopt)
        if held is None or batch == 0 or int(held.steps.min()) < held["keys"].shape[1]:
            return super().step(query, key, value, state)
        first = held["keys"].shape[1]
        keys = torch.cat([held["keys"], key[:, None]], dim=1)
        values = torch.cat([held["values"], value[:, None]], dim=1)
        masks = {"causal": True, "causal_offset": first}
        out = self.attend(query[:, None], keys, values, masks, first)
        tensors = {"keys": keys, "values": values}
        return out[:, 0], AttentionState(self.kind, tensors, held.steps + 1, facts)

    def prefill(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        lengths: Lengths | None = None,
        state: State = None,
    ) -> tuple[torch.Tensor, AttentionState]:
        """Does what CausalSteps.prefill does, for sequences of any lengths."""
        batch, seq_len = queries.shape[:2]
        new = lengths_of(lengths, batch, seq_len)
        facts = self.facts(keys, values)
        state = begin(state, self.kind, batch, facts, _NAMES, self._adopt)
        steps = steps_of(state, batch)
        if state is not None and batch > 0 and seq_len > 0:
            keys = append_rows(state["keys"], steps, keys, new)
            values = append_rows(state["values"], steps, values, new)
        elif state is not None:
            keys, values = state["keys"], state["values"]
        total = steps + new
        first = same_length(steps)
        masks = cache_masks(steps, new, seq_len, keys)
        out = self.attend(queries, keys, values, masks, first)
        # Padding after the longest sequence is not kept.
        kept = int(total.max()) if batch else 0
        tensors = {"keys": keys[:, :kept], "values": values[:, :kept]}
        return out, AttentionState(self.kind, tensors, total, facts)
