"""Calls of `tarn`: eval, generate, info."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence

from experiments.core.settings import Settings
from experiments.core.types import ExperimentError, JsonDict


def run_tarn(settings: Settings, arguments: Sequence[object], text: str | None = None) -> str:
    """What `tarn ARGUMENTS` writes to stdout, with `text` as its input.
    ExperimentError carries its last line and its exit code where it fails; it
    ends with this process. Adds no --threads by itself."""
    words = [str(one) for one in arguments]
    done = subprocess.run(
        [str(settings.tarn), *words],
        input=text,
        text=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL if text is None else None,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    if done.returncode == 130:
        raise KeyboardInterrupt
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
        code = done.returncode if done.returncode in (2, 3) else 1
        raise ExperimentError(f"tarn {words[0]}: {said[-1]}", code)
    return done.stdout


def tarn_json(settings: Settings, arguments: Sequence[object]) -> JsonDict:
    """The object that `tarn ... --json` writes."""
    return json.loads(run_tarn(settings, [*arguments, "--json"]))
