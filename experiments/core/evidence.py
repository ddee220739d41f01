"""What a criterion on trained models rests on, read from their runs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from experiments.core.types import JsonDict, Learner


def learner(
    name: str,
    runs: Sequence[JsonDict],
    key: str,
    baseline: float | None = None,
    *,
    value: float | None = None,
    higher: bool = False,
    rows: str = "held_out",
) -> Learner:
    """The trainings of one model, a run a seed: `key` of their evaluations. `value` is what
    a criterion reads where that is not the median of the last ones."""
    curves = [[(float(row["step"]), float(row[key])) for row in run[rows]] for run in runs]
    if value is None:
        value = statistics.median(curve[-1][1] for curve in curves)
    return Learner(name, value, baseline, curves, higher)


def paired(
    ours: Sequence[JsonDict],
    theirs: Sequence[JsonDict],
    margin: Callable[[JsonDict, JsonDict], float | None],
) -> list[float]:
    """The margin of each seed that both have; seeds of which one has none are left out."""
    others: Mapping[int, JsonDict] = {run["seed"]: run for run in theirs}
    found = [margin(run, others[run["seed"]]) for run in ours if run["seed"] in others]
    return [one for one in found if one is not None]
