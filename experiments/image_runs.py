"""What is read off a training on images: its curve, its test, and where two curves
are at the same time."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Mapping, Sequence

from experiments.core import JsonDict, Settings, TrainingRun, tarn_json, value_at

COMPARED = ("linear", "softmax")  # image by image; others are shown too


def held_out(run: TrainingRun) -> list[JsonDict]:
    """bits/dim of held-out images over updates, wall and CPU seconds."""
    keys = ("step", "elapsed_s", "cpu_s", "val_bits_per_dim")
    return [
        {key: row.get(key) for key in keys}
        for row in run.log
        if row.get("val_bits_per_dim") is not None
    ]


def figures_of(settings: Settings, run: TrainingRun) -> JsonDict:
    updates = len(run.log)
    return {
        "parameters": tarn_json(settings, ["info", run.model])["parameters"]["total"],
        "updates": updates,
        "seconds": run.seconds,
        "cpu_seconds": run.cpu_seconds,
        "seconds_an_update": run.seconds / max(updates, 1),
        "held_out": held_out(run),
    }


def test(
    settings: Settings, run: TrainingRun, file: pathlib.Path, pool: int, count: int
) -> JsonDict:
    """bits/dim of the first test images, and of each."""
    found = tarn_json(
        settings,
        [
            "eval",
            run.model,
            file,
            "--pool",
            pool,
            "--index",
            f"0-{count - 1}",
            "--per-image",
            "--threads",
            settings.threads,
        ],
    )
    return {
        key: found[key]
        for key in ("images", "bits_per_dim", "standard_error", "bits_per_dim_of_images", "seconds")
    }


def equal_time(runs: Mapping[str, JsonDict], clock: str) -> JsonDict | None:
    """Held-out bits/dim of runs by kind when the first of them had finished. The
    winner is the lower; None where a curve does not reach there."""
    ends = [one["held_out"][-1].get(clock) for one in runs.values() if one["held_out"]]
    if len(ends) < 2 or any(end is None for end in ends):
        return None
    seconds = min(ends)
    found = {
        kind: value_at(one["held_out"], seconds, clock, "val_bits_per_dim")
        for kind, one in runs.items()
    }
    if any(value is None for value in found.values()):
        return None
    return {
        "seconds": seconds,
        "bits_per_dim": found,
        "winner": min(found, key=lambda kind: found[kind] or math.inf),
    }


def apart(linear: Sequence[float], softmax: Sequence[float]) -> JsonDict:
    """Linear minus softmax on the same images: mean, its standard error over the
    images, and the mean's share of softmax's."""
    differences = [a - b for a, b in zip(linear, softmax, strict=True)]
    mean = math.fsum(differences) / len(differences)
    squares = math.fsum((x - mean) ** 2 for x in differences)
    error = math.sqrt(squares / max(len(differences) - 1, 1) / len(differences))
    return {
        "difference": mean,
        "standard_error": error,
        "relative": mean / (math.fsum(softmax) / len(softmax)),
    }


def pairs(
    runs: Sequence[JsonDict], tests: Mapping[tuple[str, int], JsonDict | None]
) -> list[JsonDict]:
    """A row a seed that both kinds have: how far they are apart on the test images
    when both have ended, and on held-out images at the same time. tests: by kind and
    seed, with the bits/dim of each image."""
    rows = []
    for seed in sorted({run["seed"] for run in runs}):
        both = {run["kind"]: run for run in runs if run["seed"] == seed and run["kind"] in COMPARED}
        if set(both) == set(COMPARED):
            found = [tests[kind, seed] for kind in COMPARED]
            images = [one["bits_per_dim_of_images"] for one in found if one]
            rows.append(
                {
                    "seed": seed,
                    "equal_updates": apart(*images),
                    "equal_time": equal_time(both, "elapsed_s"),
                    "equal_cpu_time": equal_time(both, "cpu_s"),
                }
            )
    return rows
