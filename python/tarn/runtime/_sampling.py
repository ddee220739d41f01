"""Options of sampling: their names and types, and how tokens are drawn with them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

import numpy as np

from tarn.runtime._arguments import number, token_array, whole
from tarn.runtime._library import module as _module

if TYPE_CHECKING:
    from typing import Unpack

Tokens = Sequence[int] | np.ndarray


class OpenedModel(Protocol):
    """What a sampler needs of a `Model`."""

    _model: Any


class SamplingOptions(TypedDict, total=False):
    """The options of sampling by llama.cpp's names, beside those that functions name
    themselves; docs/sampling.md has their ranges and defaults. None: the default."""

    logit_bias: Mapping[int, float | bool] | None  # False: never
    repeat_last_n: int | None
    repeat_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    dry_multiplier: float | None
    dry_base: float | None
    dry_allowed_length: int | None
    dry_penalty_last_n: int | None
    dry_sequence_breakers: Sequence[str] | None
    top_n_sigma: float | None
    typical_p: float | None
    xtc_probability: float | None
    xtc_threshold: float | None
    dynatemp_range: float | None
    dynatemp_exponent: float | None
    mirostat: int | None
    mirostat_tau: float | None
    mirostat_eta: float | None
    min_keep: int | None
    samplers: Sequence[str] | str | None


class AllSamplingOptions(SamplingOptions, total=False):
    """All of them."""

    top_k: int | None
    top_p: float | None
    min_p: float | None
    temperature: float | None


@dataclass(frozen=True)
class SamplingOption:
    """A row of the table of options."""

    name: str
    type: str  # "integer", "real" or "texts"
    default: Any
    range: str  # what it takes
    help: str


def sampling_options() -> list[SamplingOption]:
    """The table of the options of sampling, in the order of the chain."""
    return [SamplingOption(*row) for row in _module.sampling_options()]


_TYPES = {row.name: row.type for row in sampling_options()}


def _biases(given: Any) -> list[str]:
    if not isinstance(given, Mapping):
        raise TypeError(f"logit_bias: want a dict from ids to numbers or False, got {given!r}")
    texts = []
    for token, bias in given.items():
        value = "false" if bias is False else number("logit_bias", bias)
        if value == -math.inf:
            value = "false"
        texts.append(f"{whole('logit_bias', token, 0, 2**31 - 1)}={value}")
    return texts


def _texts(name: str, given: Any) -> list[str]:
    if name == "logit_bias":
        return _biases(given)
    texts = [given] if isinstance(given, str) else list(given)
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"{name}: want texts, got {text!r}")
    return texts


def given_options(options: Mapping[str, Any], call: str = "call") -> list[tuple[str, Any]]:
    """Options of a call as the extension takes them, without those that are None. Raises
    TypeError for an unknown name and for values of other types."""
    given = []
    for name, value in options.items():
        if name not in _TYPES:
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}")
        if value is None:
            continue
        if _TYPES[name] == "integer":
            given.append((name, whole(name, value, -(2**63), 2**63 - 1)))
        elif _TYPES[name] == "real":
            given.append((name, number(name, value)))
        else:
            given.append((name, _texts(name, value)))
    return given


def logit_row(logits: Any) -> np.ndarray:
    """Logits as [n] float32. Raises ValueError for another number of axes."""
    row = np.asarray(logits, dtype=np.float32)
    if row.ndim != 1:
        raise ValueError(f"logits: want one axis, got {list(row.shape)}")
    return np.ascontiguousarray(row)


class Sampler:
    """Draws tokens from logits, with all options of docs/sampling.md.

    model: whose tokenizer makes tokens of dry_sequence_breakers; None: no breakers.
    seed, stream: of the random numbers; different streams of one seed are independent.
    options: None or left out: llama.cpp's defaults. Raises ValueError for options out of
    range.
    """

    def __init__(
        self,
        model: OpenedModel | None = None,
        *,
        seed: int = 0,
        stream: int = 0,
        **options: Unpack[AllSamplingOptions],
    ) -> None:
        make = _module.Sampler if model is None else model._model.sampler
        self._held = make(
            given_options(options, "Sampler"),
            whole("seed", seed, 0, 2**64 - 1),
            whole("stream", stream, 0, 2**64 - 1),
        )
        self.mu: float = self._held.start
        """Mirostat's bound of the surprise, in bits, which each draw changes."""

    def _arguments(self, logits: Any, tokens: Tokens, allowed: Any, position: int) -> tuple:
        ids = [] if allowed is None else [whole("allowed", i, 0, 2**31 - 1) for i in allowed]
        return (
            logit_row(logits),
            token_array(tokens),
            ids,
            allowed is not None,
            number("mu", self.mu),
            whole("position", position, 0, 2**64 - 1),
        )

    def draw(
        self,
        logits: np.ndarray,
        *,
        tokens: Tokens = (),
        allowed: Sequence[int] | None = None,
        position: int = 0,
    ) -> int:
        """A token, and sets `mu`. logits: [n]. tokens: those of the text so far, for
        penalties. allowed: the ids that may be drawn; None: all. position: counter of the
        draw; the same arguments and mu give the same token. Raises NumericError for NaN
        and where nothing may be drawn."""
        token, self.mu = self._held.draw(*self._arguments(logits, tokens, allowed, position))
        return token

    def distribution(
        self,
        logits: np.ndarray,
        *,
        tokens: Tokens = (),
        allowed: Sequence[int] | None = None,
        position: int = 0,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The tokens that `draw` with these arguments may give, int32, likeliest first,
        and their probabilities, float64."""
        found = self._held.distribution(*self._arguments(logits, tokens, allowed, position))
        return np.array(found[0], np.int32), np.array(found[1])
