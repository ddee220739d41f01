"""The layer around every kind of attention: for whole sequences, piece by piece with
a state, and over a memory."""

from __future__ import annotations

from typing import Any

import torch

from tarn._fused import Branch, has_no_hooks, whole
from tarn._hooks import call, heard, hooked
from tarn.attention._projections import SteppedProjections
from tarn.attention._steps import MemoryReader
from tarn.events import EventDispatcher
from tarn.masking import BaseMask
from tarn.recurrent._inputs import Lengths
from tarn.recurrent._state import AttentionState


class AttentionLayer(SteppedProjections):
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
        zero_padded_queries: whether rows beyond their query length give zeros
            and send no gradient, instead of being treated like any other row.

    Parameters, initialised as torch.nn.Linear: query_projection [H E, D],
    key_projection [H E, D_memory], value_projection [H M, D_memory],
    out_projection [D, H M], each with a bias.
    """

    _one_call = True  # a step may join it with the rest of a layer

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
        sizes = d_model, n_heads, d_keys, d_values
        super().__init__(attention, *sizes, event_dispatcher, d_memory)
        self.zero_padded_queries = zero_padded_queries

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
        """The result of forward before out_projection, and the latter's weight and bias,
        for a caller that applies them in a later pass; None where already applied."""
        queries, keys, values = self._all_heads(queries, keys, values)
        queries, keys = self._placed(queries, keys, None)
        attended = self.inner_attention(
            queries, keys, values, attn_mask, query_lengths, key_lengths
        )
        if not self.zero_padded_queries or query_lengths is None:
            return self._out(attended, 2)
        out = whole(self._out(attended, 2))
        return Branch(torch.where(query_lengths.bool_matrix.unsqueeze(-1), out, 0.0))

    @hooked
    def memory_state(
        self, memory: torch.Tensor, key_lengths: Lengths | None = None
    ) -> AttentionState:
        """The state of a memory [N, S, D_memory] for `read`, built once. Raises
        ValueError where the kind has no such form."""
        if not isinstance(self.inner_attention, MemoryReader):
            raise ValueError(
                "attention: want linear or full to read a memory piece by piece, got "
                f"{type(self.inner_attention).__name__}"
            )
        keys, values = self._heads(memory, "key", "value")
        self._tell(None, keys, values)
        return call(self.inner_attention, "build_state", keys, values, key_lengths)

    @hooked
    def read(self, x: torch.Tensor, state: AttentionState) -> torch.Tensor:
        """Attention of queries x [N, L, D], or [N, D] for one each, to a memory ->
        the same shape."""
        return whole(self.unbiased_read(x, state))

    def unbiased_read(self, x: torch.Tensor, state: AttentionState) -> Branch:
        """read before out_projection, as in `unbiased`."""
        (queries,) = self._heads(x, "query")
        self._tell(queries, None, None)
        if x.dim() == 3:
            attended = call(self.inner_attention, "read", queries, state)
        else:
            attended = call(self.inner_attention, "read", queries[:, None], state)[:, 0]
        return self._out(attended, x.dim() - 1)


def branch_of(attention: Any, queries: torch.Tensor, memory: torch.Tensor, **masks: Any) -> Branch:
    """The result of an attention on queries and a memory. An attention that is no
    plain AttentionLayer is called as it is."""
    plain = isinstance(attention, AttentionLayer) and has_no_hooks(attention)
    if plain and type(attention).forward is AttentionLayer.forward:
        return attention.unbiased(queries, memory, memory, **masks)
    masked = getattr(attention, "masked", None)  # of a tarn.nn.Mixer
    if masked is not None and has_no_hooks(attention):
        return masked(queries, memory, memory, **masks)
    return Branch(attention(queries, memory, memory, **masks))


def advanced(attention: Any, name: str, x: torch.Tensor, **options: Any) -> tuple[Branch, Any]:
    """The result of an attention's method prefill or step: the branch and the new state."""
    if heard(attention):
        out, state = call(attention, name, x, **options)
        return Branch(out), state
    return getattr(attention, f"unbiased_{name}")(x, **options)


def read_by(attention: Any, x: torch.Tensor, state: AttentionState) -> Branch:
    """The result of an attention's method read."""
    if heard(attention):
        return Branch(call(attention, "read", x, state))
    return attention.unbiased_read(x, state)
