"""The types that everything here shares; this module needs none of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

JsonDict = dict[str, Any]

SIZES = ("quick", "cpu", "full")
# Where training and operators run, as `tarn train --device` says it.
DEVICES = ("cpu", "cuda")

# `tarn train --attention` by the words of `tarn experiment --attention`.
ATTENTION_FLAG = {"linear": "linear", "softmax": "full", "reformer": "reformer"}
# Kinds that came after linear attention of 2020, as `--attention` names them.
FAMILIES = ("retnet", "mamba2", "gla", "gdn", "kda", "rwkv7", "hybrid")


class ExperimentError(Exception):
    """An error of one line for the user; `code` is the program's exit code: 1 failure,
    2 wrong usage, 3 bad or missing data."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Learner:
    """The trainings of one model, as a criterion compares them.

    value     what the criterion reads of them, mostly the median of their seeds
    baseline  the trivial baseline's on the same items; None where none was fitted
    curves    held-out values by updates, a curve a seed; none where there are none
    higher    higher values are better: accuracies, as shares of 1
    """

    name: str
    value: float
    baseline: float | None = None
    curves: Sequence[Sequence[tuple[float, float]]] = ()
    higher: bool = False


@dataclass(frozen=True)
class Evidence:
    """One comparison that a criterion rests on; experiments/core/verdict.py evaluates
    it.

    better, worse  the models that the claim says are ahead and behind; one of the two is
                   empty where a model is held against a bound
    margins        how far each replicate supports the claim: > 0 for, < 0 against
    slack          what the margins allow for: where the claim does not hold, it is taken off,
                   for then the question is whether there is a difference at all
    unit           what a replicate is
    seeds          of the trainings, where they are not the replicates. A claim that something
                   can be done needs one training, and names neither
    need           how far a value may move before the outcome turns; the median margin
                   where it is None
    """

    better: Sequence[Learner] = ()
    worse: Sequence[Learner] = ()
    margins: Sequence[float] = ()
    slack: float = 0.0
    unit: str = "seed"
    seeds: int | None = None
    need: float | None = None


@dataclass(frozen=True)
class Criterion:
    """One line of the table on which a verdict rests.

    part      what of the claim it decides, in a few words for the verdict; the
              name where it is empty
    holds     None where this size or machine does not measure it; `got` then
              says why
    opposite  with `holds` False: the figures show the opposite of the claim, not
              merely less than it asks
    reported    it asks only for a figure, whichever it is: it is shown, and counts
              neither for the claim nor against it
    goal      an engineering goal of tarn's own: it is in a separate table and does
              not affect the claim
    evidence  the comparisons of trained models that support it. `holds` counts only
              where they decide something (experiments/core/verdict.py)
    """

    name: str
    wanted: str
    got: str
    holds: bool | None
    part: str = ""
    opposite: bool = False
    reported: bool = False
    goal: bool = False
    evidence: Sequence[Evidence] = ()

    @property
    def claims(self) -> bool:
        """Whether the verdict on the claim rests on this criterion."""
        return not self.reported and not self.goal

    @classmethod
    def at_most(
        cls, name: str, value: float | None, bound: float, unit: str = "", **more: Any
    ) -> Criterion:
        """value <= bound; a missing or NaN value is not measured, not passed.
        `more`: part, opposite, reported or goal."""
        return cls._compare(name, value, bound, unit, "at most", lambda v: v <= bound, more)

    @classmethod
    def at_least(
        cls, name: str, value: float | None, bound: float, unit: str = "", **more: Any
    ) -> Criterion:
        """value >= bound; as at_most()."""
        return cls._compare(name, value, bound, unit, "at least", lambda v: v >= bound, more)

    @classmethod
    def between(
        cls, name: str, value: float | None, low: float, high: float, unit: str = "", **more: Any
    ) -> Criterion:
        """low <= value <= high; as at_most()."""
        wanted = f"{low:g} to {high:g}{_space(unit)}"
        if value is None or value != value:
            return cls(name, wanted, "not measured", None, **more)
        return cls(name, wanted, f"{value:.4g}{_space(unit)}", low <= value <= high, **more)

    @classmethod
    def _compare(
        cls,
        name: str,
        value: float | None,
        bound: float,
        unit: str,
        word: str,
        test: Callable[[float], bool],
        more: JsonDict,
    ) -> Criterion:
        wanted = f"{word} {bound:g}{_space(unit)}"
        if value is None or value != value:
            return cls(name, wanted, "not measured", None, **more)
        return cls(name, wanted, f"{value:.4g}{_space(unit)}", test(value), **more)


def _space(unit: str) -> str:
    """ "x" follows the figure directly, other units after a space."""
    return unit if unit in ("", "x") else f" {unit}"
