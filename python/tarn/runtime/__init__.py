"""Models without torch: open a directory, prefill, step, stream.

    from tarn.runtime import Model

    model = Model("models/demo")
    for piece in model.stream("The ", max_tokens=200):
        print(piece, end="", flush=True)

Needs numpy alone. Every call that runs the model releases the interpreter's
lock; a model may serve any number of threads, a state one at a time.
"""

from __future__ import annotations

import codecs
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tarn.runtime._library import module as _module

__all__ = ["FormatError", "Model", "NumericError", "State", "sample"]

FormatError = _module.FormatError
FormatError.__doc__ = "A file of the model is not what it must be. A ValueError."
NumericError = _module.NumericError
NumericError.__doc__ = "NaN or infinity among logits. An ArithmeticError."

Tokens = Sequence[int] | np.ndarray


def _tokens(tokens: Tokens) -> np.ndarray:
    """[n] int32; refuses what is no whole number of that range."""
    array = np.asarray(tokens)
    if array.size == 0:
        array = array.astype(np.int32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError(
            f"tokens: want one axis of integers, got {array.dtype} {list(array.shape)}"
        )
    if array.size and not (-(2**31) <= int(array.min()) and int(array.max()) < 2**31):
        raise ValueError("tokens: want 32-bit integers, got larger ones")
    return np.ascontiguousarray(array, dtype=np.int32)


class State:
    """The past of one sequence, as a value.

    model: whose state it is; the state keeps the model alive. One writer at a
    time. Linear models: a fixed size; softmax models: grows with tokens.
    """

    def __init__(self, model: Model, *, _held: Any = None) -> None:
        self._held = _module.State(model._model) if _held is None else _held
        self._model = model

    def clone(self) -> State:
        """A copy that shares nothing. O(nbytes)."""
        return State(self._model, _held=self._held.clone())

    def copy_from(self, other: State) -> None:
        """Overwrites this state; both of one model (else ValueError)."""
        self._held.copy_from(other._held)

    def reset(self) -> None:
        """Back to before the first token."""
        self._held.reset()

    @property
    def position(self) -> int:
        """Tokens consumed."""
        return self._held.position

    @property
    def nbytes(self) -> int:
        """Bytes of recurrence held; the same at every position for linear
        models."""
        return self._held.nbytes

    @property
    def last_logits(self) -> np.ndarray | None:
        """Logits after the last token, float32 [vocab_size], a copy; None before
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
    """A model directory opened for inference.

    Args:
        path: directory with config.json, model.safetensors and tokenizer.json.
        weights: how weights are held in memory, "f32" or "bf16".
        threads: 0: all the process may use.
        use_mmap: map the file; False reads it (safe while others rewrite it).

    Raises FormatError (a ValueError) for files that are not what they must be,
    OSError for files that cannot be read. Immutable; thread-safe.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        weights: str = "f32",
        threads: int = 0,
        use_mmap: bool = True,
    ) -> None:
        self._model = _module.Model(os.fspath(path), weights, threads, use_mmap)

    @property
    def config(self) -> dict[str, Any]:
        """config.json as a dictionary."""
        return json.loads(self._model.config_json)

    @property
    def vocab_size(self) -> int:
        """Logits of a token; ids from tokenizer_size on stand for no text."""
        return self._model.vocab_size

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
    def threads(self) -> int:
        return self._model.threads

    def state(self) -> State:
        """A state before the first token."""
        return State(self)

    def prefill(self, state: State, tokens: Tokens) -> np.ndarray:
        """Consumes tokens; logits of the last one, float32 [vocab_size]. Any
        split of a prompt over calls gives the same bits. Raises ValueError for
        a token outside the vocabulary, with the state unchanged."""
        return self._model.prefill(state._held, _tokens(tokens))

    def step(self, state: State, token: int) -> np.ndarray:
        """Consumes one token; its logits, float32 [vocab_size]."""
        return self._model.prefill(state._held, _tokens([token]))

    def score(self, state: State, tokens: Tokens) -> np.ndarray:
        """Consumes tokens; logits of every one, float32 [n, vocab_size]."""
        return self._model.score(state._held, _tokens(tokens))

    def step_batch(self, states: Sequence[State], tokens: Tokens) -> np.ndarray:
        """One token for each of n distinct states, weights read once for all;
        logits, float32 [n, vocab_size]. No bit of a row depends on the others."""
        return self._model.step_batch([state._held for state in states], _tokens(tokens))

    def encode(self, text: str | bytes) -> list[int]:
        """Tokens of text. FormatError names the byte of a character the model
        does not know."""
        return self._model.encode(text.encode() if isinstance(text, str) else text)

    def decode_bytes(self, tokens: Tokens) -> bytes:
        return self._model.decode(_tokens(tokens))

    def decode(self, tokens: Tokens) -> str:
        """Text of tokens; what is no UTF-8 becomes U+FFFD."""
        return self.decode_bytes(tokens).decode(errors="replace")

    def stream(
        self,
        prompt: str | bytes | Tokens = "",
        *,
        max_tokens: int = 256,
        state: State | None = None,
        temperature: float = 0.8,
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        seed: int = 0,
    ) -> Iterator[str]:
        """Text as it is generated, a piece a token (none while a character is
        unfinished). state: goes on from it and leaves it after the last
        consumed token; None: a new one. An empty prompt at position 0 begins
        from a newline. Other arguments as in `sample`."""
        state = self.state() if state is None else state
        text = isinstance(prompt, (str, bytes))
        tokens = self.encode(prompt) if text else _tokens(prompt)  # type: ignore[arg-type]
        if len(tokens) == 0 and state.position == 0:
            tokens = self.encode("\n")
        logits = self.prefill(state, tokens) if len(tokens) else state.last_logits
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for _ in range(max_tokens):
            if logits is None:
                raise ValueError("stream: state: want one with logits, got one without")
            token = sample(
                logits[: self.tokenizer_size],
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                min_p=min_p,
                seed=seed,
                position=state.position,
            )
            piece = decoder.decode(self.decode_bytes([token]))
            if piece:
                yield piece
            logits = self.step(state, token)
        rest = decoder.decode(b"", final=True)
        if rest:
            yield rest

    def generate(self, prompt: str | bytes | Tokens = "", **options: Any) -> str:
        """All of `stream` as one text."""
        return "".join(self.stream(prompt, **options))

    def __repr__(self) -> str:
        return f"Model({self.parameters} parameters, {self.config['attention']} attention)"


def sample(
    logits: np.ndarray,
    *,
    temperature: float = 0.8,
    top_k: int = 40,
    top_p: float = 0.95,
    min_p: float = 0.05,
    seed: int = 0,
    stream: int = 0,
    position: int = 0,
) -> int:
    """A token drawn from logits [n]: top_k, top_p, min_p, temperature, draw.

    temperature: at most 0 takes the best, ties to the lowest id. top_k 0,
    top_p 1, min_p 0: off. position: counter of the draw; the same arguments
    give the same token. Raises NumericError for NaN, ValueError for ranges.
    """
    row = np.ascontiguousarray(logits, dtype=np.float32)
    return _module.sample(row, temperature, top_k, top_p, min_p, seed, stream, position)
