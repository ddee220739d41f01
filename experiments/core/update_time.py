"""How long an update takes, and so how many of them fit into a time: the basis of every comparison
of kinds after the same time."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from experiments.core.types import JsonDict


@dataclass(frozen=True)
class UpdateTime:
    """Seconds of an update, and of one look at the held-out data."""

    update: float
    evaluation: float

    def updates_in(self, seconds: float, evaluations: int = 0, least: int = 1) -> int:
        """The number of updates that fit into `seconds` together with so many evaluations."""
        return max(least, round((seconds - evaluations * self.evaluation) / self.update))


def update_time(
    log: Sequence[JsonDict],
    settling: int = 1,
    average: Callable[[Sequence[float]], float] = statistics.median,
) -> UpdateTime:
    """The times of a short run whose last update is the only one that evaluates. The
    first `settling` updates do not count, because caches and the allocator settle in
    them; where no other update is left, the first one counts."""
    ends = [float(row["elapsed_s"]) for row in log]
    between = [b - a for a, b in zip(ends[settling - 1 :], ends[settling:-1])]
    update = average(between) if between else ends[0]
    last = ends[-1] - ends[-2] if len(ends) > 1 else 0.0
    return UpdateTime(update, max(0.0, last - update))
