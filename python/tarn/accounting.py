"""What a model holds and what attention costs, by formula.

    from tarn import accounting

    accounting.parameters_by_part("models/demo")["total"]
    head = accounting.HeadWidths(d_key=64, d_value=64, d_feature=64)
    accounting.softmax_flop(head, 4096) / accounting.linear_flop(head, 4096)
    accounting.crossover_tokens(head)

The counts of X. Wang, "Transformer" (2023), made exact. A head has queries and keys of width
E (d_key), values of width M (d_value) and features of width C (d_feature); D is
d_model, F d_ff, N a number of tokens. A multiply-add counts as 2 FLOP, a number
as 4 bytes; exponentials and divisions are not counted. The formulas are in
the C++ library (config/accounting.h) and are those of `tarn info`. The module
needs no torch. All functions are pure, thread-safe and take O(1) time; they
raise a ValueError that names the argument.
"""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tarn._paths import AnyPath
from tarn.runtime._library import module as _module

__all__ = [
    "HeadWidths",
    "TokenScaling",
    "crossover_tokens",
    "finish_config",
    "head_widths",
    "linear_flop",
    "linear_state_bytes",
    "linear_step_flop",
    "memory_crossover_tokens",
    "parameters_by_part",
    "scaling",
    "softmax_cache_bytes",
    "softmax_flop",
    "softmax_step_flop",
    "step_crossover_tokens",
    "textbook_parameters",
]

Config = Mapping[str, Any] | AnyPath


@dataclass(frozen=True)
class HeadWidths:
    """Widths of one attention head, each at least 1."""

    d_key: int  # E
    d_value: int  # M
    d_feature: int  # C; elementwise feature maps: E

    def _tuple(self) -> tuple[int, int, int]:
        return self.d_key, self.d_value, self.d_feature


@dataclass(frozen=True)
class TokenScaling:
    """A whole model's work per token at `tokens` = N, with either attention."""

    tokens: int
    softmax_parallel_flop: float  # per token of a sequence of N seen at once
    linear_parallel_flop: float
    softmax_step_flop: int  # for the token after N others
    linear_step_flop: int
    softmax_step_bytes: int  # cache, or state, read for it
    linear_step_bytes: int


def _text(config: Config) -> str:
    """A configuration as JSON, from a mapping or a model directory."""
    if isinstance(config, Mapping):
        return json.dumps(dict(config))
    return (pathlib.Path(os.fsdecode(config)) / "config.json").read_text(encoding="utf-8")


def finish_config(config: Config) -> dict[str, Any]:
    """The whole configuration that the given keys stand for: defaults filled
    in, sizes derived, ranges checked (FormatError, a ValueError, names the
    key). The keys are those of config.json (docs/model-format.md)."""
    return json.loads(_module.finish_config(_text(config)))


def parameters_by_part(config: Config) -> dict[str, int]:
    """Trained parameters of the model that a configuration, or the config.json of
    a directory, describes: embedding, positions, attention, feed_forward,
    norms, recurrent, head and their total.

    An encoder layer has D (2 H E + H M) + 2 H E + H M + H M D + D numbers in
    attention, 2 D F + F + D in its feed-forward part and 4 D in norms; a
    decoder layer with cross attention one attention and 2 D more. Buffers
    (frequencies of random feature maps) are not counted."""
    return _module.parameters_by_part(_text(config))


def textbook_parameters(d_model: int, embeddings: int) -> int:
    """Parameters by the textbook's formula, 12 D^2 + N D: one block with F = 4 D and
    H M = H E = D, and a table of N rows. The 13 D of biases and norms are left out."""
    return _module.textbook_parameters(d_model, embeddings)


def head_widths(config: Config) -> HeadWidths:
    """Widths of a model's heads; d_feature is that of its feature map."""
    return HeadWidths(*_module.head_widths(_text(config)))


def softmax_flop(head: HeadWidths, n: int, *, causal: bool = True) -> int:
    """FLOP of one softmax head over n tokens at once: n (n + 1) (E + M) where a token
    sees itself and what came before, 2 n^2 (E + M) where it sees all."""
    return _module.softmax_flop(head._tuple(), n, causal)


def linear_flop(head: HeadWidths, n: int) -> int:
    """FLOP of one linear head over n tokens: S += phi(k) v^T and phi(q)^T S,
    z += phi(k) and phi(q)^T z: n (4 C M + 3 C), causal or not."""
    return _module.linear_flop(head._tuple(), n)


def softmax_step_flop(head: HeadWidths, past: int) -> int:
    """FLOP of the token after `past` others, from their keys and values:
    2 (past + 1) (E + M)."""
    return _module.softmax_step_flop(head._tuple(), past)


def linear_step_flop(head: HeadWidths) -> int:
    """FLOP of the next token, from the state: 4 C M + 3 C, however many came before."""
    return _module.linear_step_flop(head._tuple())


def softmax_cache_bytes(head: HeadWidths, n: int) -> int:
    """Bytes of the keys and values of n tokens, all read by the next: 4 n (E + M)."""
    return _module.softmax_cache_bytes(head._tuple(), n)


def linear_state_bytes(head: HeadWidths) -> int:
    """Bytes of the state S and z: 4 (C M + C) for any n."""
    return _module.linear_state_bytes(head._tuple())


def crossover_tokens(head: HeadWidths, *, causal: bool = True) -> float:
    """Length from which the linear form does less arithmetic over a sequence,
    by the leading terms: 4 C M / (E + M), or half of it if not causal."""
    return _module.crossover_tokens(head._tuple(), causal)


def step_crossover_tokens(head: HeadWidths) -> float:
    """Past tokens from which a linear step does less arithmetic than a softmax
    step: (4 C M + 3 C) / (2 (E + M)) - 1."""
    return _module.step_crossover_tokens(head._tuple())


def memory_crossover_tokens(head: HeadWidths) -> float:
    """Tokens from which the state is smaller than the cache:
    C (M + 1) / (E + M)."""
    return _module.memory_crossover_tokens(head._tuple())


def scaling(config: Config, n: int) -> TokenScaling:
    """Work per token of a whole encoder or decoder at n >= 1 tokens, dense
    layers included, as if its attention were softmax and as if it were linear
    with the model's feature map. ValueError for other architectures."""
    return TokenScaling(**_module.scaling(_text(config), n))
