"""The layer around every kind of attention."""

from __future__ import annotations

from typing import Any

import torch

from tarn.events import EventDispatcher, QKVEvent
from tarn.masking import BaseMask


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
        heads = (self.n_heads, -1)
        queries = self.query_projection(queries).unflatten(-1, heads)
        keys = self.key_projection(keys).unflatten(-1, heads)
        values = self.value_projection(values).unflatten(-1, heads)
        if self.event_dispatcher.has_listeners(QKVEvent, self):
            self.event_dispatcher.dispatch(QKVEvent(self, queries, keys, values))
        attended = self.inner_attention(
            queries, keys, values, attn_mask, query_lengths, key_lengths
        )
        out = self.out_projection(attended.flatten(2))
        if self.zero_padded_queries and query_lengths is not None:
            out = torch.where(query_lengths.bool_matrix.unsqueeze(-1), out, 0.0)
        return out
