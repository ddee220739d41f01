"""Colour images of 3,072 bytes, where softmax's square of the length weighs: linear and softmax
attention, and LSH attention with them, each for the same wall time (Katharopoulos et al. 2020,
table 2)."""

from __future__ import annotations

import pathlib

from experiments.core import JsonDict, Progress, Settings
from experiments.core.files import write_bytes
from experiments.core.packing import unpacked
from experiments.core.types import ExperimentError
from experiments.timed_images import Timed

# The first that is there, by --data or next to the checkout.
SETS = ("cifar10", "cifar10-lossless-4k")
_RECORD = 1 + 3 * 32 * 32  # a label, then three planes
_MOST_BYTES = 64 << 20
_TEST = {"quick": 8, "cpu": 200, "full": 1000}  # images for evaluation, used for nothing else
_SECONDS = {"quick": 2.0, "cpu": 360.0, "full": 600_000.0}  # of one training
# A run takes six minutes. LSH attention is shown too, not compared.
_SEEDS = {
    "quick": {"linear": 1, "softmax": 1, "reformer": 1},
    "cpu": {"linear": 2, "softmax": 2, "reformer": 1},
    "full": {"linear": 1, "softmax": 1, "reformer": 1},
}
_POOL = {"quick": 8, "cpu": 1, "full": 1}


def found(settings: Settings) -> str | None:
    """The set that is used: named by --data, or next to the checkout."""
    return next((name for name in SETS if settings.has(name)), None)


def _split(settings: Settings, name: str) -> tuple[pathlib.Path, pathlib.Path]:
    """Two files of this run's own: images to learn from, and those that judge."""
    stem = "data_batch_1_first4000.bin" if name == "cifar10-lossless-4k" else "data_batch_1.bin"
    data = unpacked(settings.data_file(name, stem), _MOST_BYTES)
    if len(data) % _RECORD or len(data) < 2 * _TEST[settings.size] * _RECORD:
        raise ExperimentError(
            f"{name}: {stem}: want whole images of {_RECORD} bytes, "
            f"{2 * _TEST[settings.size]} or more, got {len(data)} bytes",
            3,
        )
    cut = len(data) - _TEST[settings.size] * _RECORD
    folder = settings.out / "data"
    learned, judging = folder / "data_batch_1.bin", folder / "test_batch.bin"
    write_bytes(learned, data[:cut])
    write_bytes(judging, data[cut:])
    return learned, judging


def _timed(settings: Settings) -> Timed:
    """The same for all kinds but for what LSH attention needs in addition."""

    def flags(kind: str) -> list[str]:
        sizes = settings.pick(
            quick="--d-model 32 --n-layers 1 --n-heads 2 --eval-windows 4",
            cpu="--eval-windows 24",
            full="--eval-windows 200",
        )
        words = [
            "--preset",
            "cifar10" if settings.size == "full" else "images-small",
            "--pool",
            str(_POOL[settings.size]),
            "--batch",
            "4" if settings.size == "full" else "1",
            *sizes.split(),
        ]
        if settings.size != "full":
            words += ["--lr", "0.002"]
        if kind == "reformer":
            words += [
                "--bits",
                "32",
                "--hash-chunk",
                "32",
                "--rounds",
                "4" if settings.size == "full" else "1",
            ]
        return words

    size = settings.size
    return Timed("colour", _SECONDS[size], _SEEDS[size], _TEST[size], _POOL[size], flags)


def planned(settings: Settings) -> dict[str, float]:
    """Parts and their seconds; none where there are no colour images."""
    return {} if found(settings) is None else _timed(settings).planned(settings)


def run(settings: Settings, progress: Progress) -> JsonDict | None:
    """Trains and times the kinds on colour images; None where there are none."""
    name = found(settings)
    if name is None:
        return None
    return {
        "data": name,
        "side": 32 // _POOL[settings.size],
        **_timed(settings).run(settings, progress, *_split(settings, name)),
    }
