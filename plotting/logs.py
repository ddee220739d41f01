"""Training logs (log.jsonl): the figures of every update, by name."""

from __future__ import annotations

import json
import math
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass, field

MAX_LINE = 1 << 16  # bytes: a row has a few hundred


class BadLog(ValueError):
    """A file that is no training log; the message names file and line."""


@dataclass
class Log:
    """What a run wrote: name of a figure -> its (update, value) points. A mean of several
    updates may have a step between two."""

    path: pathlib.Path
    figures: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The run's folder, or the file's own name where it is not log.jsonl."""
        path = self.path.resolve()
        return path.parent.name if path.name == "log.jsonl" else path.stem


def read(path: pathlib.Path | str) -> Log:
    """Reads DIR/log.jsonl or a file. A last line without its end is left out: the
    run may be writing it. Raises BadLog, also for a file that cannot be read."""
    log = Log(pathlib.Path(path))
    if log.path.is_dir():
        log.path /= "log.jsonl"
    try:
        _read(log)
    except OSError as error:
        raise BadLog(f"{log.path}: want a file that can be read, got {error.strerror}") from error
    if not log.figures:
        raise BadLog(f"{log.path}: want rows of a training log, got none")
    return log


def _read(log: Log) -> None:
    number = 0
    with open(log.path, "rb") as lines:
        while line := lines.readline(MAX_LINE):
            number += 1
            if not line.endswith(b"\n"):
                if len(line) == MAX_LINE:
                    raise BadLog(f"{log.path}:{number}: want at most {MAX_LINE} bytes, got more")
                break
            _add(log, number, line)


def _add(log: Log, number: int, line: bytes) -> None:
    where = f"{log.path}:{number}: want a row of a training log"
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadLog(f"{where}, got {type(error).__name__}: {error}") from error
    if isinstance(row, dict) and "step" not in row:
        return  # a note
    step = row["step"] if isinstance(row, dict) else None
    if not isinstance(step, (int, float)) or isinstance(step, bool) or not 0 <= step < 1 << 53:
        raise BadLog(f"{where} with its step, got {line[:80]!r}")
    for name, value in row.items():
        if name == "step" or isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        if math.isfinite(number_ := float(value)):
            log.figures.setdefault(name, []).append((step, number_))


def common(logs: Sequence[Log], wanted: str | None = None) -> str:
    """The figure to draw: `wanted`, or the first of those that every log has. Raises
    BadLog that lists what there is."""
    shared = [name for name in logs[0].figures if all(name in log.figures for log in logs)]
    if wanted is None:
        for name in ("bits_per_byte", "bits_per_dim", "loss"):
            if name in shared:
                return name
    elif wanted in shared:
        return wanted
    raise BadLog(
        f"--key: want one of {', '.join(shared) or 'no figure (the logs share none)'}, "
        f"got {wanted or 'nothing'}"
    )
