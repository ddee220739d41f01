"""The experiments in the order in which `tarn experiment all` runs them, each
imported when it is asked for."""

import importlib
import importlib.util

from experiments.core.settings import Experiment

MODULES = {
    "scaling": "experiments.scaling",
    "copy": "experiments.copying",
    "images": "experiments.images",
    "generation": "experiments.generation",
    "completion": "experiments.completion",
    "speech": "experiments.speech",
    "long": "experiments.long",
    "maps": "experiments.maps",
    "recall": "experiments.recall",
    "earlier": "experiments.earlier",
    "same_start": "experiments.same_start",
    "distributed": "experiments.distributed",
    "families": "experiments.families",
}
# `all` leaves these out, and so does `make paper`: they run by their name alone.
APART = ("distributed", "families")


def names() -> list[str]:
    """All experiments whose module is there."""
    return [name for name, module in MODULES.items() if importlib.util.find_spec(module)]


def in_all() -> list[str]:
    """The experiments that `all` runs."""
    return [name for name in names() if name not in APART]


def find(name: str) -> Experiment:
    """The experiment of that name. KeyError where there is none of it."""
    if name not in names():
        raise KeyError(name)
    experiment: Experiment = importlib.import_module(MODULES[name]).EXPERIMENT
    if experiment.name != name:
        raise ValueError(f"{MODULES[name]}: want an experiment named {name}, got {experiment.name}")
    return experiment
