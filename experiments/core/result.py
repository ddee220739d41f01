"""result.json: what run() returned in an envelope that says where from."""

from __future__ import annotations

import datetime
import pathlib
import time
from typing import Any

from experiments.core import digest, machine
from experiments.core.files import read_json, write_json
from experiments.core.points import cpu_seconds
from experiments.core.progress import Progress
from experiments.core.settings import Settings
from experiments.core.types import SIZES, ExperimentError, JsonDict

FORMAT = 1
_KEYS: dict[str, type | tuple[type, ...]] = {
    "format": int,
    "experiment": str,
    "size": str,
    "settings": dict,
    "commit": str,
    "date": str,
    "machine": dict,
    "command": str,
    "seeds": list,
    "inputs": dict,
    "seconds": (int, float),
    "cpu_seconds": (int, float),
    "measured": dict,
}


def path_of(settings: Settings) -> pathlib.Path:
    return settings.out / "result.json"


def stale(settings: Settings) -> str:
    """Why the stored result is not current; empty where it is."""
    path = path_of(settings)
    if not path.is_file():
        return "not run yet"
    try:
        stored = read(path)
    except ExperimentError as error:
        return str(error)
    now = settings.inputs()
    if stored["inputs"].get("digest") == digest.of_json(now):
        return ""
    changed = [
        name for name in ("settings", "data", "sources") if stored["inputs"].get(name) != now[name]
    ]
    return f"{' and '.join(changed) or 'inputs'} changed"


def device_of(settings: Settings) -> str:
    """The device of the stored result, "cpu" for a result from before there was a
    choice; empty where no result can be read."""
    try:
        return str(read(path_of(settings))["settings"].get("device", "cpu"))
    except (ExperimentError, OSError):
        return ""


def measure(settings: Settings, progress: Progress) -> JsonDict:
    """Runs the experiment and stores its result, whatever there was."""
    inputs, commit = settings.inputs(), machine.commit()
    began, cpu = time.monotonic(), cpu_seconds()
    measured = dict(settings.experiment.run(settings, progress))
    seconds, cpu = time.monotonic() - began, cpu_seconds() - cpu
    seeds = measured.pop("seeds", [settings.seed])
    result = {
        "format": FORMAT,
        "experiment": settings.experiment.name,
        "size": settings.size,
        "settings": settings.recorded(),
        "commit": commit,
        "date": datetime.date.today().isoformat(),
        "machine": machine.facts(settings.threads, settings.size != "quick", settings.device),
        "command": settings.command(),
        "seeds": seeds,
        "inputs": inputs | {"digest": digest.of_json(inputs)},
        "seconds": seconds + progress.reused_s,
        "cpu_seconds": cpu + progress.reused_cpu_s,
        "measured": measured,
    }
    write_json(path_of(settings), result)
    return read(path_of(settings))


def read(path: pathlib.Path) -> JsonDict:
    """A stored result with its envelope checked. ExperimentError (3)."""
    result = read_json(path)
    for key, kind in _KEYS.items():
        value = result.get(key)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ExperimentError(
                f"{path}: {key}: want {_words(kind)}, got {type(value).__name__}", 3
            )
    if result["format"] != FORMAT:
        raise ExperimentError(f"{path}: format: want {FORMAT}, got {result['format']}", 3)
    if result["size"] not in SIZES:
        raise ExperimentError(f"{path}: size: want {', '.join(SIZES)}, got {result['size']!r}", 3)
    _check_data(path, result["inputs"].get("data", []))
    return result


def _check_data(path: pathlib.Path, sets: Any) -> None:
    """The record of data.describe()."""
    good = isinstance(sets, list) and all(
        isinstance(one, dict)
        and isinstance(one.get("files", []), list)
        and all(
            isinstance(file, dict)
            and isinstance(file.get("file"), str)
            and isinstance(file.get("sha256"), str)
            for file in one.get("files", [])
        )
        for one in sets
    )
    if not good:
        raise ExperimentError(f"{path}: inputs: data: want sets with files and their sha256", 3)


def _words(kind: Any) -> str:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return " or ".join(one.__name__ for one in kinds)
