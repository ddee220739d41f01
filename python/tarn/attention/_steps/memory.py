"""Attention to a fixed memory: the state is built from it once, and every query
then only reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tarn import ops
from tarn.events import AttentionEvent, EventDispatcher
from tarn.masking import BaseMask
from tarn.recurrent._inputs import Lengths, State, lengths_of, want_pair, want_part
from tarn.recurrent._state import AttentionState


def keep_of(
    key_lengths: Lengths | None, batch_size: int, seq_len: int, device: torch.device
) -> torch.Tensor | None:
    """Kept keys, bool [N, S] (True = keep), of a mask, [N] lengths or None."""
    if key_lengths is None:
        return None
    wanted = (batch_size, seq_len)
    if isinstance(key_lengths, BaseMask) and key_lengths._all_ones and key_lengths.shape == wanted:
        return None  # known without reading a matrix
    mask = getattr(key_lengths, "bool_matrix", None)
    if mask is None:
        lengths = torch.as_tensor(key_lengths, device=device)
        mask = torch.arange(seq_len, device=device) < lengths[:, None]
    if mask.shape != wanted:
        raise ValueError(f"key_lengths: want a mask over {list(wanted)}, got {list(mask.shape)}")
    return mask.to(device)


class MemoryReader:
    """Answers queries from a memory. The state is built, or is the plain pair that
    fast-transformers uses for it."""

    _names: tuple[str, str]

    def build_state(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        key_lengths: Lengths | None = None,
    ) -> AttentionState:
        """The state of a memory: keys [N, S, H, E], values [N, S, H, M],
        key_lengths a mask, [N] lengths or None."""
        raise NotImplementedError(f"{type(self).__name__}: build_state is not defined")

    def adopt(
        self,
        first: torch.Tensor,
        second: torch.Tensor,
        query: torch.Tensor,
        key_lengths: Lengths | None,
    ) -> AttentionState:
        """A state made of a plain pair, for queries [N, ..., H, E]."""
        raise NotImplementedError(f"{type(self).__name__}: adopt is not defined")

    def read(self, queries: torch.Tensor, state: AttentionState) -> torch.Tensor:
        """queries [N, L, H, E] -> [N, L, H, M]."""
        raise NotImplementedError(f"{type(self).__name__}: read is not defined")

    def begin(
        self,
        query: torch.Tensor,
        keys: torch.Tensor | None,
        values: torch.Tensor | None,
        key_lengths: Lengths | None,
        state: State,
    ) -> AttentionState:
        """The state to read: built from keys and values, the given one, or one made of
        a plain pair, whose mask is key_lengths."""
        if state is None:
            return self.build_state(keys, values, key_lengths)  # type: ignore[arg-type]
        if isinstance(state, AttentionState):
            return state
        return self.adopt(*want_pair(state, self._names), query, key_lengths)


class FullMemory(MemoryReader):
    """State: keys [N, S, H, E], values [N, S, H, M] and which of them are kept. A
    plain pair [keys, values] is a state too; its mask is that of the call. Mixed into
    a SoftmaxAttention, which has temperature and dropout."""

    memory_kind = "cross-full"
    _names = ("keys", "values")
    event_dispatcher: EventDispatcher
    _softmax_arguments: Callable[[], dict[str, Any]]

    def memory_facts(self, keys: torch.Tensor) -> dict[str, int | str]:
        """What a state of a memory must agree on with the module that reads it."""
        return {"heads": keys.shape[-2], "d_key": keys.shape[-1], "dtype": str(keys.dtype)}

    def build_state(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        key_lengths: Lengths | None = None,
    ) -> AttentionState:
        """The state of a memory; arguments as in MemoryReader."""
        batch, seq_len = keys.shape[:2]
        keep = keep_of(key_lengths, batch, seq_len, keys.device)
        if keep is None:
            keep = torch.ones(batch, seq_len, dtype=torch.bool, device=keys.device)
        tensors = {"keys": keys, "values": values, "keep": keep}
        steps = lengths_of(None, batch, seq_len)
        return AttentionState(self.memory_kind, tensors, steps, self.memory_facts(keys))

    def adopt(
        self,
        first: torch.Tensor,
        second: torch.Tensor,
        query: torch.Tensor,
        key_lengths: Lengths | None,
    ) -> AttentionState:
        """A state made of a pair [keys, values]."""
        want_part("keys", first, (query.shape[0], None, *query.shape[-2:]))
        want_part("values", second, (*first.shape[:3], None))
        return self.build_state(first, second, key_lengths)

    def read(self, queries: torch.Tensor, state: AttentionState) -> torch.Tensor:
        """queries [N, L, H, E] -> [N, L, H, M]. O(L S)."""
        state.check(self.memory_kind, queries.shape[0], self.memory_facts(queries))
        arguments = dict(self._softmax_arguments(), key_mask=state["keep"])
        if not self.event_dispatcher.has_listeners(AttentionEvent, self):
            return ops.full_attention(queries, state["keys"], state["values"], **arguments)
        out, weights = ops.full_attention(
            queries, state["keys"], state["values"], need_weights=True, **arguments
        )
        self.event_dispatcher.dispatch(AttentionEvent(self, weights))
        return out
