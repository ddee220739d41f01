"""Configurations between Python and the C++ side: a model asks once for what its layers
share."""

import json

import pytest

from tarn import models, nn
from tarn import _configurations as configurations

PATTERNS = [
    ["linear"],
    ["gdn"],
    ["rwkv7"],
    ["gdn", "gdn", "gated-full"],
    ["linear", {"mixer": "local", "local_context": 5}, "mamba2"],
]


@pytest.fixture
def texts(monkeypatch):
    """The number of JSON texts that have been read or written."""
    counted = [0]
    for name in ("loads", "dumps"):

        def count(*args, _call=getattr(json, name), **kwargs):
            counted[0] += 1
            return _call(*args, **kwargs)

        monkeypatch.setattr(json, name, count)
    return counted


def cost(texts, make):
    before = texts[0]
    make()
    return texts[0] - before


@pytest.mark.parametrize("layers", PATTERNS, ids=str)
def test_a_deep_model_asks_as_often_as_a_flat_one(texts, layers):
    def make(d_model, depth):
        keys = {"layers": layers, "n_layers": depth, "vocab_size": 7, "n_heads": 2}
        return lambda: models.LanguageModel(**keys, d_model=d_model)

    make(36, 3)()  # reads the tables
    # Widths that no other test has: nothing is known of these layers.
    flat, deep = cost(texts, make(44, 3)), cost(texts, make(52, 12))
    assert flat == deep > 0
    assert cost(texts, make(44, 12)) <= flat


@pytest.mark.parametrize("mixer", ["gdn", "rwkv6", "gated-full"])
def test_a_deep_stack_asks_as_often_as_a_flat_one(texts, mixer):
    def make(d_model, depth):
        return lambda: nn.Encoder(depth, d_model, 2, mixer=mixer)

    make(36, 1)()  # reads the tables
    flat, deep = cost(texts, make(60, 2)), cost(texts, make(68, 8))
    assert flat == deep > 0


@pytest.mark.parametrize("layers", PATTERNS, ids=str)
def test_views_are_those_of_each_layer(layers):
    config = models.finish_config(layers=layers, n_layers=7, d_model=32, n_heads=2)
    views = configurations.layer_views(config, 7)
    assert views == [models.layer_view(config, index) for index in range(7)]
    views[0]["d_model"] = 0
    assert all(view["d_model"] == 32 for view in views[1:])
    assert configurations.layer_views(config, 0) == []


def test_views_of_a_configuration_without_a_pattern():
    config = models.finish_config(attention="full", d_model=32, n_heads=2)
    views = configurations.layer_views(config, 3)
    assert views == [models.layer_view(config, index) for index in range(3)]


def test_answers_belong_to_the_caller_and_errors_are_not_kept():
    given = {"attention": "gdn", "d_model": 32, "n_heads": 1, "n_layers": 1}
    first = configurations.finished(given)
    first["d_model"] = 0
    assert configurations.finished(given)["d_model"] == 32
    for _ in range(2):  # True equals 1, but is no number of heads
        with pytest.raises(ValueError, match="n_heads"):
            configurations.finished({**given, "n_heads": True})


def test_few_answers_are_kept(monkeypatch):
    monkeypatch.setattr(configurations, "_MOST", 2)
    asked = []

    @configurations.remembered
    def ask(config):
        asked.append(config["a"])
        return config["a"]

    assert [ask({"a": a}) for a in (1, 1, 2, 2, 3, 1)] == [1, 1, 2, 2, 3, 1]
    assert asked == [1, 2, 3, 1]
