"""Every experiment keeps to experiments/README.md."""

import importlib.util
import pathlib

import pytest

from experiments import registry
from experiments.core import data
from experiments.core.types import SIZES, Experiment

ROOT = pathlib.Path(__file__).resolve().parents[2]
KINDS = {"linear", "softmax", "reformer", "lstm"}


@pytest.fixture(autouse=True)
def the_real_ones(only_toy, monkeypatch):
    monkeypatch.undo()


def _all() -> list[Experiment]:
    return [registry.find(name) for name in registry.names()]


def test_each_declares_what_decides_it():
    for one in _all():
        module = registry.MODULES[one.name]
        spec = importlib.util.find_spec(module)
        assert spec is not None and spec.origin is not None
        own = str(pathlib.Path(spec.origin).relative_to(ROOT))
        assert own in one.sources, one.name
        assert not any(source.endswith("_page.py") for source in one.sources), one.name
        for source in one.sources:
            assert (ROOT / source).exists(), f"{one.name}: {source}"
        for names in one.data:
            assert set(names.removeprefix("?").split("|")) <= data.SETS.keys(), one.name


def test_each_says_what_it_is():
    for one in _all():
        assert one.title and one.claim.endswith(".") and one.paper, one.name
        assert set(one.attention) <= KINDS and one.attention, one.name
        assert one.minutes.keys() == set(SIZES), one.name


def test_time_is_kept():
    """100 minutes at the size of two cores, six at the smoke size."""
    assert sum(one.minutes["cpu"] for one in _all()) <= 100
    assert sum(one.minutes["quick"] for one in _all()) <= 6


def test_unknown_name():
    with pytest.raises(KeyError):
        registry.find("nonsense")
