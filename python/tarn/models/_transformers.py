"""Decoder language model, encoder classifier, sequence to sequence."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch

from tarn._hooks import call, hooked
from tarn.masking import LengthMask, TriangularCausalMask
from tarn.models._config import finish_config
from tarn.models._language_step import language_step
from tarn.models._parts import (
    Config,
    Embedding,
    Predictor,
    check_arch,
    check_task,
    first_places,
    logits_of,
    make_embedding,
    make_input_norm,
    mask_of,
    mean_over_valid,
    outputs_of,
    valid_frames,
)
from tarn.models._stack import borrowing, make_decoder, make_encoder
from tarn.recurrent._inputs import Lengths
from tarn.recurrent._state import AttentionState
from tarn.transformers import TransformerDecoder, TransformerEncoder

# For each layer of a decoder the state of its attention to the past, None before the
# first token, and that of its attention to the source.
DecoderState = list[list[AttentionState | None]]


class _TokenModel(torch.nn.Module):
    """Embedding, causal or full stack, head; the keys `layers.*` and `norm.*` are
    at the root."""

    def __init__(self, config: Config, causal: bool) -> None:
        super().__init__()
        self.config = config
        tokens, table = make_embedding(config)
        name = "input_projection" if config["task"] == "ctc" else "value_embedding"
        # The parts are registered one by one: the weight file's names have no prefix.
        self.register_module(name, tokens)
        if table is not None:
            self.pos_embedding = table
        norm = make_input_norm(config)
        if norm is not None:
            self.input_norm = norm
        stack = make_encoder(config, causal)
        self.layers: torch.nn.ModuleList = stack.layers
        self.register_module("norm", stack.norm)
        self.predictor: Predictor = Predictor(
            outputs_of(config),
            config["d_model"],
            config["tied_head"],
            config["logit_factor"],
            config["head_bias"],
            config["logit_softcap"],
        )
        owner = type(self).__name__
        embedding = Embedding(owner, config, self._modules, name, "pos_embedding", "input_norm")
        self._unregistered = embedding, borrowing(stack, self)

    @property
    def _parts(self) -> tuple[Embedding, TransformerEncoder]:
        """What calls the children. It holds no references to them, so that a replaced
        child is the one that runs."""
        embedding, stack = self._unregistered
        if embedding.modules is not self._modules:  # a shallow copy, with its own children
            embedding = copy.copy(embedding)
            embedding.modules = self._modules
            self._unregistered = embedding, borrowing(copy.copy(stack), self)
        return self._unregistered

    @property
    def _embed(self) -> Embedding:
        return self._parts[0]

    @property
    def _stack(self) -> TransformerEncoder:
        return self._parts[1]


class LanguageModel(_TokenModel):
    """A decoder-only language model (arch "decoder"), of text or, under task
    "image", of the bytes of a picture.

    config, **keys: keys of config.json, as in `finish_config`; `config` of the
    model is the whole of them.

    Besides whole sequences it runs as an RNN where its attention has a
    recurrent form: `prefill` and `step`.
    """

    _one_call = True  # see `_language_step.py`

    def __init__(self, config: Mapping[str, Any] | None = None, **keys: Any) -> None:
        finished = finish_config(config, **keys)
        check_arch(type(self), finished, ("decoder",))
        super().__init__(finished, True)

    def forward(self, tokens: torch.Tensor, lengths: torch.Tensor | None = None) -> torch.Tensor:
        """tokens [B, T] int64 -> logits [B, T, vocab_size]; for task "image", the
        parameters [B, T, 3 n_mixtures] that `tarn.ops.logistic_mixture_loss`
        takes. lengths [B]: tokens of each row (only conditional and clustered
        kinds use them)."""
        x = self._embed(tokens)
        mask = TriangularCausalMask(tokens.shape[1], device=tokens.device)
        length_mask = None if lengths is None else mask_of(tokens, lengths)
        return self._head(self._stack(x, mask, length_mask))

    @hooked
    def prefill(
        self,
        tokens: torch.Tensor,
        lengths: Lengths | None = None,
        state: list[AttentionState] | None = None,
    ) -> tuple[torch.Tensor, list[AttentionState]]:
        """tokens [B, T] -> (logits [B, T, vocab_size], state), equal to T calls
        of step. state: a list of `tarn.recurrent.AttentionState`, a value."""
        x = self._embed(tokens, first_places(state))
        x, state = self._stack.prefill(x, lengths, state)
        return self._head(x), state

    @hooked
    def step(
        self, tokens: torch.Tensor, state: list[AttentionState] | None = None
    ) -> tuple[torch.Tensor, list[AttentionState]]:
        """tokens [B] -> (logits [B, vocab_size], new state)."""
        at_once = language_step(self, tokens, state)
        if at_once is not None:
            return at_once
        embedding, stack = self._parts
        x, state = stack.step(embedding.row(tokens, first_places(state)), state)
        return self._head(x), state

    def _head(self, x: torch.Tensor) -> torch.Tensor:
        return logits_of(self.predictor, x, self.value_embedding)


class Classifier(_TokenModel):
    """An encoder whose mean over valid tokens goes to classes (arch "encoder").

    labels: names of the classes, or None; kept with the model directory.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        labels: list[str] | None = None,
        **keys: Any,
    ) -> None:
        finished = finish_config({"arch": "encoder", **(config or {})}, **keys)
        check_arch(type(self), finished, ("encoder",))
        check_task(type(self), finished, "classify")
        super().__init__(finished, False)
        self.labels = labels

    def forward(self, tokens: torch.Tensor, lengths: torch.Tensor | None = None) -> torch.Tensor:
        """tokens [B, T] int64, lengths [B] (None: T) -> logits [B, n_classes].
        Entries past a row's length have no influence."""
        x = self._embed(tokens)
        length_mask = mask_of(tokens, lengths)
        x = self._stack(x, None, length_mask)
        return self.predictor(mean_over_valid(x, length_mask))


class FrameClassifier(_TokenModel):
    """An encoder that labels frames of numbers (arch "encoder", task "ctc"), for
    connectionist temporal classification: class 0 is the blank.

    labels: names of the classes, "" first, or None; kept with the model
    directory.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        labels: list[str] | None = None,
        **keys: Any,
    ) -> None:
        finished = finish_config({"arch": "encoder", "task": "ctc", **(config or {})}, **keys)
        check_arch(type(self), finished, ("encoder",))
        check_task(type(self), finished, "ctc")
        super().__init__(finished, False)
        self.labels = labels

    def forward(self, frames: torch.Tensor, lengths: torch.Tensor | None = None) -> torch.Tensor:
        """frames [B, T, input_dim] in the dtype of the weights, lengths [B]
        (None: T) -> logits [B, T, n_classes]. Frames past a row's length, NaN
        included, have no influence on the valid ones. Raises ValueError."""
        frames, mask = valid_frames(self, frames, lengths)
        return self.predictor(self._stack(self._embed(frames), None, mask))


class Seq2Seq(torch.nn.Module):
    """Encoder and decoder with cross attention (arch "seq2seq").

    One vocabulary serves both sides; a target begins and ends with the newline
    token. `tarn.models.greedy` and `beam_search` write targets.
    """

    value_embedding: torch.nn.Module
    target_embedding: torch.nn.Module
    pos_embedding: torch.nn.Module
    target_pos_embedding: torch.nn.Module | None
    input_norm: torch.nn.Module | None
    target_input_norm: torch.nn.Module | None

    def __init__(self, config: Mapping[str, Any] | None = None, **keys: Any) -> None:
        super().__init__()
        finished = finish_config({"arch": "seq2seq", **(config or {})}, **keys)
        check_arch(type(self), finished, ("seq2seq",))
        self.config = finished
        self.value_embedding, table = make_embedding(finished)
        self.target_embedding, target_table = make_embedding(finished)
        if table is not None:
            self.pos_embedding, self.target_pos_embedding = table, target_table
        if finished["input_norm"]:
            self.input_norm = make_input_norm(finished)
            self.target_input_norm = make_input_norm(finished)
        self.encoder: TransformerEncoder = make_encoder(finished, causal=False)
        self.decoder: TransformerDecoder = make_decoder(finished)
        self.predictor: Predictor = Predictor(
            finished["vocab_size"],
            finished["d_model"],
            finished["tied_head"],
            finished["logit_factor"],
            finished["head_bias"],
            finished["logit_softcap"],
        )

    def _source(self, tokens: torch.Tensor) -> torch.Tensor:
        return self._embedding("value_embedding", "pos_embedding", "input_norm")(tokens)

    @property
    def _target(self) -> Embedding:
        return self._embedding("target_embedding", "target_pos_embedding", "target_input_norm")

    def _embedding(self, tokens: str, table: str, norm: str) -> Embedding:
        return Embedding(type(self).__name__, self.config, self._modules, tokens, table, norm)

    def forward(
        self,
        tokens: torch.Tensor,
        target_in: torch.Tensor,
        lengths: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """tokens [B, T], target_in [B, U] (newline, then the target), lengths
        [B] of the sources -> logits [B, U, vocab_size]."""
        target = self._target(target_in, argument="target_in")
        memory, mask = self.encode(tokens, lengths)
        if target.shape[0] != memory.shape[0]:
            wanted = f"{memory.shape[0]} sequences, as tokens has"
            raise ValueError(f"Seq2Seq: target_in: want {wanted}, got {target.shape[0]}")
        causal = TriangularCausalMask(target_in.shape[1], device=target_in.device)
        return self._head(self.decoder(target, memory, x_mask=causal, memory_length_mask=mask))

    def encode(
        self, tokens: torch.Tensor, lengths: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, LengthMask]:
        """(memory [B, T, D], its mask)."""
        x = self._source(tokens)
        mask = mask_of(tokens, lengths)
        return self.encoder(x, None, mask), mask

    @hooked
    def initial_state(
        self, tokens: torch.Tensor, lengths: torch.Tensor | None = None
    ) -> DecoderState:
        """The state before the first target token: the source read once."""
        memory, mask = self.encode(tokens, lengths)
        return call(self.decoder, "initial_state", memory, mask)

    @hooked
    def step(self, tokens: torch.Tensor, state: DecoderState) -> tuple[torch.Tensor, DecoderState]:
        """Target tokens [B] -> (logits [B, vocab_size], new state)."""
        x = self._target.row(tokens, self._places(state))
        x, state = call(self.decoder, "step", x, state)
        return self._head(x), state

    @hooked
    def prefill(
        self, tokens: torch.Tensor, state: DecoderState
    ) -> tuple[torch.Tensor, DecoderState]:
        """Target tokens [B, U] -> (logits [B, U, vocab_size], new state)."""
        x = self._target(tokens, self._places(state))
        x, state = call(self.decoder, "prefill", x, state)
        return self._head(x), state

    def _places(self, state: DecoderState | None) -> torch.Tensor | int:
        if state is None:
            raise TypeError("Seq2Seq: state: want what initial_state returned, got None")
        return first_places(state)

    def _head(self, x: torch.Tensor) -> torch.Tensor:
        return logits_of(self.predictor, x, self.target_embedding)
