"""The four affine maps around an attention, which the layers of `tarn.attention`,
`tarn.nn` and `tarn.recurrent` share."""

from __future__ import annotations

from typing import Any

import torch

from tarn._fused import Branch, affine, linears, serves, whole
from tarn._hooks import call, hooked
from tarn._tables import recurrent_mixers
from tarn.attention._steps import CausalSteps
from tarn.events import EventDispatcher, QKVEvent
from tarn.recurrent._inputs import Lengths, State
from tarn.recurrent._state import AttentionState

_ALL = ("query", "key", "value")


class Projections(torch.nn.Module):
    """An inner attention and the maps to its heads and back; arguments and
    parameters as in `tarn.attention.AttentionLayer`."""

    inner_attention: Any

    def __init__(
        self,
        attention: Any,
        d_model: int,
        n_heads: int,
        d_keys: int | None = None,
        d_values: int | None = None,
        event_dispatcher: str | EventDispatcher = "",
        d_memory: int | None = None,
    ):
        super().__init__()
        d_keys = d_model // n_heads if d_keys is None else d_keys
        d_values = d_model // n_heads if d_values is None else d_values
        d_memory = d_model if d_memory is None else d_memory
        self.inner_attention = attention
        self.query_projection: torch.nn.Linear = torch.nn.Linear(d_model, d_keys * n_heads)
        self.key_projection: torch.nn.Linear = torch.nn.Linear(d_memory, d_keys * n_heads)
        self.value_projection: torch.nn.Linear = torch.nn.Linear(d_memory, d_values * n_heads)
        self.out_projection: torch.nn.Linear = torch.nn.Linear(d_values * n_heads, d_model)
        self.n_heads = n_heads
        self.event_dispatcher: EventDispatcher = EventDispatcher.get(event_dispatcher)

    def _heads(self, x: torch.Tensor, *names: str) -> tuple[torch.Tensor, ...]:
        """x [..., D] under the named projections -> [..., H, width] each."""
        maps = tuple(getattr(self, f"{name}_projection") for name in names)
        return tuple(rows.unflatten(-1, (self.n_heads, -1)) for rows in affine(maps, x))

    def _all_heads(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """[..., width] each -> heads, which are sent to listeners. The projections of
        one tensor are one product."""
        if queries is keys is values:
            heads = self._heads(queries, *_ALL)
        elif keys is values:
            heads = *self._heads(queries, "query"), *self._heads(keys, "key", "value")
        else:
            pairs = zip((queries, keys, values), _ALL, strict=True)
            heads = tuple(self._heads(x, name)[0] for x, name in pairs)
        self._tell(*heads)
        return heads

    def _out(self, attended: torch.Tensor, axis: int) -> Branch:
        """[..., H, M], heads on this axis or already joined there -> [..., H M] and
        the projection still to be applied, or [..., D]."""
        rows, projection = attended.flatten(axis), self.out_projection
        if not (serves(rows) and linears(projection)):
            return Branch(projection(rows))
        return Branch(rows, projection.bias, projection.weight)

    def _tell(
        self,
        queries: torch.Tensor | None,
        keys: torch.Tensor | None,
        values: torch.Tensor | None,
    ) -> None:
        if self.event_dispatcher.has_listeners(QKVEvent, self):
            self.event_dispatcher.dispatch(QKVEvent(self, queries, keys, values))


class SteppedProjections(Projections):
    """Projections that run piece by piece where the inner attention has a recurrent
    form."""

    @hooked
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
        """prefill before out_projection, as in `unbiased`."""
        attention = self._recurrent()
        queries, keys, values = self._placed_heads(x, state)
        attended, new_state = call(attention, "prefill", queries, keys, values, lengths, state)
        return self._out(attended, 2), new_state

    @hooked
    def step(self, x: torch.Tensor, state: State = None) -> tuple[torch.Tensor, AttentionState]:
        """One token of each sequence, [N, D] -> ([N, D], new state)."""
        branch, new_state = self.unbiased_step(x, state)
        return whole(branch), new_state

    def unbiased_step(self, x: torch.Tensor, state: State = None) -> tuple[Branch, AttentionState]:
        """step before out_projection, as in `unbiased`."""
        self._recurrent()  # raises before any work
        queries, keys, values = self._placed_heads(x, state)
        attended, new_state = self.step_heads(queries, keys, values, state)
        return self._out(attended, 1), new_state

    def step_heads(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, state: State
    ) -> tuple[torch.Tensor, AttentionState]:
        """The inner attention alone, on heads [N, H, width]."""
        return call(self._recurrent(), "step", queries, keys, values, state)

    def _placed_heads(
        self, x: torch.Tensor, state: State
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values [..., H, width] of the tokens after those of a state."""
        queries, keys, values = self._all_heads(x, x, x)
        return *self._placed(queries, keys, state), values

    def _placed(
        self, queries: torch.Tensor, keys: torch.Tensor, state: State
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Applies the positions of the tokens after a state's to queries and keys;
        here there are none."""
        return queries, keys

    def _recurrent(self) -> CausalSteps:
        if isinstance(self.inner_attention, CausalSteps):
            return self.inner_attention
        names = (f"causal-{kind}" if kind == "linear" else kind for kind in recurrent_mixers())
        raise ValueError(
            f"attention: want one with a recurrent form ({', '.join(names)}), got "
            f"{type(self.inner_attention).__name__}"
        )
