"""Held-out curves, read where others of them are."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.core.types import JsonDict


def value_at(rows: Sequence[JsonDict], place: float, clock: str, key: str) -> float | None:
    """`key` of a curve after so many updates or seconds, whichever `clock` names, on
    the straight line between two evaluations; None before the first and after the
    last. Rows without the clock are left out."""
    points = [(row[clock], row[key]) for row in rows if row.get(clock) is not None]
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        if x0 <= place <= x1:
            return float(y0 + (y1 - y0) * (place - x0) / (x1 - x0) if x1 > x0 else y1)
    return float(points[0][1]) if points and points[0][0] == place else None
