"""Associative recall, learned from few pairs to many: what the experiments on it
have in common."""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from experiments.core import JsonDict, Progress, Settings, TrainingRun, evaluations, train_together
from experiments.core.data import sha256

KEPT = ("config.json", "model.safetensors", "tokenizer.json")
# Brings each value and its key together, alike for all kinds: it sees two tokens.
PAIRING = "local:local_context=2"

M = TypeVar("M", bound=Hashable)


def symbols(most_pairs: int) -> int:
    """The number of symbols, half of them keys and half values: more than the longest row
    has tokens."""
    return 4 * most_pairs + 4


def rows(pairs: int, most_pairs: int, batch: int) -> list[str]:
    """Flags for rows that hold nothing but the pairs and, once each, the keys with a place
    for the value. The model has no positions, so that what it learns of short rows serves
    long ones."""
    return [
        "--preset",
        "mqar",
        "--positions",
        "none",
        "--symbols",
        str(symbols(most_pairs)),
        "--pairs",
        str(pairs),
        "--seq-len",
        str(4 * pairs),
        "--batch",
        str(batch),
    ]


def started_from(settings: Settings, before: TrainingRun) -> pathlib.Path:
    """A copy of a model in a folder named by its weights: what a run depends on is
    its flags, and of a folder the name."""
    to = settings.out / "starts" / sha256(before.model / "model.safetensors")[:16]
    to.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        if (before.model / name).is_file():
            shutil.copyfile(before.model / name, to / name)
    return to


def grown(
    settings: Settings,
    progress: Progress,
    pairs: Sequence[int],
    models: Sequence[M],
    flags: Callable[[M, int], Sequence[str]],
    part: Callable[[M, int], str],
) -> dict[tuple[M, int], TrainingRun]:
    """All models with the fewest pairs, then each number from the weights of the one
    before: with many pairs from the start none begins to learn."""
    done: dict[tuple[M, int], TrainingRun] = {}
    before: dict[M, TrainingRun] = {}
    for n in pairs:
        jobs = {}
        for model in models:
            start = ["--init", str(started_from(settings, before[model]))] if before else []
            jobs[part(model, n)] = [*flags(model, n), *start]
        runs = train_together(settings, progress, jobs)
        before = {model: runs[part(model, n)] for model in models}
        done |= {(model, n): run for model, run in before.items()}
    return done


def held_out(done: TrainingRun) -> list[JsonDict]:
    """Accuracy and loss of held-out rows over updates."""
    return [
        {"step": step, "accuracy": accuracy, "loss": loss}
        for (step, accuracy), (_, loss) in zip(
            evaluations(done.log, "val_accuracy"), evaluations(done.log, "val_loss"), strict=True
        )
    ]
