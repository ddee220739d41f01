"""The layer around every kind of attention: whole sequences, piece by piece with a
state, and over a memory."""

from __future__ import annotations

from typing import Any

import torch

from tarn import ops
from tarn._fused import Branch, affine, linears, serves, unheard, whole
from tarn.attention._steps import CausalSteps, MemoryReader
from tarn.events import EventDispatcher, QKVEvent
from tarn.masking import BaseMask
from tarn.recurrent._inputs import Lengths, State
from tarn.recurrent._state import AttentionState


_ALL = ("query", "key", "value")


class AttentionLayer(torch.nn.Module):
    """Projects to heads, attends, projects back.

    Args:
        attention: a module or other callable of (queries [N, L, H, E], keys [N, S, H, E],
            values [N, S, H, M], attn_mask, query_lengths, key_lengths) ->
            [N, L, H, M].
        d_model: width D of queries and outputs.
        n_heads: H.
        d_keys, d_values: E, M; None: d_model // n_heads.
        event_dispatcher: a name or a dispatcher.
        d_memory: width of keys and values as they come in; None: d_model.
        zero_padded_queries: whether rows beyond their query length come out as
            zeros and send no gradient, instead of like any other row.

    Parameters, initialised as torch.nn.Linear: query_projection [H E, D],
    key_projection [H E, D_memory], value_projection [H M, D_memory],
    out_projection [D, H M], each with a bias.
    """

    def __init__(
        self,
        attention: Any,
        d_model: int,
        n_heads: int,
        d_keys: int | None = None,
        d_values: int | None = None,
        event_dispatcher: str | EventDispatcher = "",
        *,
        d_memory: int | None = None,
        zero_padded_queries: bool = False,
    ):
        super().__init__()
        d_keys = d_model // n_heads if d_keys is None else d_keys
        d_values = d_model // n_heads if d_values is None else d_values
        d_memory = d_model if d_memory is None else d_memory
        self.inner_attention = attention
        self.query_projection = torch.nn.Linear(d_model, d_keys * n_heads)
        self.key_projection = torch.nn.Linear(d_memory, d_keys * n_heads)
        self.value_projection = torch.nn.Linear(d_memory, d_values * n_heads)
        self.out_projection = torch.nn.Linear(d_values * n_heads, d_model)
        self.n_heads = n_heads
        self.zero_padded_queries = zero_padded_queries
        self.event_dispatcher = EventDispatcher.get(event_dispatcher)

    def forward(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        attn_mask: BaseMask | None = None,
        query_lengths: BaseMask | None = None,
        key_lengths: BaseMask | None = None,
    ) -> torch.Tensor:
        """queries [N, L, D], keys and values [N, S, D_memory] -> [N, L, D]. Masks
        keep where they are True; None keeps all. Raises ValueError, TypeError."""
        masks = (attn_mask, query_lengths, key_lengths)
        return whole(self.unbiased(queries, keys, values, *masks))

    def unbiased(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        attn_mask: BaseMask | None = None,
        query_lengths: BaseMask | None = None,
        key_lengths: BaseMask | None = None,
    ) -> Branch:
        """forward without the bias of out_projection, and that bias, for a caller
        that adds it in a later pass; None where it is already in."""
        if queries is keys is values:
            queries, keys, values = self._heads(queries, *_ALL)
        else:
            (queries,) = self._heads(queries, "query")
            if keys is values:
                keys, values = self._heads(keys, "key", "value")
            else:
                (keys,), (values,) = self._heads(keys, "key"), self._heads(values, "value")
        self._tell(queries, keys, values)
        queries, keys = self._placed(queries, keys, None)
        attended = self.inner_attention(
            queries, keys, values, attn_mask, query_lengths, key_lengths
        )
        if not self.zero_padded_queries or query_lengths is None:
            return self._out(attended, 2)
        out = whole(self._out(attended, 2))
        return torch.where(query_lengths.bool_matrix.unsqueeze(-1), out, 0.0), None

    def prefill(
        self, x: torch.Tensor, lengths: Lengths | None = None, state: State = None
    ) -> tuple[torch.Tensor, AttentionState]:
        """Causal self attention of the tokens x [N, L, D] after those of a state
        (None: from the first) -> ([N, L, D], new state), equal to forward on all
        of them. lengths: [N] or a LengthMask, tokens of each sequence; rows past
        them are unspecified. Raises ValueError where the kind has no recurrent
        form."""
        branch, new_state = self.unbiased_prefill(x, lengths, state)
        return whole(branch), new_state

    def unbiased_prefill(
        self, x: torch.Tensor, lengths: Lengths | None = None, state: State = None
    ) -> tuple[Branch, AttentionState]:
        """prefill, with the bias apart as in `unbiased`."""
        attention = self._recurrent()
        queries, keys, values = self._placed_heads(x, state)
        attended, new_state = attention.prefill(queries, keys, values, lengths, state)
        return self._out(attended, 2), new_state

    def step(self, x: torch.Tensor, state: State = None) -> tuple[torch.Tensor, AttentionState]:
        """One token of each sequence, [N, D] -> ([N, D], new state)."""
        branch, new_state = self.unbiased_step(x, state)
        return whole(branch), new_state

    def unbiased_step(
        self, x: torch.Tensor, state: State = None
    ) -> tuple[Branch, AttentionState]:
        """step, with the bias apart as in `unbiased`."""
        attention = self._recurrent()
        queries, keys, values = self._placed_heads(x, state)
        attended, new_state = attention.step(queries, keys, values, state)
        return self._out(attended, 1), new_state

    def memory_state(
        self, memory: torch.Tensor, key_lengths: Lengths | None = None
    ) -> AttentionState:
        """What a memory [N, S, D_memory] comes to for `read`: built once. Raises
        ValueError where the kind has no such form."""
        if not isinstance(self.inner_attention, MemoryReader):
            raise ValueError(
                "attention: want linear or full to read a memory piece by piece, got "
                f"{type(self.inner_attention).__name__}"
            )
        keys, values = self._heads(memory, "key", "value")
        self._tell(None, keys, values)
        return self.inner_attention.build_state(keys, values, key_lengths)

    def read(self, x: torch.Tensor, state: AttentionState) -> torch.Tensor:
        """Queries x [N, L, D], or [N, D] for one each, to a memory -> the same
        shape."""
        return whole(self.unbiased_read(x, state))

    def unbiased_read(self, x: torch.Tensor, state: AttentionState) -> Branch:
        """read, with the bias apart as in `unbiased`."""
        (queries,) = self._heads(x, "query")
        self._tell(queries, None, None)
        if x.dim() == 3:
            attended = self.inner_attention.read(queries, state)
        else:
            attended = self.inner_attention.read(queries[:, None], state)[:, 0]
        return self._out(attended, x.dim() - 1)

    def _heads(self, x: torch.Tensor, *names: str) -> tuple[torch.Tensor, ...]:
        """x [..., D] under projections -> [..., H, width] each."""
        maps = tuple(getattr(self, f"{name}_projection") for name in names)
        return tuple(rows.unflatten(-1, (self.n_heads, -1)) for rows in affine(maps, x))

    def _out(self, attended: torch.Tensor, axis: int) -> Branch:
        """[..., H, M], heads on this axis or already joined there -> [..., D] and
        what is still to be added."""
        rows, projection = attended.flatten(axis), self.out_projection
        if not (serves(rows) and linears(projection)):
            return projection(rows), None
        return ops.affine(rows, projection.weight), projection.bias

    def _placed_heads(self, x, state):
        """Queries, keys and values [..., H, width] of tokens after a state's."""
        queries, keys, values = self._heads(x, *_ALL)
        self._tell(queries, keys, values)
        return *self._placed(queries, keys, state), values

    def _placed(self, queries, keys, state):
        """Where positions act on queries and keys: those of tokens after a
        state's; here they do not."""
        return queries, keys

    def _recurrent(self) -> CausalSteps:
        if isinstance(self.inner_attention, CausalSteps):
            return self.inner_attention
        raise ValueError(
            "attention: want a kind with a recurrent form (causal-linear, full, local, "
            f"exact-topk, aft-full, aft-simple), got {type(self.inner_attention).__name__}"
        )

    def _tell(self, queries, keys, values) -> None:
        if self.event_dispatcher.has_listeners(QKVEvent, self):
            self.event_dispatcher.dispatch(QKVEvent(self, queries, keys, values))


def branch_of(attention: Any, queries: torch.Tensor, memory: torch.Tensor, **masks: Any) -> Branch:
    """What an attention makes of queries and a memory. One that is no plain
    AttentionLayer is called as it is."""
    plain = isinstance(attention, AttentionLayer) and unheard(attention)
    if plain and type(attention).forward is AttentionLayer.forward:
        return attention.unbiased(queries, memory, memory, **masks)
    return attention(queries, memory, memory, **masks), None
