"""Runs of `tarn train`: resumed after a stop, skipped when finished."""

from __future__ import annotations

import contextlib
import ctypes
import json
import pathlib
import resource
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.core import data, digest
from experiments.core.files import read_json, write_json
from experiments.core.points import file_name
from experiments.core.progress import Progress
from experiments.core.settings import Settings
from experiments.core.types import ExperimentError, JsonDict

_POLL_S = 0.2
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True)
class TrainingRun:
    """A finished run. `log` is log.jsonl, one dictionary an update; the model
    directory is `model`; seconds are the trainer's own, over all its stops."""

    folder: pathlib.Path
    log: list[JsonDict]
    seconds: float
    cpu_seconds: float

    @property
    def model(self) -> pathlib.Path:
        return self.folder


def train(settings: Settings, progress: Progress, part: str,
          flags: Sequence[str]) -> TrainingRun:
    """`tarn train` with these flags in <out>/runs/<part>. `flags` names data as
    the files they are, gives --steps, and leaves out --out, --threads, --device
    and --resume. A run that was finished with the same flags, data and engine is
    not run again, one that was stopped goes on. Ctrl-C stops the trainer, which
    saves, and raises KeyboardInterrupt."""
    folder = settings.out / "runs" / file_name(part)
    words = [str(one) for one in flags] + ["--threads", str(settings.threads),
                                           "--device", settings.device]
    key = _key(settings, words)
    notes_path = folder / "run.json"
    with progress.part(part):
        notes = _notes(notes_path)
        same = notes.get("key") == key and not settings.force
        if same and notes.get("finished") and (folder / "log.jsonl").is_file():
            progress.reused(notes["seconds"], notes["cpu_seconds"])
            return _read(folder, notes)
        if not same:
            notes = {"key": key, "flags": _named(words), "finished": False, "cpu_seconds": 0.0}
        folder.mkdir(parents=True, exist_ok=True)
        write_json(notes_path, notes)
        how = "--resume" if same and (folder / "checkpoint").exists() else "--overwrite"
        resumed_s = _elapsed(folder) if how == "--resume" else 0.0
        command = [str(settings.tarn), "train", *words, "--out", str(folder), how]
        before = _children_cpu()
        try:
            _run(command, folder, _steps(words), progress, part)
        finally:
            notes["cpu_seconds"] += _children_cpu() - before
            write_json(notes_path, notes)
        notes |= {"finished": True, "seconds": _elapsed(folder)}
        progress.reused_s += resumed_s
        write_json(notes_path, notes)
        return _read(folder, notes)


def thinned(log: Sequence[JsonDict], keys: Sequence[str], most: int = 200) -> list[JsonDict]:
    """At most about `most` lines with these keys, for a result: each the mean
    over its bin (of "step" and "elapsed_s" the last)."""
    size = max(1, -(-len(log) // most))
    lines: list[JsonDict] = []
    for start in range(0, len(log), size):
        group = log[start:start + size]
        line: JsonDict = {}
        for key in keys:
            values = [row[key] for row in group if row.get(key) is not None]
            if values:
                last = key in ("step", "elapsed_s", "cpu_s")
                line[key] = values[-1] if last else sum(values) / len(values)
        lines.append(line)
    return lines


def looks(log: Sequence[JsonDict], key: str, x: str = "step") -> list[tuple[float, float]]:
    """(x, value) of the updates that looked at held-out data."""
    return [(row[x], row[key]) for row in log if row.get(key) is not None]


# --- The run ------------------------------------------------------------------


def _key(settings: Settings, words: list[str]) -> str:
    """Digest of flags, the files they name by content, and the engine."""
    files = {word: data.sha256(pathlib.Path(word)) for word in words
             if not word.startswith("-") and pathlib.Path(word).is_file()}
    sources = digest.engine_sources(settings.experiment.sources)
    return digest.of_json({
        "flags": [files.get(word, pathlib.Path(word).name) for word in words],
        "data": settings.inputs()["data"], "engine": digest.of_sources(sources)})


def _named(words: list[str]) -> list[str]:
    """Flags for people: files by their name."""
    return [pathlib.Path(word).name if "/" in word else word for word in words]


def _notes(path: pathlib.Path) -> JsonDict:
    try:
        return read_json(path)
    except ExperimentError:
        return {}


def _steps(words: list[str]) -> int:
    """Of --steps, for the progress; 0 where it is not given."""
    return int(words[words.index("--steps") + 1]) if "--steps" in words else 0


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _log(folder: pathlib.Path) -> list[JsonDict]:
    text = (folder / "log.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def _elapsed(folder: pathlib.Path) -> float:
    try:
        return float(_log(folder)[-1]["elapsed_s"])
    except (OSError, IndexError, KeyError, ValueError):
        return 0.0


def _read(folder: pathlib.Path, notes: JsonDict) -> TrainingRun:
    return TrainingRun(folder, _log(folder), float(notes["seconds"]),
                       float(notes["cpu_seconds"]))


def _with_parent() -> None:
    """The trainer stops, saving, when this process is killed."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


class _LogTail:
    """The last whole line of a log that grows."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path, self._at, self._rest = path, 0, b""

    def last(self) -> JsonDict | None:
        """Of the lines since the last call."""
        try:
            with self._path.open("rb") as stream:
                stream.seek(0, 2)
                if stream.tell() < self._at:  # begun anew
                    self._at, self._rest = 0, b""
                stream.seek(self._at)
                new = stream.read()
        except OSError:
            return None
        self._at += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        with contextlib.suppress(ValueError, IndexError):
            return json.loads(lines[-1])
        return None


_SHOWN = ("loss", "bits_per_byte", "bits_per_dim")


def _run(command: list[str], folder: pathlib.Path, steps: int, progress: Progress,
         part: str) -> None:
    """The trainer in a process group of its own, so that a terminal's Ctrl-C
    comes once, through this process."""
    tail = _LogTail(folder / "log.jsonl")
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [*command, "--quiet"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=errors, process_group=0, preexec_fn=_with_parent)
        try:
            first: tuple[float, float] | None = None
            while process.poll() is None:
                line = tail.last()
                if line is not None and "step" in line:
                    now = time.monotonic()
                    first = first or (line["step"], now)
                    progress.at(line["step"] / steps if steps else 0.0,
                                _figures(line, steps, first, now))
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_S)
        except BaseException:
            process.send_signal(signal.SIGINT)
            process.wait()
            raise
        errors.seek(0)
        said = errors.read().decode("utf-8", "replace").strip()
    if process.returncode in (130, -signal.SIGINT):
        raise KeyboardInterrupt
    if process.returncode != 0:
        last = said.splitlines()[-1] if said else f"ended with {process.returncode}"
        code = process.returncode if process.returncode in (2, 3) else 1
        raise ExperimentError(f"{part}: {last}", code)


def _figures(line: JsonDict, steps: int, first: tuple[float, float], now: float) -> str:
    """"1200/3500 updates, 12.3/s, loss 0.031"."""
    text = f"{line['step']}" + (f"/{steps}" if steps else "") + " updates"
    if now - first[1] > 1.0:
        text += f", {(line['step'] - first[0]) / (now - first[1]):.3g}/s"
    for key in _SHOWN:
        if line.get(key) is not None:
            text += f", {key.replace('_', ' ')} {line[key]:.4g}"
            break
    return text
