"""Runs of `tarn train`: resumed after a stop, skipped when finished."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments.core.job import Job, TrainingRun
from experiments.core.job import run_all as _run
from experiments.core.progress import Progress
from experiments.core.settings import Settings
from experiments.core.types import JsonDict


def train(settings: Settings, progress: Progress, part: str, flags: Sequence[str]) -> TrainingRun:
    """`tarn train` with these flags in <out>/runs/<part>. `flags` names data as
    the files they are, gives --steps, and leaves out --out, --threads, --device
    and --resume. A run that was finished with the same flags, data and engine is
    not run again, one that was stopped continues. Ctrl-C stops the trainer, which
    saves, and raises KeyboardInterrupt."""
    job = Job(settings, part, flags, settings.threads)
    with progress.part(part):
        if not job.finished:
            _run([job], progress)
            progress.reused_s += job.resumed_s
        else:
            progress.reused(job.notes["seconds"], job.notes["cpu_seconds"])
        return job.read()


def train_together(
    settings: Settings, progress: Progress, jobs: Mapping[str, Sequence[str]]
) -> dict[str, TrainingRun]:
    """Does what train() does for several runs that do not need one another: each has
    one thread, and as many run at a time as there are threads. Small models do not
    fill two threads, so that this takes two thirds of the time; trainings whose
    seconds are compared run one after the other. Every run is a part of the
    progress; the parts of one group take equal shares of its time."""
    runs: dict[str, TrainingRun] = {}
    waiting: list[Job] = []
    for part, flags in jobs.items():
        job = Job(settings, part, flags, 1)
        if job.finished:
            with progress.part(part):
                progress.reused(job.notes["seconds"], job.notes["cpu_seconds"])
            runs[part] = job.read()
        else:
            waiting.append(job)
    at_once = max(1, settings.threads)
    for start in range(0, len(waiting), at_once):
        group = waiting[start : start + at_once]
        with progress.parts([job.part for job in group]):
            _run(group, progress)
        for job in group:
            progress.reused_s += job.resumed_s
            runs[job.part] = job.read()
    return {part: runs[part] for part in jobs}


def thinned(log: Sequence[JsonDict], keys: Sequence[str], most: int = 200) -> list[JsonDict]:
    """At most about `most` lines with these keys, for a result: each the mean
    over its bin (of "step" and "elapsed_s" the last)."""
    size = max(1, -(-len(log) // most))
    lines: list[JsonDict] = []
    for start in range(0, len(log), size):
        group = log[start : start + size]
        line: JsonDict = {}
        for key in keys:
            values = [row[key] for row in group if row.get(key) is not None]
            if values:
                last = key in ("step", "elapsed_s", "cpu_s")
                line[key] = values[-1] if last else sum(values) / len(values)
        lines.append(line)
    return lines


def evaluations(log: Sequence[JsonDict], key: str, x: str = "step") -> list[tuple[float, float]]:
    """(x, value) of the updates that looked at held-out data."""
    return [(row[x], row[key]) for row in log if row.get(key) is not None]
