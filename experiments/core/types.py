"""What an experiment is made of, and how it fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.core.figures import Figures
    from experiments.core.page import Page
    from experiments.core.progress import Progress
    from experiments.core.settings import Settings

JsonDict = dict[str, Any]

SIZES = ("quick", "cpu", "full")

# `tarn train --attention` by the words of `tarn experiment --attention`.
ATTENTION_FLAG = {"linear": "linear", "softmax": "full", "reformer": "reformer"}


class ExperimentError(Exception):
    """One line for the user; `code` is the program's exit code: 1 failure,
    2 wrong usage, 3 bad or missing data."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Criterion:
    """One line of the pass table. `holds` is None where this size or machine
    does not measure it; `got` then says why. One that is `stated` asks only for
    a figure, whichever it is: it is shown, and counts neither as passed nor as
    missed."""

    name: str
    wanted: str
    got: str
    holds: bool | None
    stated: bool = False

    @classmethod
    def at_most(cls, name: str, value: float | None, bound: float, unit: str = "") -> Criterion:
        """value <= bound; a missing or NaN value is not measured, not passed."""
        return cls._compare(name, value, bound, unit, "at most", lambda v: v <= bound)

    @classmethod
    def at_least(cls, name: str, value: float | None, bound: float, unit: str = "") -> Criterion:
        """value >= bound; a missing or NaN value is not measured, not passed."""
        return cls._compare(name, value, bound, unit, "at least", lambda v: v >= bound)

    @classmethod
    def between(cls, name: str, value: float | None, low: float, high: float,
                unit: str = "") -> Criterion:
        """low <= value <= high; a missing or NaN value is not measured."""
        wanted = f"{low:g} to {high:g}{_space(unit)}"
        if value is None or value != value:
            return cls(name, wanted, "not measured", None)
        return cls(name, wanted, f"{value:.4g}{_space(unit)}", low <= value <= high)

    @classmethod
    def _compare(cls, name: str, value: float | None, bound: float, unit: str, word: str,
                 test: Callable[[float], bool]) -> Criterion:
        wanted = f"{word} {bound:g}{_space(unit)}"
        if value is None or value != value:
            return cls(name, wanted, "not measured", None)
        return cls(name, wanted, f"{value:.4g}{_space(unit)}", test(value))


def _space(unit: str) -> str:
    """"x" stands at the figure, other units after a space."""
    return unit if unit in ("", "x") else f" {unit}"


@dataclass(frozen=True)
class Experiment:
    """One experiment: what it is called, what decides its result, and its three
    functions. All but `run` work from the stored result alone."""

    name: str
    title: str
    paper: str  # "Figure 2"
    claim: str  # the paper's, one sentence
    # Files and folders below the repository whose content decides the figures:
    # the module with the measuring code and the engine's folders it stands on.
    sources: tuple[str, ...]
    run: Callable[[Settings, Progress], JsonDict]
    criteria: Callable[[JsonDict], list[Criterion]]
    page: Callable[[JsonDict, Figures], Page]
    # Names of core/data.py; "mnist|fashion-mnist" is the first that is found,
    # "?cifar10" is used where --data names it.
    data: tuple[str, ...] = ()
    # What --attention may pick from, in the order of the tables.
    attention: tuple[str, ...] = ("linear", "softmax")
    # Planned wall time on two AVX2 cores, by size.
    minutes: Mapping[str, float] = field(
        default_factory=lambda: {"quick": 0.3, "cpu": 10.0, "full": 600.0})
