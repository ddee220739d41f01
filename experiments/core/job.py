"""One process of `tarn train`: what is on disk of it, whether it is finished,
how far it is; and several of them at once."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

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


def _key(settings: Settings, words: list[str]) -> str:
    """Digest of flags, the files they name by content, and the engine."""
    files = {
        word: data.sha256(pathlib.Path(word))
        for word in words
        if not word.startswith("-") and pathlib.Path(word).is_file()
    }
    sources = digest.engine_sources(settings.experiment.sources)
    return digest.of_json(
        {
            "flags": [files.get(word, pathlib.Path(word).name) for word in words],
            "data": settings.inputs()["data"],
            "engine": digest.of_sources(sources),
        }
    )


def _named(words: list[str]) -> list[str]:
    """Flags for people: files by their name."""
    return [pathlib.Path(word).name if "/" in word else word for word in words]


def _notes(path: pathlib.Path) -> JsonDict:
    try:
        return read_json(path)
    except ExperimentError:
        return {}


def _steps(words: list[str]) -> int:
    """The value of --steps, for the progress; 0 where it is not given."""
    return int(words[words.index("--steps") + 1]) if "--steps" in words else 0


def _log(folder: pathlib.Path) -> list[JsonDict]:
    text = (folder / "log.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def _elapsed(folder: pathlib.Path) -> float:
    try:
        return float(_log(folder)[-1]["elapsed_s"])
    except (OSError, IndexError, KeyError, ValueError):
        return 0.0


def _with_parent() -> None:
    """The trainer stops, saving, when this process is killed."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


class _LogTail:
    """The last whole line of a log that grows."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path, self._at, self._rest = path, 0, b""

    def last(self) -> JsonDict | None:
        """The last whole line since the last call; None where none was added."""
        try:
            with self._path.open("rb") as stream:
                stream.seek(0, 2)
                if stream.tell() < self._at:  # begun again
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


class Job:
    """One run of the trainer: what is on disk of it, and its process."""

    def __init__(self, settings: Settings, part: str, flags: Sequence[str], threads: int) -> None:
        self.part = part
        self.folder = settings.out / "runs" / file_name(part)
        words = [str(one) for one in flags] + [
            "--threads",
            str(threads),
            "--device",
            settings.device,
        ]
        self._notes_path = self.folder / "run.json"
        self.steps = _steps(words)
        key = _key(settings, words)
        self.notes = _notes(self._notes_path)
        same = self.notes.get("key") == key and not settings.force
        self.finished = bool(
            same and self.notes.get("finished") and (self.folder / "log.jsonl").is_file()
        )
        if not same:
            self.notes = {"key": key, "flags": _named(words), "finished": False, "cpu_seconds": 0.0}
        resume = same and (self.folder / "checkpoint").exists()
        self.resumed_s = _elapsed(self.folder) if resume else 0.0
        self.command = [
            str(settings.tarn),
            "train",
            *words,
            "--out",
            str(self.folder),
            "--resume" if resume else "--overwrite",
            "--quiet",
        ]
        self._errors: IO[bytes] | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self._first: tuple[float, float] | None = None
        self._tail = _LogTail(self.folder / "log.jsonl")
        self.share, self.figures = 0.0, ""

    def start(self) -> None:
        """A separate process group, so that a terminal's Ctrl-C comes once,
        through this process."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self._notes_path, self.notes)
        self._errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            process_group=0,
            preexec_fn=_with_parent,
        )

    def look(self) -> None:
        """How far the training is, by the last line of its log."""
        line = self._tail.last()
        if line is not None and "step" in line:
            now = time.monotonic()
            self._first = self._first or (line["step"], now)
            self.share = line["step"] / self.steps if self.steps else 0.0
            self.figures = _figures(line, self.steps, self._first, now)

    def ended(self, wait: bool = False) -> bool:
        """Whether the process is gone; its processor time is then on record."""
        process = self.process
        if process is None or process.returncode is not None:
            return True
        pid, status, used = os.wait4(process.pid, 0 if wait else os.WNOHANG)
        if pid == 0:
            return False
        process.returncode = os.waitstatus_to_exitcode(status)
        self.notes["cpu_seconds"] += used.ru_utime + used.ru_stime
        write_json(self._notes_path, self.notes)
        return True

    def stop(self) -> None:
        """Asks the trainer to save and end, and waits until it has ended."""
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(signal.SIGINT)
            self.ended(wait=True)

    def close(self) -> None:
        """Records the run as finished, or raises what went wrong."""
        assert self.process is not None and self._errors is not None
        with self._errors as errors:
            errors.seek(0)
            said = errors.read().decode("utf-8", "replace").strip()
        code = self.process.returncode
        if code in (130, -signal.SIGINT):
            raise KeyboardInterrupt
        if code != 0:
            last = said.splitlines()[-1] if said else f"ended with {code}"
            raise ExperimentError(f"{self.part}: {last}", code if code in (2, 3) else 1)
        self.notes |= {"finished": True, "seconds": _elapsed(self.folder)}
        write_json(self._notes_path, self.notes)

    def read(self) -> TrainingRun:
        return TrainingRun(
            self.folder,
            _log(self.folder),
            float(self.notes["seconds"]),
            float(self.notes["cpu_seconds"]),
        )


def run_all(jobs: Sequence[Job], progress: Progress) -> None:
    """All of them at once, until the last has ended. When one fails the others
    go on to their end; when this is stopped they save and end."""
    try:
        for job in jobs:
            job.start()
        while not all([job.ended() for job in jobs]):
            for job in jobs:
                job.look()
            if any(job.figures for job in jobs):
                progress.at(
                    sum(job.share for job in jobs) / len(jobs),
                    "; ".join(job.figures for job in jobs if job.figures),
                )
            time.sleep(_POLL_S)
    except BaseException:
        for job in jobs:
            job.stop()
        raise
    failures: list[BaseException] = []
    for job in jobs:
        try:
            job.close()
        except (ExperimentError, KeyboardInterrupt) as error:
            failures.append(error)
    if failures:
        raise failures[0]


def _figures(line: JsonDict, steps: int, first: tuple[float, float], now: float) -> str:
    """ "1200/3500 updates, 12.3/s, loss 0.031"."""
    text = f"{line['step']}" + (f"/{steps}" if steps else "") + " updates"
    if now - first[1] > 1.0:
        text += f", {(line['step'] - first[0]) / (now - first[1]):.3g}/s"
    for key in _SHOWN:
        if line.get(key) is not None:
            text += f", {key.replace('_', ' ')} {line[key]:.4g}"
            break
    return text
