"""Colour images of 3,072 bytes, where softmax's square of the length weighs: linear
and softmax attention, and LSH attention beside them, each for the same wall time
(Katharopoulos et al. 2020, table 2)."""

from __future__ import annotations

import pathlib
import statistics

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
from experiments.core.files import write_bytes
from experiments.core.packing import unpacked
from experiments.core.types import ExperimentError
from experiments.image_runs import figures_of, pairs, test

# The first that is there, by --data or beside the checkout.
SETS = ("cifar10", "cifar10-lossless-4k")
_RECORD = 1 + 3 * 32 * 32  # a label, then three planes
_MOST_BYTES = 64 << 20
_TEST = {"quick": 8, "cpu": 200, "full": 1000}  # images that judge, seen by nothing else
_SECONDS = {"quick": 2.0, "cpu": 270.0, "full": 600_000.0}  # of one training
# Updates that are not timed, while caches and the allocator settle, and those whose
# mean time is an update's: checkpoints and evaluations come on top of it.
_SETTLING = {"quick": 1, "cpu": 12, "full": 20}
_TIMED = {"quick": 2, "cpu": 40, "full": 100}
_EVALUATIONS = 10  # of a training
# A run takes over four minutes. LSH attention is shown beside, not compared.
_SEEDS = {"quick": {"linear": 1, "softmax": 1, "reformer": 1},
          "cpu": {"linear": 2, "softmax": 2, "reformer": 1},
          "full": {"linear": 1, "softmax": 1, "reformer": 1}}
_POOL = {"quick": 8, "cpu": 1, "full": 1}


def found(settings: Settings) -> str | None:
    """The set that is used: named by --data, or beside the checkout."""
    return next((name for name in SETS if settings.has(name)), None)


def _split(settings: Settings, name: str) -> tuple[pathlib.Path, pathlib.Path]:
    """Two files of this run's own: images to learn from, and those that judge."""
    stem = "data_batch_1_first4000.bin" if name == "cifar10-lossless-4k" else "data_batch_1.bin"
    data = unpacked(settings.data_file(name, stem), _MOST_BYTES)
    if len(data) % _RECORD or len(data) < 2 * _TEST[settings.size] * _RECORD:
        raise ExperimentError(f"{name}: {stem}: want whole images of {_RECORD} bytes, "
                              f"{2 * _TEST[settings.size]} or more, got {len(data)} bytes", 3)
    cut = len(data) - _TEST[settings.size] * _RECORD
    folder = settings.out / "data"
    learned, judging = folder / "data_batch_1.bin", folder / "test_batch.bin"
    write_bytes(learned, data[:cut])
    write_bytes(judging, data[cut:])
    return learned, judging


def _flags(settings: Settings, kind: str, learned: pathlib.Path) -> list[str]:
    """Those of `tarn train`, all but seed and steps; the same for all kinds but
    what LSH attention needs beside."""
    sizes = settings.pick(
        quick="--d-model 32 --n-layers 1 --n-heads 2 --eval-windows 4",
        cpu="--eval-windows 24", full="--eval-windows 200")
    flags = ["--preset", "cifar10" if settings.size == "full" else "images-small",
             "--data", str(learned), "--pool", str(_POOL[settings.size]), "--batch",
             "4" if settings.size == "full" else "1", "--sample-every", "0",
             "--attention", ATTENTION_FLAG[kind], *sizes.split()]
    if settings.size != "full":
        flags += ["--lr", "0.002"]
    if kind == "reformer":
        flags += ["--bits", "32", "--hash-chunk", "32", "--rounds",
                  "4" if settings.size == "full" else "1"]
    return flags


def _updates_of(settings: Settings, progress: Progress, kind: str,
                learned: pathlib.Path) -> int:
    """As many as fit into the wall time beside the evaluations, as the updates behind
    the first ones and one evaluation tell."""
    settling, timed = _SETTLING[settings.size], _TIMED[settings.size]
    steps = settling + timed + 1
    done = train(settings, progress, f"colour: time of an update, {kind}", [
        *_flags(settings, kind, learned), "--seed", str(settings.seed), "--steps", str(steps),
        "--warmup", "1", "--eval-every", str(steps), "--checkpoint-every", str(steps)])
    return update_time(done.log, settling, statistics.fmean).updates_in(
        _SECONDS[settings.size], _EVALUATIONS, least=3)


def _trained(settings: Settings, progress: Progress, kind: str, seed: int, steps: int,
             learned: pathlib.Path) -> TrainingRun:
    every = str(max(1, -(-steps // _EVALUATIONS)))
    return train(settings, progress, f"colour: {kind}, seed {seed}", [
        *_flags(settings, kind, learned), "--seed", str(seed), "--steps", str(steps),
        "--warmup", str(min(100, steps // 10)), "--eval-every", every,
        "--checkpoint-every", every])


def _tested(settings: Settings, progress: Progress, kind: str, seed: int, done: TrainingRun,
            judging: pathlib.Path) -> JsonDict | None:
    """bits/dim of the images that judge. None of LSH attention, which the runtime
    does not have: its curve of held-out images is shown."""
    if kind == "reformer":
        return None
    count, pool = _TEST[settings.size], _POOL[settings.size]
    found = measure(settings, progress, f"colour: test images, {kind}, seed {seed}",
                    {"images": count, "updates": len(done.log)},
                    lambda: test(settings, done, judging, pool, count))
    return found


def _kinds(settings: Settings) -> list[str]:
    return [kind for kind in ("linear", "softmax", "reformer") if kind in settings.attentions]


def planned(settings: Settings) -> dict[str, float]:
    """Parts and their seconds; none where there are no colour images."""
    if found(settings) is None:
        return {}
    seconds, seeds = _SECONDS[settings.size], _SEEDS[settings.size]
    parts = {f"colour: time of an update, {kind}": 0.04 * seconds for kind in _kinds(settings)}
    for seed in range(max(seeds.values())):
        for kind in _kinds(settings):
            if seed < seeds[kind]:
                parts[f"colour: {kind}, seed {settings.seed + seed}"] = seconds
                if kind != "reformer":
                    parts[f"colour: test images, {kind}, seed {settings.seed + seed}"] = (
                        seconds / 25)
    return parts


def run(settings: Settings, progress: Progress) -> JsonDict | None:
    """None where there are no colour images. Every kind learns for the same wall
    time: as many updates as fit, with a schedule over them."""
    name = found(settings)
    if name is None:
        return None
    learned, judging = _split(settings, name)
    seeds, runs = _SEEDS[settings.size], []
    steps = {kind: _updates_of(settings, progress, kind, learned)
             for kind in _kinds(settings)}
    for index in range(max(seeds.values())):
        for kind in _kinds(settings):
            if index >= seeds[kind]:
                continue
            seed = settings.seed + index
            done = _trained(settings, progress, kind, seed, steps[kind], learned)
            runs.append({"kind": kind, "seed": seed, **figures_of(settings, done),
                         "test": _tested(settings, progress, kind, seed, done, judging)})
    found_pairs = pairs(runs, {(run["kind"], run["seed"]): run["test"] for run in runs})
    for one in runs:
        if one["test"]:  # each image's bits/dim served the pairs
            one["test"] = {key: value for key, value in one["test"].items()
                           if key != "bits_per_dim_of_images"}
    return {"data": name, "side": 32 // _POOL[settings.size], "seconds": _SECONDS[settings.size],
            "test_images": _TEST[settings.size], "runs": runs, "pairs": found_pairs}
