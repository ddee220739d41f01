"""Grey images at the paper's own 28 x 28, 784 positions: linear and softmax
attention, each for the same wall time (Katharopoulos et al. 2020, table 1, where
updates are equal and not the time)."""

from __future__ import annotations

import pathlib

from experiments.core import JsonDict, Progress, Settings
from experiments.timed_images import Timed

_TEST = {"quick": 8, "cpu": 500}  # images of the test file
_SECONDS = {"quick": 1.0, "cpu": 85.0}  # of one training
_SEEDS = {"quick": {"linear": 1, "softmax": 1}, "cpu": {"linear": 3, "softmax": 3}}
_POOL = {"quick": 4, "cpu": 1}
_SIDE = 28


def _timed(settings: Settings) -> Timed:
    """The settings of the images halved, which were chosen there, so that nothing is
    chosen at this length."""
    flags = ["--preset", "images-small", "--pool", str(_POOL[settings.size])]
    if settings.size == "quick":
        flags += "--d-model 32 --n-layers 1 --n-heads 2 --batch 4 --eval-windows 4".split()
    size = settings.size
    return Timed(
        "whole", _SECONDS[size], _SEEDS[size], _TEST[size], _POOL[size], lambda kind: flags
    )


def _compares(settings: Settings) -> bool:
    """At the full size the images of the equal updates are whole already, and their
    curves are read at equal time."""
    return settings.size in _SEEDS and bool({"linear", "softmax"} & {*settings.attentions})


def planned(settings: Settings) -> dict[str, float]:
    """Parts and their seconds."""
    return _timed(settings).planned(settings) if _compares(settings) else {}


def run(
    settings: Settings, progress: Progress, learned: pathlib.Path, judging: pathlib.Path
) -> JsonDict | None:
    """Trains and times the kinds on whole images; None where _compares() is false. `learned`
    and `judging` are the files of images."""
    if not _compares(settings):
        return None
    return {
        "side": _SIDE // _POOL[settings.size],
        **_timed(settings).run(settings, progress, learned, judging),
    }
