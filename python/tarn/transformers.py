"""Encoders and decoders around any kind of attention; batch first, sequence
second. Where the attentions have a recurrent form they also run as RNNs: `prefill`
and `step` with a state that is a value."""

from __future__ import annotations

from typing import Any

import torch

from tarn._fused import Branch
from tarn._hooks import call, hooked
from tarn._layer_step import decoder_step
from tarn._passed_rows import PassedRows, handed
from tarn._stacks import DecoderParts, EncoderParts, Stack
from tarn.attention.attention_layer import advanced, branch_of, read_by
from tarn.masking import BaseMask, FullMask, LengthMask
from tarn.recurrent._inputs import Lengths, State
from tarn.recurrent._state import AttentionState

__all__ = [
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]


def _all_queries(mask: BaseMask | None, rows: torch.Tensor, columns: torch.Tensor) -> BaseMask:
    """The attention mask given, else one of ones: custom attentions may rely on an
    object, and a mask of ones holds no matrix."""
    if mask is not None:
        return mask
    return FullMask(rows.shape[1], columns.shape[1], device=rows.device)


def _all_lengths(mask: BaseMask | None, x: torch.Tensor) -> BaseMask:
    return mask if mask is not None else LengthMask.full(x.shape[0], x.shape[1], x.device)


# The states of one decoder layer: of its self attention, and of its memory.
DecoderState = list[AttentionState | None]


class TransformerEncoderLayer(EncoderParts):
    """Self attention and a feed-forward network with residuals and norms.

        post: x1 = norm1(x + drop(Att(x)));  y = norm2(x1 + drop(FFN(x1)))
        pre:  x1 = x + drop(Att(norm1(x)));  y = x1 + drop(FFN(norm2(x1)))

    with FFN(u) = linear2(drop(activation(linear1(u)))).

    Args:
        attention: an AttentionLayer, or a callable like one.
        d_model: width D.
        d_ff: hidden width; None: 4 d_model.
        dropout: probability, in training.
        activation: "relu", "gelu" (the exact form) or "gelu-tanh".
        event_dispatcher: a name or a dispatcher.
        norm: "post", "pre", "after": x + drop(norm1(Att(x))), "both": x +
            drop(norm1_after(Att(norm1(x)))), or "none", and so for FFN. norm_eps: inside
            the root of the norms. residual_factor: of what is added to x. norm_offset:
            what the norms add to their weight, which begins as 1 - norm_offset.
            parallel_residual: FFN reads the layer's x too, not with "post".
        norm_kind: "layer", or "rms": y = x / sqrt(mean(x**2) + eps) * weight.
        feed_forward: "mlp", or "swiglu": linear2(drop(silu(linear1(u)) *
            linear3(u))) without biases; `activation` is then unused. "geglu": the same
            with gelu for silu, "geglu-tanh": with its form that has a tanh. "relu2":
            linear2(drop(relu(linear1(u))**2)), without biases. "none": no part, and no norm for it. "channel-mix":
            linear2(drop(relu(linear1(u + token_shift * (u' - u)))**2)), also without
            biases, with u' the row before u (zeros before the first, and for one that
            is not valid): RWKV-7's, arXiv 2503.14456. A state then holds the row before
            the next one too, as channel_shift [N, D].

    Raises ValueError.
    """

    attention: Any  # called as an AttentionLayer
    _one_call = True  # see `_layer_step.py`

    def forward(
        self,
        x: torch.Tensor,
        attn_mask: BaseMask | None = None,
        length_mask: BaseMask | None = None,
        passed: PassedRows | None = None,
    ) -> torch.Tensor:
        """x [N, L, D] -> [N, L, D]. attn_mask: which positions read which.
        length_mask [N, L]: which positions are valid. None keeps all. passed: rows that
        layers pass on, given by the stack where `passes` is True."""
        attn_mask = _all_queries(attn_mask, x, x)
        length_mask = _all_lengths(length_mask, x)

        def attend(y: torch.Tensor) -> Branch:
            return branch_of(
                self.attention,
                y,
                y,
                attn_mask=attn_mask,
                query_lengths=length_mask,
                key_lengths=length_mask,
                **PassedRows.given(passed),
            )

        return self._whole(x, attend, length_mask)

    @property
    def passes(self) -> bool:
        """Whether its attention makes or reads rows that layers pass on."""
        return getattr(self.attention, "passes", False)

    @hooked
    def prefill(
        self,
        x: torch.Tensor,
        lengths: Lengths | None = None,
        state: State = None,
        passed: PassedRows | None = None,
    ) -> tuple[torch.Tensor, AttentionState]:
        """x [N, L, D], the tokens after a state's -> ([N, L, D], new state), as
        forward under a causal mask on all of them. lengths: [N] or a LengthMask,
        tokens of each sequence. For an AttentionLayer only; raises ValueError
        where its kind has no recurrent form."""
        options = {"lengths": lengths, "state": state, **PassedRows.given(passed)}
        return self._with_state(
            x, state, lambda y: advanced(self.attention, "prefill", y, **options), lengths
        )

    @hooked
    def step(
        self, x: torch.Tensor, state: State = None, passed: PassedRows | None = None
    ) -> tuple[torch.Tensor, AttentionState]:
        """One token of each sequence, x [N, D] -> ([N, D], new state)."""
        options = {"state": state, **PassedRows.given(passed)}
        return self._step_with_state(
            x, state, lambda y: advanced(self.attention, "step", y, **options)
        )


class TransformerDecoderLayer(DecoderParts):
    """Self attention, attention to a memory and a feed-forward network.

        post: x1 = norm1(x + drop(Self(x)));  x2 = norm2(x1 + drop(Cross(x1, memory)));
              y = norm3(x2 + drop(FFN(x2)))
        pre:  each norm comes before its part; the memory is taken as it is.

    self_attention, cross_attention: AttentionLayers, or callables like one.
    The rest as in TransformerEncoderLayer.
    """

    _one_call = True
    self_attention: Any  # called as an AttentionLayer
    cross_attention: Any  # called as an AttentionLayer

    def forward(
        self,
        x: torch.Tensor,
        memory: torch.Tensor,
        x_mask: BaseMask | None = None,
        x_length_mask: BaseMask | None = None,
        memory_mask: BaseMask | None = None,
        memory_length_mask: BaseMask | None = None,
    ) -> torch.Tensor:
        """x [N, L, D], memory [N, S, D_memory] -> [N, L, D]. x_mask [L, L] and
        memory_mask [L, S]: which positions read which; the length masks: which
        positions are valid. None keeps all."""
        x_mask = _all_queries(x_mask, x, x)
        x_length_mask = _all_lengths(x_length_mask, x)
        memory_mask = _all_queries(memory_mask, x, memory)
        memory_length_mask = _all_lengths(memory_length_mask, memory)

        def attend(y: torch.Tensor) -> Branch:
            return branch_of(
                self.self_attention,
                y,
                y,
                attn_mask=x_mask,
                query_lengths=x_length_mask,
                key_lengths=x_length_mask,
            )

        def cross(y: torch.Tensor) -> Branch:
            return branch_of(
                self.cross_attention,
                y,
                memory,
                attn_mask=memory_mask,
                query_lengths=x_length_mask,
                key_lengths=memory_length_mask,
            )

        return self._run(x, [attend, cross])[0]

    @hooked
    def initial_state(
        self, memory: torch.Tensor, memory_length_mask: Lengths | None = None
    ) -> DecoderState:
        """The state before the first token: [None, the state of the memory].
        For AttentionLayers only."""
        return [None, call(self.cross_attention, "memory_state", memory, memory_length_mask)]

    @hooked
    def prefill(
        self, x: torch.Tensor, state: DecoderState, lengths: Lengths | None = None
    ) -> tuple[torch.Tensor, DecoderState]:
        """x [N, L, D], the tokens after a state's -> ([N, L, D], new state)."""
        options = {"lengths": lengths, "state": state[0]}
        return self._after(
            x, state, lambda y: advanced(self.self_attention, "prefill", y, **options)
        )

    @hooked
    def step(self, x: torch.Tensor, state: DecoderState) -> tuple[torch.Tensor, DecoderState]:
        """One token of each sequence, x [N, D] -> ([N, D], new state)."""
        return self._after(
            x, state, lambda y: advanced(self.self_attention, "step", y, state=state[0])
        )

    def _after(self, x, state, attend):
        def read(y: torch.Tensor) -> tuple[Branch, AttentionState]:
            return read_by(self.cross_attention, y, state[1]), state[1]

        return self._with_states(x, attend, read)


class TransformerEncoder(Stack):
    """A stack of TransformerEncoderLayer.

    Args:
        layers: the layers, or modules called like them.
        norm_layer: applied to the output, or None.
        event_dispatcher: a name or a dispatcher; it gets IntermediateOutput after
            each layer.
    """

    _one_call = True  # a step may join it with what is around it

    def forward(
        self,
        x: torch.Tensor,
        attn_mask: BaseMask | None = None,
        length_mask: BaseMask | None = None,
    ) -> torch.Tensor:
        """Takes and returns what TransformerEncoderLayer's forward does."""
        attn_mask = _all_queries(attn_mask, x, x)
        length_mask = _all_lengths(length_mask, x)

        passed = PassedRows()

        def call(layer: torch.nn.Module, y: torch.Tensor) -> torch.Tensor:
            masks = {"attn_mask": attn_mask, "length_mask": length_mask}
            return layer(y, **masks, **handed(layer, passed))

        return self._run(x, call)

    @hooked
    def prefill(
        self, x: torch.Tensor, lengths: Lengths | None = None, state: Any = None
    ) -> tuple[torch.Tensor, list[AttentionState]]:
        """x [N, L, D], the tokens after those of a state (a list, one a layer;
        None: none) -> ([N, L, D], new list). All else is TransformerEncoderLayer.prefill's."""
        passed = PassedRows()

        def advance(layer: torch.nn.Module, y: torch.Tensor, held: Any) -> Any:
            return call(layer, "prefill", y, lengths, held, **handed(layer, passed))

        return self._advance(x, state, advance)

    @hooked
    def step(self, x: torch.Tensor, state: Any = None) -> tuple[torch.Tensor, list[AttentionState]]:
        """One token of each sequence, x [N, D] -> ([N, D], new list)."""
        passed = PassedRows()

        def advance(layer: torch.nn.Module, y: torch.Tensor, held: Any) -> Any:
            return call(layer, "step", y, held, **handed(layer, passed))

        return self._step(x, state, advance)


class TransformerDecoder(Stack):
    """A stack of TransformerDecoderLayer; arguments as TransformerEncoder."""

    def forward(
        self,
        x: torch.Tensor,
        memory: torch.Tensor,
        x_mask: BaseMask | None = None,
        x_length_mask: BaseMask | None = None,
        memory_mask: BaseMask | None = None,
        memory_length_mask: BaseMask | None = None,
    ) -> torch.Tensor:
        """Takes and returns what TransformerDecoderLayer's forward does."""
        masks = {
            "x_mask": _all_queries(x_mask, x, x),
            "x_length_mask": _all_lengths(x_length_mask, x),
            "memory_mask": _all_queries(memory_mask, x, memory),
            "memory_length_mask": _all_lengths(memory_length_mask, memory),
        }

        def call(layer: torch.nn.Module, y: torch.Tensor) -> torch.Tensor:
            return layer(y, memory, **masks)

        return self._run(x, call)

    @hooked
    def initial_state(
        self, memory: torch.Tensor, memory_length_mask: Lengths | None = None
    ) -> list[DecoderState]:
        """The state before the first token: every layer reads the memory once."""
        given = memory, memory_length_mask
        return [call(layer, "initial_state", *given) for layer in self.layers]

    @hooked
    def prefill(
        self, x: torch.Tensor, state: list[DecoderState], lengths: Lengths | None = None
    ) -> tuple[torch.Tensor, list[DecoderState]]:
        """x [N, L, D], the tokens after those of a state -> ([N, L, D], new
        state)."""
        return self._advance(
            x, state, lambda layer, y, held: call(layer, "prefill", y, held, lengths)
        )

    @hooked
    def step(
        self, x: torch.Tensor, state: list[DecoderState]
    ) -> tuple[torch.Tensor, list[DecoderState]]:
        """One token of each sequence, x [N, D] -> ([N, D], new state)."""
        return decoder_step(self, x, state) or self._advance(
            x, state, lambda layer, y, held: call(layer, "step", y, held)
        )
