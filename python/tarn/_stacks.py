"""Layers and stacks that `tarn.transformers` and `tarn.recurrent.transformers` share:
parts in the order of fast-transformers, states collected on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch

from tarn._fused import Branch, normed
from tarn._layer_step import layer_step, stack_step
from tarn._moe_part import MixtureOptions
from tarn._residual_layer import ResidualLayer
from tarn._token_shift import CHANNEL_SHIFT, RowPlaces, places_after
from tarn.events import EventDispatcher, IntermediateOutput
from tarn.masking import BaseMask
from tarn.recurrent._inputs import Lengths, states_of
from tarn.recurrent._state import AttentionState

# An attention that continues from a state: rows -> (what it adds, its new state).
Attend = Callable[[torch.Tensor], tuple[Branch, Any]]


class EncoderParts(ResidualLayer):
    """One attention and the parts around it; arguments as in
    `tarn.transformers.TransformerEncoderLayer`."""

    attention: Any

    def __init__(
        self,
        attention: Any,
        d_model: int,
        d_ff: int | None = None,
        dropout: float = 0.1,
        activation: str = "relu",
        event_dispatcher: str | EventDispatcher = "",
        norm: str = "post",
        norm_eps: float = 1e-5,
        *,
        norm_kind: str = "layer",
        feed_forward: str = "mlp",
        moe: MixtureOptions | None = None,
        residual_factor: float = 1.0,
        norm_offset: float = 0.0,
        feed_forward_bias: str = "auto",
        parallel_residual: bool = False,
    ):
        attentions = {"attention": attention}
        options = (d_model, d_ff, dropout, activation, event_dispatcher, norm, norm_eps)
        super().__init__(
            attentions,
            *options,
            norm_kind=norm_kind,
            feed_forward=feed_forward,
            moe=moe,
            residual_factor=residual_factor,
            norm_offset=norm_offset,
            feed_forward_bias=feed_forward_bias,
            parallel_residual=parallel_residual,
        )

    def _whole(
        self, x: torch.Tensor, attend: Callable[[torch.Tensor], Branch], mask: BaseMask
    ) -> torch.Tensor:
        """Whole sequences, of which a mask tells the valid positions."""
        places = None
        reads = self.token_shift is not None or self.part.mixture
        if reads and not mask._all_ones:
            places = RowPlaces(mask.bool_matrix.to(x.device).expand(x.shape[:2]))
        return self._run(x, [attend], places)[0]

    def _step_with_state(
        self, x: torch.Tensor, state: Any, attend: Attend
    ) -> tuple[torch.Tensor, Any]:
        """Does what _with_state does for one token after a state, in one call where the result
        is the same."""
        return layer_step(self, x, state) or self._with_state(x, state, attend)

    def _with_state(
        self, x: torch.Tensor, state: Any, attend: Attend, lengths: Lengths | None = None
    ) -> tuple[torch.Tensor, Any]:
        """Rows after a state, which holds what the feed-forward part carries in
        addition to the tensors of the attention."""
        sublayer, held = _keeping_state(attend)
        places = None
        if self.token_shift is not None:
            places = places_after(x, state, lengths)
        out, carried = self._run(x, [sublayer], places)
        return out, with_carried(held[0], carried)


class DecoderParts(ResidualLayer):
    """Attention to the past, to a memory and the parts around them; arguments as
    in `tarn.transformers.TransformerDecoderLayer`."""

    self_attention: Any
    cross_attention: Any

    def __init__(
        self,
        self_attention: Any,
        cross_attention: Any,
        d_model: int,
        d_ff: int | None = None,
        dropout: float = 0.1,
        activation: str = "relu",
        event_dispatcher: str | EventDispatcher = "",
        norm: str = "post",
        norm_eps: float = 1e-5,
        *,
        norm_kind: str = "layer",
        feed_forward: str = "mlp",
        residual_factor: float = 1.0,
        norm_offset: float = 0.0,
        feed_forward_bias: str = "auto",
    ):
        if feed_forward in ("channel-mix", "gated-channel-mix", "none", "moe"):
            raise ValueError(
                f"{type(self).__name__}: feed_forward: want a part of maps alone, as 'mlp' "
                f"or 'swiglu', in a layer that reads a memory, got {feed_forward!r}"
            )
        attentions = {"self_attention": self_attention, "cross_attention": cross_attention}
        options = (d_model, d_ff, dropout, activation, event_dispatcher, norm, norm_eps)
        super().__init__(
            attentions,
            *options,
            norm_kind=norm_kind,
            feed_forward=feed_forward,
            residual_factor=residual_factor,
            norm_offset=norm_offset,
            feed_forward_bias=feed_forward_bias,
        )

    def _with_states(
        self, x: torch.Tensor, attend: Attend, read: Attend
    ) -> tuple[torch.Tensor, list[Any]]:
        sublayer, past = _keeping_state(attend)
        reader, memory = _keeping_state(read)
        return self._run(x, [sublayer, reader])[0], [past[0], memory[0]]


def with_carried(state: Any, carried: torch.Tensor | None) -> Any:
    """The state of an attention and what the feed-forward part carries with it."""
    if carried is None:
        return state
    if not isinstance(state, AttentionState):
        given = type(state).__name__
        raise TypeError(f"attention: want one whose state is an AttentionState, got {given}")
    return replace(state, tensors={**state.tensors, CHANNEL_SHIFT: carried})


def _keeping_state(attend: Attend) -> tuple[Callable[[torch.Tensor], Branch], list[Any]]:
    """A sublayer that appends the state it makes to a list, and that list."""
    held: list[Any] = []

    def sublayer(y: torch.Tensor) -> Branch:
        branch, state = attend(y)
        held.append(state)
        return branch

    return sublayer, held


class Stack(torch.nn.Module):
    """Layers and an optional last norm."""

    def __init__(
        self,
        layers: Iterable[torch.nn.Module],
        norm_layer: torch.nn.Module | None = None,
        event_dispatcher: str | EventDispatcher = "",
    ):
        super().__init__()
        self.layers: torch.nn.ModuleList = torch.nn.ModuleList(layers)
        self.norm = norm_layer
        self.event_dispatcher: EventDispatcher = EventDispatcher.get(event_dispatcher)

    def _run(
        self, x: torch.Tensor, call: Callable[[torch.nn.Module, torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        for index, layer in enumerate(self.layers):
            x = call(layer, x)
            if self.event_dispatcher.has_listeners(IntermediateOutput, self):
                self.event_dispatcher.dispatch(IntermediateOutput(self, x, index))
        return normed(self.norm, x)

    def _step(
        self, x: torch.Tensor, states: Any, call: Callable[..., Any]
    ) -> tuple[torch.Tensor, list[Any]]:
        """Does what _advance does for one token, in one call where the result is the same."""
        return stack_step(self, x, states) or self._advance(x, states, call)

    def _advance(
        self, x: torch.Tensor, states: Any, call: Callable[..., Any]
    ) -> tuple[torch.Tensor, list[Any]]:
        """Does what _run does for layers that take a state and return a new one."""
        states = states_of(states, len(self.layers))
        new_states: list[Any] = []

        def with_state(layer: torch.nn.Module, y: torch.Tensor) -> torch.Tensor:
            y, state = call(layer, y, states[len(new_states)])
            new_states.append(state)
            return y

        return self._run(x, with_state), new_states
