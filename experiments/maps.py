"""Beyond the paper: which map of queries and keys linear attention takes, on
three tasks, against softmax; and how near random features come to softmax's
kernel."""

from __future__ import annotations

import pathlib

from experiments.core import (
    Experiment,
    JsonDict,
    Progress,
    Settings,
    TrainingRun,
    evaluations,
    measure,
    train_together,
)
from experiments.maps_kernel import kernel_errors
from experiments.maps_page import criteria, page

MAPS = ("elu1", "relu", "relu2", "identity", "poly2", "favor", "rff")
# Directions are drawn once a model, by its seed, for 2 features per column of a head.
_RANDOM = ("favor", "rff")
_N_DIMS = 32
TASKS = ("copy", "recall", "text")
_STEPS = {
    "quick": {"copy": 6, "recall": 6, "text": 6},
    "cpu": {"copy": 1500, "recall": 1500, "text": 2400},
    "full": {"copy": 10_000, "recall": 10_000, "text": 10_000},
}
_SEEDS = {"quick": 1, "cpu": 3, "full": 5}
# Seconds an update as planned of one of two runs at once, halved.
_SECONDS = {"quick": 0.01, "cpu": 0.0029, "full": 0.05}
_SLOWER = {"poly2": 4.0, "favor": 1.5, "rff": 1.5}  # times elu1's update
_QUICK_KINDS = ("elu1", "relu", "favor", "softmax")

_KERNEL = {
    "quick": {"features": [16, 64], "pairs": 16, "draws": 2},
    "cpu": {"features": [16, 32, 64, 128, 256, 512, 1024], "pairs": 256, "draws": 48},
    "full": {"features": [16, 32, 64, 128, 256, 512, 1024], "pairs": 1024, "draws": 256},
}
# Standard deviations of the entries of queries and keys. The smaller gives short vectors, for
# which few features suffice; 1 is what a projection of normalised rows gives at first.
_DEVIATIONS = (0.25, 1.0)
_D_KEY = 32


def _kinds(settings: Settings) -> list[str]:
    """--attention linear means all maps."""
    kinds: list[str] = list(MAPS) if "linear" in settings.attentions else []
    if "softmax" in settings.attentions:
        kinds.append("softmax")
    return [one for one in kinds if settings.size != "quick" or one in _QUICK_KINDS]


def _attention(kind: str, seed: int) -> list[str]:
    if kind == "softmax":
        return ["--attention", "full"]
    flags = ["--attention", "linear", "--feature-map", kind]
    if kind in _RANDOM:
        flags += ["--n-dims", str(_N_DIMS), "--redraw", "0", "--feature-seed", str(seed)]
    return flags


def _task(settings: Settings, task: str, text: pathlib.Path) -> list[str]:
    """The same model for all: two layers of 4 heads, 16 columns each."""
    steps = _STEPS[settings.size][task]
    flags = [
        "--d-model",
        "64",
        "--n-layers",
        "2",
        "--n-heads",
        "4",
        "--d-ff",
        "128",
        "--dropout",
        "0",
        "--sample-every",
        "0",
        "--steps",
        str(steps),
        "--eval-every",
        str(max(1, steps // (2 if settings.size == "quick" else 8))),
        "--checkpoint-every",
        str(steps),
    ]
    batch = "4" if settings.size == "quick" else "32"
    if task == "copy":
        return [
            "--preset",
            "copy",
            *flags,
            "--seq-len",
            "32",
            "--batch",
            batch,
            "--decay-at",
            str(max(1, round(0.8 * steps))),
            "--eval-windows",
            "128",
        ]
    if task == "recall":
        return [
            "--preset",
            "mqar",
            *flags,
            "--pairs",
            "8",
            "--seq-len",
            "32",
            "--symbols",
            "64",
            "--batch",
            batch,
            "--eval-windows",
            "128",
        ]
    return [
        "--data",
        str(text),
        *flags,
        "--tokenizer",
        "char",
        "--seq-len",
        "64",
        "--batch",
        "8",
        "--lr",
        "0.003",
        "--warmup",
        str(max(1, min(100, steps // 10))),
        "--eval-windows",
        "16" if settings.size == "quick" else "256",
    ]


def _figures_of(task: str, kind: str, seed: int, done: TrainingRun) -> JsonDict:
    """The stored figures of one training; `loss` is bits per byte for text and nats for the other
    tasks."""
    key = "val_bits_per_byte" if task == "text" else "val_loss"
    held_out = [{"step": step, "loss": loss} for step, loss in evaluations(done.log, key)]
    if task != "text":
        for row, (_, accuracy) in zip(held_out, evaluations(done.log, "val_accuracy"), strict=True):
            row["accuracy"] = accuracy
    return {
        "task": task,
        "kind": kind,
        "seed": seed,
        "updates": len(done.log),
        "seconds": done.seconds,
        "cpu_seconds": done.cpu_seconds,
        "held_out": held_out,
    }


def _part(task: str, kind: str, seed: int) -> str:
    return f"{task}: {kind}, seed {seed}"


def _kernel(settings: Settings, progress: Progress, deviation: float) -> JsonDict:
    asked = {
        "d_key": _D_KEY,
        "deviation": deviation,
        **_KERNEL[settings.size],
        "seed": settings.seed,
    }
    figures = measure(
        settings,
        progress,
        f"kernel, entries of {deviation:g}",
        asked,
        lambda: {"rows": kernel_errors(**asked, told=progress.at)},
    )
    return {
        "d_key": _D_KEY,
        "deviation": deviation,
        "draws": asked["draws"],
        "pairs": asked["pairs"],
        "rows": figures["rows"],
    }


def run(settings: Settings, progress: Progress) -> JsonDict:
    """Seed by seed, so that a stopped run has all kinds of the first."""
    text = settings.data_file("text-shakespeare", "input.txt")
    size, kinds = settings.size, _kinds(settings)
    seeds = [settings.seed + i for i in range(_SEEDS[size])]
    parts = [(task, kind, seed) for seed in seeds for task in TASKS for kind in kinds]
    deviations = _DEVIATIONS if "linear" in settings.attentions else ()
    progress.plan(
        {
            **{
                f"kernel, entries of {one:g}": 0.5 if size == "quick" else 8.0 for one in deviations
            },
            **{
                _part(task, kind, seed): 0.8
                + _STEPS[size][task]
                * _SECONDS[size]
                * (0.5 if task == "text" else 1.0)
                * _SLOWER.get(kind, 1.0)
                for task, kind, seed in parts
            },
        }
    )
    kernel = [_kernel(settings, progress, one) for one in deviations]
    done = train_together(
        settings,
        progress,
        {
            _part(task, kind, seed): [
                *_task(settings, task, text),
                *_attention(kind, seed),
                "--seed",
                str(seed),
            ]
            for task, kind, seed in parts
        },
    )
    runs = [_figures_of(*part, done[_part(*part)]) for part in parts]
    return {"seeds": seeds, "kernel": kernel, "n_dims": _N_DIMS, "runs": runs}


EXPERIMENT = Experiment(
    name="maps",
    title="The choice of the feature map",
    paper="beyond the paper",
    claim="The choice of the feature map matters: the paper takes elu(x) + 1 instead of ReLU, "
    "whose gradient is zero for negative inputs. The error of random features for "
    "softmax's kernel falls as one over the square root of their number.",
    sources=(
        "experiments/maps.py",
        "experiments/maps_kernel.py",
        "python/tarn/ops",
        "src/config",
        "src/core",
        "src/data",
        "src/kernels",
        "src/text",
        "src/torch_nn",
        "src/torch_ops",
        "src/train",
    ),
    data=("text-shakespeare",),
    attention=("linear", "softmax"),
    devices=("cpu",),
    minutes={"quick": 0.3, "cpu": 8.6, "full": 1400},
    run=run,
    criteria=criteria,
    page=page,
)
