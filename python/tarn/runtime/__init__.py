"""Models without torch: open a directory, prefill, step, stream.

    from tarn.runtime import Model

    model = Model("models/demo")
    for piece in model.stream("The ", max_tokens=200):
        print(piece, end="", flush=True)

    Model("models/names").translate("Ada", beam=4)      # sequence to sequence
    Model("models/topics").predict(["rain tomorrow"])   # a classifier
    Model("models/digits").generate_images(16)          # an image model

It needs numpy alone. Every call that runs the model releases the interpreter's
lock; a model may serve any number of threads, a state one at a time. Ctrl-C ends a
call with KeyboardInterrupt after some 20 ms, or one product of a large model, with
its states as they were before; `stream` and `generate` keep the tokens they have
consumed. A process may fork: the child's models start threads of their own.
"""

from __future__ import annotations

import codecs
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tarn._paths import AnyPath
from tarn.runtime import _images
from tarn.runtime._arguments import number, stop_texts, token_array, whole
from tarn.runtime._library import module as _module
from tarn.runtime._sampling import (
    AllSamplingOptions,
    Sampler,
    SamplingOption,
    SamplingOptions,
    given_options,
    sampling_options,
)
from tarn.runtime._sessions import PrefixCache, Session

__all__ = [
    "FormatError",
    "Hypothesis",
    "Model",
    "NumericError",
    "PrefixCache",
    "Sampler",
    "SamplingOption",
    "Session",
    "State",
    "render_chat_template",
    "sample",
    "sampling_options",
]

FormatError = _module.FormatError
FormatError.__doc__ = "A file of the model is not what it must be. A ValueError."
NumericError = _module.NumericError
NumericError.__doc__ = "NaN or infinity among logits. An ArithmeticError."

if TYPE_CHECKING:
    from typing import Unpack

Tokens = Sequence[int] | np.ndarray
Text = str | bytes | Tokens  # or the tokens it is made of

_AUTOMATIC = -(2**63)  # kAutoTokens: the library's default


@dataclass(frozen=True)
class Hypothesis:
    """A target that beam search found for a source."""

    tokens: list[int]  # without the newlines that begin and end a target
    text: str
    log_probability: float  # natural, of the tokens and the end
    score: float  # log_probability / (tokens with the end)^length_penalty
    finished: bool  # ended by the model, not by a limit


def _held(state: object) -> Any:
    """What the library keeps of a state."""
    if not isinstance(state, State):
        raise TypeError(f"state: want a State of this model, got {type(state).__name__}")
    return state._held


class State:
    """The past of one sequence, as a value.

    model: the model whose state it is; the state keeps it alive. Only one writer
    at a time is allowed. The size is fixed for linear models and grows with the
    tokens for softmax models. States of sequence-to-sequence models come from
    `Model.encode_source` and also hold their source, which copies share. Raises
    ValueError for a classifier, which has none.
    """

    def __init__(self, model: Model, *, _held: Any = None) -> None:
        self._held = _module.State(model._model) if _held is None else _held
        self._model = model

    def clone(self) -> State:
        """A copy, another value. O(1): bytes are copied when one of the two is next changed."""
        return State(self._model, _held=self._held.clone())

    def copy_from(self, other: State) -> None:
        """Overwrites this state; both must be of one model (else ValueError)."""
        self._held.copy_from(other._held)

    def reset(self) -> None:
        """Back to before the first token; keeps the encoded source."""
        self._held.reset()

    def save(self, path: AnyPath) -> None:
        """Writes the state, source and last logits as one file that
        `Model.load_state` reads. Raises NumericError for a state with NaN, and
        OSError. O(nbytes)."""
        self._model._model.save_state(self._held, os.fsencode(path))

    def to_bytes(self) -> bytes:
        """The bytes of that file, for a cache or a database; `Model.state_from_bytes`
        reads them. Raises NumericError for a state with NaN. O(nbytes)."""
        return self._model._model.state_to_bytes(self._held)

    @property
    def position(self) -> int:
        """Tokens consumed."""
        return self._held.position

    @property
    def nbytes(self) -> int:
        """Bytes of the recurrence; the same at every position for linear
        models."""
        return self._held.nbytes

    @property
    def source_len(self) -> int:
        """Tokens of the source; 0 where there is none."""
        return self._held.source_len

    @property
    def memory_bytes(self) -> int:
        """Bytes of the source's keys and values, or of their linear summary,
        shared by all copies; not part of nbytes."""
        return self._held.memory_bytes

    @property
    def last_logits(self) -> np.ndarray | None:
        """Logits after the last token, float32 [n_outputs], a copy; None before
        the first."""
        return self._held.last_logits

    def __eq__(self, other: object) -> bool:
        """The same position, recurrence and last logits, bit for bit."""
        if not isinstance(other, State):
            return NotImplemented
        return self._held.equals(other._held)

    def __hash__(self) -> int:
        return self._held.hash()


class Model:
    """A model directory or GGUF file opened for inference.

    Args:
        path: directory with config.json, model.safetensors or its shards,
            tokenizer.json and, for a classifier, labels.json; or FILE.gguf
            (docs/gguf.md).
        weights: how weights are held in memory: "auto" (as they are stored in
            groups or as bfloat16, or else as float32), "f32", "bf16", or in groups with a
            shared scale "int8" or "int4"; what must be finer stays so.
        threads: 0: all the process may use.
        exact: products of weights in groups in float32, which is slower; their
            inputs are rounded to 8 bits otherwise.
        use_mmap: map the file; False reads it (safe while others rewrite it).
        cache: how layers of softmax attention hold keys and values of earlier
            tokens, "f32", "bf16" or "int8" (rounded, with a scale for each 32
            numbers); the others need a model with such layers.

    Raises FormatError (a ValueError) for files that are not what they must be,
    OSError for files that cannot be read. Immutable; thread-safe.
    """

    def __init__(
        self,
        path: AnyPath,
        *,
        weights: str = "auto",
        threads: int = 0,
        exact: bool = False,
        use_mmap: bool = True,
        cache: str = "f32",
    ) -> None:
        if not isinstance(weights, str):
            raise TypeError(f"weights: want a word as 'auto' or 'int8', got {weights!r}")
        if not isinstance(cache, str):
            raise TypeError(f"cache: want 'f32', 'bf16' or 'int8', got {cache!r}")
        threads = whole("threads", threads, -(2**31), 2**31 - 1)
        self._path = os.path.abspath(os.fsencode(path))
        self._chat: tuple[str, dict[str, str]] | None = None
        self._model = _module.Model(
            os.fsencode(path), weights, threads, bool(exact), bool(use_mmap), cache
        )

    @property
    def config(self) -> dict[str, Any]:
        """config.json as a dictionary."""
        return json.loads(self._model.config_json)

    @property
    def vocab_size(self) -> int:
        """Ids of tokens; those from tokenizer_size on stand for no text."""
        return self._model.vocab_size

    @property
    def n_outputs(self) -> int:
        """Number of logits of a token: vocab_size, or for an image model the
        3 n_mixtures parameters of the next byte's distribution."""
        return self._model.n_outputs

    @property
    def tokenizer_size(self) -> int:
        return self._model.tokenizer_size

    @property
    def parameters(self) -> int:
        return self._model.parameters

    @property
    def weight_bytes(self) -> int:
        return self._model.weight_bytes

    @property
    def state_bytes(self) -> int:
        """Bytes of a new state."""
        return self._model.state_bytes

    @property
    def cache(self) -> str:
        """How states hold keys and values: "f32", "bf16" or "int8"."""
        return self._model.cache

    @property
    def state_bytes_per_token(self) -> int:
        """Bytes by which a state grows per token; 0 for linear models."""
        return self._model.state_bytes_per_token

    @property
    def memory_bytes(self) -> int:
        """Bytes an encoded source takes at any length; 0 except for
        sequence-to-sequence models."""
        return self._model.memory_bytes

    @property
    def memory_bytes_per_token(self) -> int:
        """Bytes an encoded source takes for each of its tokens."""
        return self._model.memory_bytes_per_token

    @property
    def labels(self) -> list[str]:
        """Names of a classifier's classes; [] for other models."""
        return self._model.labels

    @property
    def threads(self) -> int:
        return self._model.threads

    def state(self) -> State:
        """A state before the first token."""
        return State(self)

    def load_state(self, path: AnyPath) -> State:
        """The state that `State.save` wrote with the same model (configuration,
        weights and how they are held), bit for bit. Raises FormatError for
        another model's or a damaged file, and OSError."""
        return State(self, _held=self._model.load_state(os.fsencode(path)))

    def state_from_bytes(self, data: bytes) -> State:
        """The state that `State.to_bytes` gave with the same model, checked as
        `load_state` checks a file. Raises FormatError."""
        return State(self, _held=self._model.state_from_bytes(bytes(data)))

    def prefill(self, state: State, tokens: Tokens) -> np.ndarray:
        """Consumes tokens; returns the logits of the last, float32 [n_outputs]. Any
        split of a prompt over calls gives the same bits. Raises ValueError for
        a token outside the vocabulary, with the state unchanged."""
        return self._model.prefill(_held(state), token_array(tokens))

    def step(self, state: State, token: int) -> np.ndarray:
        """Consumes one token; returns its logits, float32 [n_outputs]."""
        return self._model.prefill(_held(state), token_array([token]))

    def score(self, state: State, tokens: Tokens) -> np.ndarray:
        """Consumes tokens; returns the logits of each, float32 [n, n_outputs]."""
        return self._model.score(_held(state), token_array(tokens))

    def step_batch(self, states: Sequence[State], tokens: Tokens) -> np.ndarray:
        """Consumes one token for each of n distinct states and reads the weights
        once for all; returns the logits, float32 [n, n_outputs]. No bit of a row
        depends on the others."""
        return self._model.step_batch([_held(state) for state in states], token_array(tokens))

    def encode_source(self, source: Text) -> State:
        """Sequence-to-sequence models: reads a source (any length, 0 included) and
        returns the state before the first target token, for `step` and the others,
        whose first token is the newline. Raises ValueError for other models.
        O(n) for linear attention, O(n^2) for softmax."""
        return State(self, _held=self._model.encode_source(self._text(source)))

    def beam_search(
        self,
        sources: Sequence[Text | State],
        *,
        beam: int = 4,
        max_tokens: int = 256,
        length_penalty: float = 1.0,
    ) -> list[list[Hypothesis]]:
        """For every source the best hypotheses, at most `beam`: finished ones
        first, then by score. All go through the model together, and none
        depends on the others.

        sources: texts, tokens, or states of `encode_source` (left as they are).
        beam: 1 (greedy) to 1024. max_tokens: most tokens of a target, its end included;
        a target ends unfinished at the last of a model's learned positions, too.
        length_penalty: exponent of the length in the score; 0: none. Raises
        ValueError for arguments out of range, NumericError for NaN."""
        if isinstance(sources, (str, bytes)):
            raise TypeError("sources: want a list of texts, got one text")
        states = [
            source if isinstance(source, State) else self.encode_source(source)
            for source in sources
        ]
        held = [state._held for state in states]
        found = self._model.beam_search(
            held,
            whole("beam", beam, 1, 1024),
            whole("max_tokens", max_tokens, 0, 2**63 - 1),
            number("length_penalty", length_penalty),
        )
        return [
            [Hypothesis(tokens, self.decode(tokens), *rest) for tokens, *rest in row]
            for row in found
        ]

    def translate(
        self,
        source: Text | State,
        *,
        beam: int = 1,
        max_tokens: int = 256,
        length_penalty: float = 1.0,
    ) -> str:
        """Text of the best target for a source; arguments as in
        `beam_search`."""
        (row,) = self.beam_search(
            [source], beam=beam, max_tokens=max_tokens, length_penalty=length_penalty
        )
        return row[0].text

    def classify(self, texts: Sequence[Text]) -> np.ndarray:
        """Classifiers: logits of n texts or token sequences, each of at least
        one token: float32 [n, n_classes]. No bit of a row depends on the others.
        Raises ValueError for other models."""
        if isinstance(texts, (str, bytes)):
            raise TypeError("texts: want a list of texts, got one text")
        return self._model.classify([self._text(text) for text in texts])

    def predict(self, texts: Sequence[Text]) -> list[str]:
        """The label of the largest logit of every text, ties to the first.
        Raises NumericError for logits that are not finite."""
        logits = self.classify(texts)
        if not np.isfinite(logits).all():
            raise NumericError("predict: logits: want finite numbers, got others")
        labels = self.labels
        return [labels[best] for best in logits.argmax(axis=1)]

    def embed(self, texts: Sequence[Text], *, pooling: str = "mean") -> np.ndarray:
        """Language models: the vectors of n texts or token sequences, each of at least
        one token: float32 [n, d_model], rows of length 1, so that products are cosines.
        A vector is the mean over the tokens of what the head reads, with
        pooling="last" that of the last token. No bit of a row depends on the others.
        Raises ValueError for other models, and NumericError for rows that are not
        finite. Memory does not grow with the texts' length in linear models."""
        if isinstance(texts, (str, bytes)):
            raise TypeError("texts: want a list of texts, got one text")
        if not isinstance(pooling, str):
            raise TypeError(f"pooling: want 'mean' or 'last', got {pooling!r}")
        ids = [
            self.encode(text, add_special=True) if isinstance(text, (str, bytes)) else text
            for text in texts
        ]
        return self._model.embed([token_array(one) for one in ids], pooling)

    def generate_images(
        self,
        count: int,
        *,
        first: int = 0,
        seed: int = 0,
        temperature: float = 1.0,
        batch: int = 0,
    ) -> np.ndarray:
        """Image models: `count` images drawn byte by byte, uint8
        [count, height, width], in colour [count, height, width, 3].

        first: the byte an image begins with (0 to 255), which no model predicts.
        seed: byte t of image i is a function of it, i, t and the bytes before;
        batch, the images that go through the model together (0: automatic),
        and threads change no bit. temperature: 0 to 100, 1 is the model's own.
        Raises ValueError for other models and arguments out of range,
        NumericError for NaN."""
        return _images.generate(
            self._model, _images.shape_of(self.config), count, first, temperature, seed, batch
        )

    def complete(
        self,
        images: np.ndarray,
        pixels: int,
        *,
        samples: int = 1,
        seed: int = 0,
        temperature: float = 1.0,
        batch: int = 0,
    ) -> np.ndarray:
        """Image models: `samples` completions of each image from its first
        `pixels` pixels (row by row, 1 or more), which they keep unchanged.

        images: uint8 [n, height, width] or [n, height, width, 3], of which only
        those pixels are read. Returns uint8 [n, samples, height, width (, 3)].
        The given pixels are consumed once and the state copied. Other arguments
        and errors as in `generate_images`."""
        return _images.complete(
            self._model,
            _images.shape_of(self.config),
            images,
            pixels,
            samples,
            temperature,
            seed,
            batch,
        )

    def bits_per_dim(self, images: np.ndarray, *, pixels: int = 0) -> np.ndarray:
        """Image models: bits per byte of every image, float64 [n]: minus the mean
        log2 probability of the bytes after the first `pixels` pixels, each given
        all before it; with pixels=0, of all but the first byte. images as in
        `complete`, errors as in `generate_images`. O(bytes) of an image for linear
        models."""
        return _images.bits_per_dim(self._model, _images.shape_of(self.config), images, pixels)

    def _text(self, text: Text) -> np.ndarray:
        return token_array(self.encode(text) if isinstance(text, (str, bytes)) else text)

    @property
    def stop_tokens(self) -> list[int]:
        """Tokens with which the model's texts end: those of the directory's
        generation_config.json, or of a published config.json."""
        return self._model.stop_tokens

    @property
    def sampling(self) -> dict[str, Any]:
        """The options of sampling that `stream` and `generate` use by default: those of
        the directory's generation_config.json if that says do_sample, else llama.cpp's.
        Lists are lists of texts, as `sampling_options` has them."""
        return dict(self._model.sampling)

    def encode(
        self, text: str | bytes, *, add_special: bool = False, allow_special: bool = False
    ) -> list[int]:
        """Tokens of text. add_special: with those that the tokenizer puts before and
        after a text, such as <bos>; text prompts at position 0 have them.
        allow_special: texts of special tokens become these tokens; never for a user's
        text. FormatError names the byte of a character the model does not know."""
        text = text.encode() if isinstance(text, str) else text
        return self._model.encode(text, bool(add_special), bool(allow_special))

    def _chat_format(self) -> tuple[str, dict[str, str]]:
        if self._chat is None:
            source, special = _module.chat_format(self._path)
            self._chat = source, dict(special)
        return self._chat

    @property
    def chat_template(self) -> str:
        """The directory's chat template, Jinja: chat_template.jinja, or else
        chat_template of tokenizer_config.json. Raises FormatError where there is none."""
        return self._chat_format()[0]

    def encode_chat(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        tools: Sequence[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        chat_template: str | None = None,
        now: Sequence[int] | None = None,
        **variables: Any,
    ) -> list[int]:
        """Tokens of a conversation as the model's chat template writes it, up to where
        an answer begins. Special tokens come from the template alone: their texts within
        messages are encoded as text.

        messages: dicts with role and content, as transformers has them. chat_template:
        instead of the directory's. now: as in `render_chat_template`. variables: more
        variables of the template (enable_thinking, documents, ...). Raises FormatError
        and ValueError as `render_chat_template`, and FormatError as `encode`."""
        special: dict[str, str] = {}
        if chat_template is None:
            chat_template, special = self._chat_format()
        context = {
            "documents": None,
            **special,
            **variables,
            "messages": list(messages),
            "tools": None if tools is None else list(tools),
            "add_generation_prompt": bool(add_generation_prompt),
        }
        text = json.dumps(context, ensure_ascii=False)
        return self._model.encode_chat(chat_template, text, [] if now is None else list(now))

    def decode_bytes(self, tokens: Tokens) -> bytes:
        """Bytes of tokens that are a text as a whole: a space that the tokenizer puts
        before a text is taken away."""
        return self._model.decode(token_array(tokens))

    def decode(self, tokens: Tokens, *, skip_special: bool = False) -> str:
        """Text of tokens, as the tokenizers package decodes them; bytes that are no UTF-8
        become U+FFFD. skip_special: without special tokens."""
        return self._model.decode_text(token_array(tokens), bool(skip_special))

    def decode_stream(self, tokens: Iterable[int]) -> Iterator[str]:
        """Text of tokens as they come, none while a character is unfinished: together
        what `decode` gives for all of them, except that bytes which are no UTF-8 may
        become fewer U+FFFD, and that a tokenizer's step which strips the end of a text
        strips nothing."""
        progress = _module.Decoder(self._model)
        characters = codecs.getincrementaldecoder("utf-8")("replace")
        for token in tokens:
            piece = characters.decode(progress.next(whole("token", token, 0, 2**31 - 1)))
            if piece:
                yield piece
        rest = characters.decode(b"", final=True)
        if rest:
            yield rest

    def stream(
        self,
        prompt: Text = "",
        *,
        max_tokens: int | None = None,
        state: State | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        seed: int = 0,
        stop: str | bytes | Sequence[str | bytes] = (),
        stop_tokens: Sequence[int] | None = None,
        **options: Unpack[SamplingOptions],
    ) -> Iterator[str]:
        """Text as it is generated, one piece per token (none while a character is
        unfinished). state: the state to continue from; it holds every token whose
        piece was given, so that a caller who stops early can continue with an
        empty prompt. None: a new one. An empty prompt at position 0 begins from
        a newline (token 0 where there is none). max_tokens: 0 or more; None: 256, or
        as many as a model with learned positions has room for after the prompt.
        stop: a text, or up to 64 of 1 to 4,096 bytes: the text ends before the
        first that appears, whatever tokens it is split over, and pieces are held
        back as long as one may begin in them; the state holds its tokens.
        stop_tokens: tokens that end the text and are not consumed; None: those of the
        model. A text as the prompt gets the tokens that the tokenizer puts before texts
        at position 0. options: those of docs/sampling.md. Options of sampling that are None:
        those of `sampling`. Penalties look at the prompt and what follows it, not at what
        a state has consumed before. Raises ValueError, before any work, for arguments out
        of range, models that write no text, and more tokens than a model has learned
        positions (its `max_positions`)."""
        count = _AUTOMATIC if max_tokens is None else whole("max_tokens", max_tokens, 0, 2**63 - 1)
        own = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
        sampler = given_options(own | dict(options), "Model.generate")
        seed = whole("seed", seed, 0, 2**64 - 1)
        state = self.state() if state is None else state
        stops = self._model.stop_tokens if stop_tokens is None else stop_tokens
        tokens = [whole("stop_tokens", token, 0, 2**31 - 1) for token in stops]
        text = _module.Generation(
            self._model, _held(state), count, sampler, seed, stop_texts(stop), tokens
        )
        if isinstance(prompt, (str, bytes)):
            prompt = self.encode(prompt, add_special=state.position == 0)
        text.prompt(token_array(prompt))
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while (token := text.next()) is not None:
            piece = decoder.decode(token)
            if piece:
                yield piece
        rest = decoder.decode(b"", final=True)
        if rest:
            yield rest

    def generate(
        self,
        prompt: Text = "",
        *,
        max_tokens: int | None = None,
        state: State | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        seed: int = 0,
        stop: str | bytes | Sequence[str | bytes] = (),
        stop_tokens: Sequence[int] | None = None,
        **options: Unpack[SamplingOptions],
    ) -> str:
        """All of `stream` as one text; arguments and errors as there."""
        pieces = self.stream(
            prompt,
            max_tokens=max_tokens,
            state=state,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            seed=seed,
            stop=stop,
            stop_tokens=stop_tokens,
            **options,
        )
        return "".join(pieces)

    def __repr__(self) -> str:
        return f"Model({self.config['arch']}, {self.parameters} parameters)"


def sample(
    logits: np.ndarray,
    *,
    tokens: Tokens = (),
    temperature: float | None = 0.8,
    top_k: int | None = 40,
    top_p: float | None = 0.95,
    min_p: float | None = 0.05,
    seed: int = 0,
    stream: int = 0,
    position: int = 0,
    **options: Unpack[SamplingOptions],
) -> int:
    """A token drawn from logits [n].

    tokens: those of the text so far, which penalties look at. temperature: at most 0
    takes the best token, ties to the lowest id. top_k 0, top_p 1, min_p 0: off. options:
    those of docs/sampling.md; DRY has no sequence breakers, and Mirostat begins (`Sampler`
    has both). position: counter of the draw; the same arguments give the same token.
    Raises NumericError for NaN, ValueError for values out of range.
    """
    own: AllSamplingOptions = {
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        **options,
    }
    sampler = Sampler(seed=seed, stream=stream, **own)
    return sampler.draw(logits, tokens=tokens, position=position)


def render_chat_template(
    source: str, context: dict[str, Any], now: Sequence[int] | None = None
) -> list[tuple[str, bool]]:
    """Writes a conversation as text, by a chat template of a tokenizer.

    source: Jinja, as `tokenizer_config.json` has it under `chat_template`. context: the
    template's variables (messages, tools, add_generation_prompt, bos_token, ...), made of
    what JSON has. now: year, month, day, hour, minute and second for `strftime_now`.

    The result is the text in pieces (text, from_data). Text of the context is data: a
    tokenizer must not find special tokens in it. Names of special tokens (bos_token, ...)
    and the known roles of messages count as the template's own text.

    Raises FormatError for a template that is not valid or needs too much, and ValueError
    when it calls `raise_exception`. Time and memory are bounded.
    """
    if not isinstance(context, dict):
        raise TypeError(f"context: want a dict, got {type(context).__name__}")
    text = json.dumps(context, ensure_ascii=False)
    return _module.render_chat_template(source, text, [] if now is None else list(now))
