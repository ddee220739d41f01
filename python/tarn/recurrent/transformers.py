"""Transformer encoders and decoders as RNNs: [N, D] in, [N, D] and a state
out. They are the twins of `tarn.transformers`, with the same parameters."""

from __future__ import annotations

from typing import Any

import torch

from tarn._fused import Branch
from tarn._hooks import call, hooked
from tarn._layer_step import decoder_step
from tarn._stacks import DecoderParts, EncoderParts, Stack
from tarn.masking import LengthMask
from tarn.recurrent._inputs import Lengths, check_state
from tarn.recurrent._state import AttentionState


class RecurrentTransformerEncoderLayer(EncoderParts):
    """Self attention to the past and a feed-forward network, one token per call.

    Args:
        attention: a RecurrentAttentionLayer, or a callable like one.
        d_model: width D.
        d_ff: hidden width; None: 4 d_model.
        dropout: probability, in training.
        activation: "relu", "gelu" (the exact form) or "gelu-tanh".
        event_dispatcher: name or object.
        norm: "post", "pre", "after", "both" or "none", and residual_factor,
            norm_offset and parallel_residual, as in `tarn.transformers.TransformerEncoderLayer`. norm_eps:
            inside the root of the norms.
        norm_kind: "layer", or "rms": y = x / sqrt(mean(x**2) + eps) * weight.
        feed_forward: "mlp", or "swiglu": linear2(drop(silu(linear1(u)) *
            linear3(u))) without biases; `activation` is then unused. "geglu": the same
            with gelu for silu, "geglu-tanh": with its form that has a tanh. "relu2":
            linear2(drop(relu(linear1(u))**2)), without biases. "none": no part, and no norm for it. Or
            "channel-mix", as in `tarn.transformers.TransformerEncoderLayer`.
    """

    attention: Any  # called as a RecurrentAttentionLayer
    _one_call = True  # see `_layer_step.py`

    def forward(
        self,
        x: torch.Tensor,
        state: AttentionState | None = None,
        memory: AttentionState | None = None,
    ) -> tuple[torch.Tensor, AttentionState]:
        """x [N, D] -> ([N, D], new state)."""
        state = check_state(state, memory)
        return self._step_with_state(x, state, lambda y: _whole(self.attention(y, y, y, state)))

    @hooked
    def prefill(
        self,
        x: torch.Tensor,
        lengths: Lengths | None = None,
        state: AttentionState | None = None,
    ) -> tuple[torch.Tensor, AttentionState]:
        """x [N, L, D] -> ([N, L, D], state), equal to L calls of forward."""
        return self._with_state(
            x,
            state,
            lambda y: _whole(call(self.attention, "prefill", y, y, y, lengths, state)),
            lengths,
        )


class RecurrentTransformerEncoder(Stack):
    """A stack of RecurrentTransformerEncoderLayer and an optional last norm.

    Args:
        layers: the layers. norm_layer: applied to the output, or None.
        event_dispatcher: name or object; IntermediateOutput after each layer.
    """

    def forward(
        self,
        x: torch.Tensor,
        state: list[AttentionState] | None = None,
        memory: list[AttentionState] | None = None,
    ) -> tuple[torch.Tensor, list[AttentionState]]:
        """x [N, D], state a list with one state per layer, or None -> ([N, D],
        new list). The given list is not changed."""
        state = check_state(state, memory)
        return self._step(x, state, lambda layer, y, held: layer(y, held))

    @hooked
    def prefill(
        self,
        x: torch.Tensor,
        lengths: Lengths | None = None,
        state: list[AttentionState] | None = None,
    ) -> tuple[torch.Tensor, list[AttentionState]]:
        """x [N, L, D] -> ([N, L, D], list of states), equal to L calls of
        forward. lengths: [N] or a LengthMask, tokens of each sequence; rows of
        the output past them are unspecified."""
        return self._advance(
            x, state, lambda layer, y, held: call(layer, "prefill", y, lengths, held)
        )


class RecurrentTransformerDecoderLayer(DecoderParts):
    """Self attention to the past, cross attention to a memory and a
    feed-forward network, one token per call.

    Args:
        self_attention: a RecurrentAttentionLayer, or a callable like one.
        cross_attention: a RecurrentCrossAttentionLayer, or a callable like one.
        The rest as in RecurrentTransformerEncoderLayer.
    """

    _one_call = True
    self_attention: Any  # called as a RecurrentAttentionLayer
    cross_attention: Any  # called as a RecurrentCrossAttentionLayer

    @hooked
    def initial_state(
        self,
        memory: torch.Tensor,
        memory_length_mask: Lengths | None = None,
    ) -> list[AttentionState | None]:
        """The state before the first token: [None, cross state]."""
        return [None, call(self.cross_attention, "build_state", memory, memory, memory_length_mask)]

    def forward(
        self,
        x: torch.Tensor,
        memory: torch.Tensor | None = None,
        memory_length_mask: Lengths | None = None,
        state: list[AttentionState | None] | None = None,
    ) -> tuple[torch.Tensor, list[AttentionState | None]]:
        """x [N, D], memory [N, S, D_memory] -> ([N, D], [self state, cross
        state]). The memory is read in the first call; later ones take None or
        the same tensor."""
        past, cross = state or (None, None)
        mask = _all_of(memory, memory_length_mask)
        return self._with_states(
            x,
            lambda y: _whole(self.self_attention(y, y, y, state=past)),
            lambda y: _whole(self.cross_attention(y, memory, memory, mask, state=cross)),
        )

    @hooked
    def prefill(
        self,
        x: torch.Tensor,
        memory: torch.Tensor | None = None,
        memory_length_mask: Lengths | None = None,
        lengths: Lengths | None = None,
        state: list[AttentionState | None] | None = None,
    ) -> tuple[torch.Tensor, list[AttentionState | None]]:
        """x [N, L, D] -> ([N, L, D], state), equal to L calls of forward."""
        past, cross = state or (None, None)
        own, cross_attention = self.self_attention, self.cross_attention
        mask = _all_of(memory, memory_length_mask)
        return self._with_states(
            x,
            lambda y: _whole(call(own, "prefill", y, y, y, lengths, past)),
            lambda y: _whole(
                call(cross_attention, "prefill", y, memory, memory, mask, state=cross)
            ),
        )


def _whole(result: tuple[torch.Tensor, Any]) -> tuple[Branch, Any]:
    """The result of any callable, with nothing left to be applied."""
    out, state = result
    return Branch(out), state


class RecurrentTransformerDecoder(Stack):
    """A stack of RecurrentTransformerDecoderLayer and an optional last norm.

    Args: as RecurrentTransformerEncoder.
    """

    @hooked
    def initial_state(
        self,
        memory: torch.Tensor,
        memory_length_mask: Lengths | None = None,
    ) -> list[list[AttentionState | None]]:
        """The state before the first token; `memory` can be left out afterwards."""
        given = memory, memory_length_mask
        return [call(layer, "initial_state", *given) for layer in self.layers]

    def forward(
        self,
        x: torch.Tensor,
        memory: torch.Tensor | None = None,
        memory_length_mask: Lengths | None = None,
        state: list[list[AttentionState | None]] | None = None,
    ) -> tuple[torch.Tensor, list[list[AttentionState | None]]]:
        """x [N, D], memory [N, S, D_memory], state a list with one state per
        layer, or None -> ([N, D], new list). The given list is not changed."""
        return decoder_step(self, x, state, memory) or self._advance(
            x, state, lambda layer, y, held: layer(y, memory, memory_length_mask, state=held)
        )

    @hooked
    def prefill(
        self,
        x: torch.Tensor,
        memory: torch.Tensor | None = None,
        memory_length_mask: Lengths | None = None,
        lengths: Lengths | None = None,
        state: list[list[AttentionState | None]] | None = None,
    ) -> tuple[torch.Tensor, list[list[AttentionState | None]]]:
        """x [N, L, D] -> ([N, L, D], list of states), equal to L calls of
        forward."""
        return self._advance(
            x,
            state,
            lambda layer, y, held: call(
                layer, "prefill", y, memory, memory_length_mask, lengths=lengths, state=held
            ),
        )


def _all_of(memory: torch.Tensor | None, mask: Lengths | None) -> Lengths | None:
    """The mask given, else one that keeps a whole memory: custom attentions may rely
    on an object."""
    if mask is not None or memory is None:
        return mask
    return LengthMask.full(memory.shape[0], memory.shape[1], memory.device)
