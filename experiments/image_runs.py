"""What is read off a training on images: its curve, its test, and where two curves
are at the same time."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Mapping, Sequence

from experiments.core import JsonDict, Settings, TrainingRun, tarn_json


def held_out(run: TrainingRun) -> list[JsonDict]:
    """bits/dim of held-out images over updates, wall and CPU seconds."""
    keys = ("step", "elapsed_s", "cpu_s", "val_bits_per_dim")
    return [{key: row.get(key) for key in keys} for row in run.log
            if row.get("val_bits_per_dim") is not None]


def figures_of(settings: Settings, run: TrainingRun) -> JsonDict:
    updates = len(run.log)
    return {
        "parameters": tarn_json(settings, ["info", run.model])["parameters"]["total"],
        "updates": updates, "seconds": run.seconds, "cpu_seconds": run.cpu_seconds,
        "seconds_an_update": run.seconds / max(updates, 1), "held_out": held_out(run),
    }


def test(settings: Settings, run: TrainingRun, file: pathlib.Path, pool: int,
         count: int) -> JsonDict:
    """bits/dim of the first test images, and of each."""
    found = tarn_json(settings, ["eval", run.model, file, "--pool", pool, "--index",
                                 f"0-{count - 1}", "--per-image", "--threads", settings.threads])
    return {key: found[key] for key in
            ("images", "bits_per_dim", "standard_error", "bits_per_dim_of_images", "seconds")}


def at_time(rows: Sequence[JsonDict], seconds: float, clock: str) -> float | None:
    """Held-out bits/dim at a time, on the straight line between two evaluations;
    None before the first and after the last."""
    points = [(row[clock], row["val_bits_per_dim"]) for row in rows
              if row.get(clock) is not None]
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        if x0 <= seconds <= x1:
            return y0 + (y1 - y0) * (seconds - x0) / (x1 - x0) if x1 > x0 else y1
    return points[0][1] if points and points[0][0] == seconds else None


def equal_time(runs: Mapping[str, JsonDict], clock: str) -> JsonDict | None:
    """Held-out bits/dim of runs by kind when the first of them had finished. The
    winner is the lower; None where a curve does not reach there."""
    ends = [one["held_out"][-1].get(clock) for one in runs.values() if one["held_out"]]
    if len(ends) < 2 or any(end is None for end in ends):
        return None
    seconds = min(ends)
    found = {kind: at_time(one["held_out"], seconds, clock) for kind, one in runs.items()}
    if any(value is None for value in found.values()):
        return None
    return {"seconds": seconds, "bits_per_dim": found,
            "winner": min(found, key=lambda kind: found[kind] or math.inf)}
