"""Images of one length, of which each kind of attention learns for the same wall time
(Katharopoulos et al. 2020, table 2)."""

from __future__ import annotations

import pathlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from experiments.core import (
    ATTENTION_FLAG,
    JsonDict,
    Progress,
    Settings,
    TrainingRun,
    measure,
    train,
    update_time,
)
from experiments.image_runs import figures_of, pairs, test

# Updates that are not timed, while caches and the allocator settle, and those whose
# mean time is an update's: checkpoints and evaluations come on top of it.
_SETTLING = {"quick": 1, "cpu": 12, "full": 20}
_TIMED = {"quick": 2, "cpu": 40, "full": 100}
_EVALUATIONS = 10  # of a training
_KINDS = ("linear", "softmax", "reformer")


@dataclass(frozen=True)
class Timed:
    """What is trained, for how long, and what evaluates it. `seeds` names the kinds
    and how many seeds each has."""

    label: str  # of its parts
    seconds: float  # of one training
    seeds: Mapping[str, int]
    test_images: int  # images that judge, seen by nothing else
    pool: int
    flags: Callable[[str], Sequence[str]]  # of `tarn train`, by kind; all but data, seed and steps

    def kinds(self, settings: Settings) -> list[str]:
        return [kind for kind in _KINDS if kind in settings.attentions and kind in self.seeds]

    def planned(self, settings: Settings) -> dict[str, float]:
        """Parts and their seconds."""
        parts = {self._timing(kind): 0.04 * self.seconds for kind in self.kinds(settings)}
        for index in range(max(self.seeds.values())):
            for kind in self.kinds(settings):
                if index < self.seeds[kind]:
                    parts[self._training(kind, settings.seed + index)] = self.seconds
                    if kind != "reformer":
                        parts[self._testing(kind, settings.seed + index)] = self.seconds / 25
        return parts

    def run(
        self, settings: Settings, progress: Progress, learned: pathlib.Path, judging: pathlib.Path
    ) -> JsonDict:
        """Every kind learns for the same wall time: as many updates as fit, with a
        schedule over them. Seed by seed, so that a stopped run has pairs."""
        steps = {
            kind: self._updates_of(settings, progress, kind, learned)
            for kind in self.kinds(settings)
        }
        runs = []
        for index in range(max(self.seeds.values())):
            for kind in self.kinds(settings):
                if index >= self.seeds[kind]:
                    continue
                seed = settings.seed + index
                done = self._trained(settings, progress, kind, seed, steps[kind], learned)
                runs.append(
                    {
                        "kind": kind,
                        "seed": seed,
                        **figures_of(settings, done),
                        "test": self._tested(settings, progress, kind, seed, done, judging),
                    }
                )
        found_pairs = pairs(runs, {(run["kind"], run["seed"]): run["test"] for run in runs})
        for one in runs:
            if one["test"]:  # each image's bits/dim served the pairs
                one["test"] = {
                    key: value
                    for key, value in one["test"].items()
                    if key != "bits_per_dim_of_images"
                }
        return {
            "seconds": self.seconds,
            "test_images": self.test_images,
            "runs": runs,
            "pairs": found_pairs,
        }

    def _timing(self, kind: str) -> str:
        return f"{self.label}: time of an update, {kind}"

    def _training(self, kind: str, seed: int) -> str:
        return f"{self.label}: {kind}, seed {seed}"

    def _testing(self, kind: str, seed: int) -> str:
        return f"{self.label}: test images, {kind}, seed {seed}"

    def _words(self, kind: str, learned: pathlib.Path, seed: int, steps: int) -> list[str]:
        return [
            "--data",
            str(learned),
            "--attention",
            ATTENTION_FLAG[kind],
            *self.flags(kind),
            "--sample-every",
            "0",
            "--seed",
            str(seed),
            "--steps",
            str(steps),
        ]

    def _updates_of(
        self, settings: Settings, progress: Progress, kind: str, learned: pathlib.Path
    ) -> int:
        """The number of updates that fit into the wall time together with the evaluations, by the
        times of the updates after the first ones and of one evaluation."""
        settling, timed = _SETTLING[settings.size], _TIMED[settings.size]
        steps = settling + timed + 1
        done = train(
            settings,
            progress,
            self._timing(kind),
            [
                *self._words(kind, learned, settings.seed, steps),
                "--warmup",
                "1",
                "--eval-every",
                str(steps),
                "--checkpoint-every",
                str(steps),
            ],
        )
        return update_time(done.log, settling, statistics.fmean).updates_in(
            self.seconds, _EVALUATIONS, least=3
        )

    def _trained(
        self,
        settings: Settings,
        progress: Progress,
        kind: str,
        seed: int,
        steps: int,
        learned: pathlib.Path,
    ) -> TrainingRun:
        every = str(max(1, -(-steps // _EVALUATIONS)))
        return train(
            settings,
            progress,
            self._training(kind, seed),
            [
                *self._words(kind, learned, seed, steps),
                "--warmup",
                str(min(100, steps // 10)),
                "--eval-every",
                every,
                "--checkpoint-every",
                every,
            ],
        )

    def _tested(
        self,
        settings: Settings,
        progress: Progress,
        kind: str,
        seed: int,
        done: TrainingRun,
        judging: pathlib.Path,
    ) -> JsonDict | None:
        """bits/dim of the images that judge. None of LSH attention, which the runtime
        does not have: its curve of held-out images is shown."""
        if kind == "reformer":
            return None
        return measure(
            settings,
            progress,
            self._testing(kind, seed),
            {"images": self.test_images, "updates": len(done.log)},
            lambda: test(settings, done, judging, self.pool, self.test_images),
        )
