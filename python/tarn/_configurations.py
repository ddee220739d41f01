"""What the C++ side says of a configuration, asked once for each: layers that are
configured alike share one answer, and a model with many layers asks no more often than
one with few."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import torch

from tarn import _tables as tables

Answer = TypeVar("Answer")
Config = dict[str, Any]

_MOST = 256  # answers kept: more than a program has types of layers


def remembered(ask: Callable[[Config], Answer]) -> Callable[[Config], Answer]:
    """Keeps the answers of `ask`, which are shared and must not be modified. Errors are
    not kept."""
    answers: dict[str, Answer] = {}

    @functools.wraps(ask)
    def answer(config: Config) -> Answer:
        key = repr(config)  # unlike values, it tells 1, 1.0 and True apart
        if key not in answers:
            found = ask(config)
            if len(answers) >= _MOST:
                answers.clear()
            answers[key] = found
        return answers[key]

    return answer


@remembered
def _finished(config: Config) -> Config:
    return json.loads(torch.ops.tarn.finish_config(json.dumps(config)))


def finished(config: Config) -> Config:
    """The whole configuration that the given keys stand for. Raises ValueError."""
    return dict(_finished(config))


def file_text(config: Mapping[str, Any]) -> str:
    """config.json of a configuration, the bytes that `tarn train` writes."""
    given = {name: value for name, value in config.items() if name != "format_version"}
    return torch.ops.tarn.config_text(json.dumps(given))


def layer_views(config: Config, n_layers: int) -> list[Config]:
    """A finished configuration as each layer of a stack sees it. The pattern of layers
    repeats over the depth, so only its first period is asked for, and the second
    where layers pass rows on."""
    text = file_text(config)
    period = len(config.get("layers") or "1")

    def asked(first: int, end: int) -> list[Config]:
        indices = range(first, min(end, n_layers))
        return [json.loads(torch.ops.tarn.layer_view(text, index)) for index in indices]

    views = asked(0, period)
    repeated = 0
    if any("reads_passed" in part for view in views for part in (view, *view.get("branches", ()))):
        # A layer of the first period makes rows that the later ones read.
        views += asked(period, 2 * period)
        repeated = period
    indices = (
        index if index < len(views) else repeated + index % period for index in range(n_layers)
    )
    return [dict(views[index]) for index in indices]


class LayerFacts(NamedTuple):
    """What one mixer owns, by its spec."""

    states: list[tables.Row]  # tensors of a sequence: name, shape, initial, grows
    shapes: dict[str, list[int]]  # names and shapes of its parameters


# Sections and keys of a configuration that concern the model around the mixer: its task, its
# positions and its other stack.
_SECTIONS_AROUND = ("image", "positions", "feed_forward")
_KEYS_AROUND = ("task", "n_classes", "input_dim", "n_decoder_layers", "cross_attention")


def of_one_layer(view: Config) -> Config:
    """The configuration of a model whose last layer is as the view has it: what one mixer
    owns depends neither on the model around it nor on its layer's other part, but for
    how many layers there are."""
    fields = tables.config_fields()
    own = {
        name: value
        for name, value in view.items()
        if name not in (*_KEYS_AROUND, "reads_passed")
        and (name not in fields or fields[name]["section"] not in _SECTIONS_AROUND)
    }
    layers = max(view["n_layers"], 2 if view.get("reads_passed") else 1)
    return {**own, "n_layers": layers, "arch": "decoder", "positions": "none"}


def layer_facts(view: Config) -> LayerFacts:
    """What the mixer of a layer's view owns."""
    config = of_one_layer(view)
    return _layer_facts(config)[1 if view.get("reads_passed") else 0]


@remembered
def _layer_facts(config: Config) -> list[LayerFacts]:
    """Those of the first and the last layer."""
    states = tables.layer_states(config)
    shapes = json.loads(torch.ops.tarn.weight_shapes(json.dumps(config)))
    facts = []
    for layer in (0, config["n_layers"] - 1):
        prefix = f"layers.{layer}.attention."
        own = {
            name.removeprefix(prefix): shape
            for name, shape in shapes.items()
            if name.startswith(prefix)
        }
        facts.append(LayerFacts(states[layer], own))
    return facts
