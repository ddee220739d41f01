"""The tables of configurations, as C++ has them: names, ranges, defaults and words of
keys, and what each mixer and feature map is. Nothing here is maintained by hand."""

from __future__ import annotations

import functools
import json
from typing import Any

import torch

from tarn import _library

_library.ensure()

Row = dict[str, Any]


@functools.cache
def feature_maps() -> dict[str, Row]:
    """Feature maps by name, in their order: elementwise, signed, uses_omega,
    can_stabilise, ..."""
    return _by_name(torch.ops.tarn.feature_map_table())


def elementwise_maps() -> tuple[str, ...]:
    """Maps of single entries, which the kernels compute."""
    return tuple(name for name, row in feature_maps().items() if row["elementwise"])


@functools.cache
def config_fields() -> dict[str, Row]:
    """Keys of config.json by name, in their order: section, kind, min, max, words,
    default, wanted, ..."""
    return _by_name(torch.ops.tarn.config_fields())


def words_of(key: str) -> tuple[str, ...]:
    """The words that a key with a choice takes."""
    return tuple(config_fields()[key]["words"])


def mixers() -> dict[str, Row]:
    """Mixers by name: family, sections, causal, recurrent, ... The table is asked for
    at each call, since a program may register more, but read only where it changed."""
    return _mixers(torch.ops.tarn.mixer_table())


@functools.lru_cache(maxsize=1)
def _mixers(text: str) -> dict[str, Row]:
    return _by_name(text)


_known: dict[str, Row] = {}


def mixer(name: str) -> Row | None:
    """The row of a mixer, None without one. A row never changes, so that of a known one
    is asked for once."""
    if name not in _known:
        _known.update(mixers())
    return _known.get(name)


def recurrent_mixers() -> tuple[str, ...]:
    """Mixers with a recurrent form: prefill and step."""
    return tuple(name for name, row in mixers().items() if row["recurrent"])


def layer_states(config: dict[str, Any]) -> list[list[Row]]:
    """The state of one sequence: for each layer its tensors, each with name, shape,
    initial and grows."""
    layers = json.loads(torch.ops.tarn.layer_states(json.dumps(config)))
    return [[{**row, "initial": float(row["initial"])} for row in layer] for layer in layers]


def _by_name(text: str) -> dict[str, Row]:
    return {row["name"]: row for row in json.loads(text)}
