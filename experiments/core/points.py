"""Measured points that outlive a stop: each is stored when it is measured and
used again while what decided it is unchanged."""

from __future__ import annotations

import re
import resource
import time
from collections.abc import Callable

from experiments.core import digest
from experiments.core.files import read_json, rounded, write_json
from experiments.core.progress import Progress
from experiments.core.settings import Settings
from experiments.core.types import ExperimentError, JsonDict


def file_name(part: str) -> str:
    """A part's name as a file name: "N = 512, linear" is "n-512-linear"."""
    return re.sub(r"[^a-z0-9.]+", "-", part.lower()).strip("-") or "part"


def cpu_seconds() -> float:
    """User and system time of this process and its ended children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def measure(
    settings: Settings,
    progress: Progress,
    part: str,
    inputs: JsonDict,
    function: Callable[[], JsonDict],
) -> JsonDict:
    """function()'s result, from <out>/points/<part>.json where it was measured
    with the same inputs, data and sources. `inputs` is all that decides it
    beyond those: shapes, repeats, seed, threads; the seed, the threads and the
    device of the settings are added. Results are JSON values, rounded to six digits.
    Shows itself as the part of that name; call progress.at() inside."""
    path = settings.out / "points" / f"{file_name(part)}.json"
    recorded = settings.inputs()
    key = digest.of_json(
        {
            "part": part,
            "inputs": inputs,
            "data": recorded["data"],
            "sources": recorded["sources"],
            "seed": settings.seed,
            "threads": settings.threads,
            "device": settings.device,
        }
    )
    with progress.part(part):
        if path.is_file() and not settings.force:
            try:
                kept = read_json(path)
            except ExperimentError:
                kept = {}  # a broken point is measured again
            if kept.get("key") == key and isinstance(kept.get("figures"), dict):
                progress.reused(float(kept["seconds"]), float(kept["cpu_seconds"]))
                return kept["figures"]
        began, cpu = time.monotonic(), cpu_seconds()
        figures = rounded(function())
        write_json(
            path,
            {
                "key": key,
                "part": part,
                "inputs": inputs,
                "seconds": time.monotonic() - began,
                "cpu_seconds": cpu_seconds() - cpu,
                "figures": figures,
            },
        )
        return figures
