"""Tables 4 and 5: images a second and seconds an image at the paper's exact
shapes. Weights are random, which changes no time; `tarn bench` is the clock."""

from __future__ import annotations

import functools
import json
import math
import pathlib
import statistics
import subprocess
import sys
from dataclasses import dataclass

from experiments.core import (
    Experiment,
    ExperimentError,
    JsonDict,
    Progress,
    Settings,
    measure,
    run_tarn,
)
from experiments.core.data import ROOT
from experiments.generation_page import criteria, page


@dataclass(frozen=True)
class Shape:
    """The models of one of the paper's columns: D 256, 8 heads, F 1024."""

    name: str
    preset: str  # of bench/random_model.py
    layers: int
    steps: int  # pixels generated one after the other

    def cache_bytes(self, tokens: int) -> int:
        """Bytes of a key-value cache that holds so many tokens. Its room is a power of two,
        at least 64, because a full cache doubles."""
        room = 1 << max(6, math.ceil(math.log2(max(1, tokens))))
        return room * self.layers * 2 * 256 * 4


_MNIST = Shape("8 layers, 784 steps", "mnist", 8, 784)
_CIFAR = Shape("16 layers, 3,072 steps", "cifar", 16, 3072)
_SHAPES = {"quick": (_MNIST,), "cpu": (_MNIST, _CIFAR), "full": (_MNIST, _CIFAR)}
_BATCHES = {"quick": (1, 4), "cpu": (1, 4, 16, 64, 256), "full": (1, 4, 16, 64, 256, 1024)}
_ROUNDS = {"quick": 1, "cpu": 3, "full": 5}
# Seconds as planned on two AVX-512 cores, by layers.
_PLAN = {
    "linear": {8: 4.0, 16: 8.0},
    "cached": {8: 12.0, 16: 25.0},
    "naive": {8: 2.0, 16: 12.0},
    "reading": {8: 6.0, 16: 9.0},
}
# Shares of the sequence at which a cache is timed: a step's time is affine in
# what came before, so that midpoints of equal parts integrate it exactly.
_DEPTHS = (1 / 6, 3 / 6, 5 / 6)
# Gauss and Legendre's nodes and weights on [0, 1]: exact to the fifth power of
# a prefix's length; the time of one is a polynomial of degree two.
_NODES = ((0.1127016654, 5 / 18), (0.5, 8 / 18), (0.8872983346, 5 / 18))


@functools.cache
def _write_model(folder: pathlib.Path, preset: str, attention: str, seed: int) -> None:
    """Writes a model of random weights, once a process, even where the folder holds one:
    that may be of another version."""
    positions = next(one.steps for one in (_MNIST, _CIFAR) if one.preset == preset)
    command = [
        sys.executable,
        "-B",
        str(ROOT / "bench" / "random_model.py"),
        str(folder),
        "--preset",
        preset,
        "--task",
        "image",
        "--attention",
        attention,
        "--max-positions",
        str(positions),
        "--seed",
        str(seed),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise ExperimentError(f"random_model.py: {done.stderr.strip()}")


def _model(settings: Settings, shape: Shape, attention: str) -> pathlib.Path:
    folder = settings.out / "models" / f"{shape.preset}-{attention}"
    _write_model(folder, shape.preset, attention, settings.seed)
    return folder


def _bench(
    settings: Settings, model: pathlib.Path, weights: str, threads: int, flags: list[object]
) -> list[JsonDict]:
    """The rows of one `tarn bench`."""
    text = run_tarn(
        settings, ["bench", model, "--weights", weights, "-t", threads, *flags, "-o", "json"]
    )
    return json.loads(text)


def _memory() -> int:
    """Bytes that the caches may take: half of what is free."""
    for line in pathlib.Path("/proc/meminfo").read_text("utf-8").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024 // 2
    raise ExperimentError("/proc/meminfo: want a line MemAvailable")


def _row(batch: int, seconds: float, **more: object) -> JsonDict:
    """A batch of images after `seconds`."""
    return {"batch": batch, "seconds": seconds, "images_s": batch / seconds, **more}


def _batches(rows: list[JsonDict]) -> dict[int, float]:
    """Seconds a step by batch."""
    return {row["n_sessions"]: row["median_step_ns"] * 1e-9 for row in rows}


def _linear(settings: Settings, shape: Shape, weights: str, threads: int) -> JsonDict:
    """Times some of the steps: with linear attention every step costs the same."""
    batches = [b for b in _BATCHES[settings.size] if b > 1]
    rows = _bench(
        settings,
        _model(settings, shape, "linear"),
        weights,
        threads,
        [
            "-p",
            0,
            "-n",
            32,
            "-d",
            32,
            "--batch",
            ",".join(map(str, batches)),
            "--batch-steps",
            8,
            "-r",
            2 if settings.size == "quick" else 3,
        ],
    )
    return {
        "target": rows[0]["simd_target"],
        "state_bytes": rows[0]["session_bytes"],
        "batches": [_row(b, shape.steps * s) for b, s in _batches(rows).items()],
    }


def _cached(settings: Settings, shape: Shape, weights: str, threads: int) -> JsonDict:
    """Steps in thirds of the sequence, from states that were prefilled."""
    steps = 6
    # Caches of more than 64 images take gigabytes: timed once. The page compares
    # the others at no more images either.
    once = weights == "f32" and threads == settings.threads
    free, wanted = _memory(), [b for b in _BATCHES[settings.size] if b <= 64 or once]
    fitting = [b for b in wanted if b * shape.cache_bytes(shape.steps) <= free]
    depths = [round(shape.steps * share) - steps // 2 for share in _DEPTHS]
    rows = _bench(
        settings,
        _model(settings, shape, "full"),
        weights,
        threads,
        [
            "-p",
            0,
            "-n",
            steps,
            "-d",
            ",".join(map(str, depths)),
            "--batch",
            ",".join(str(b) for b in fitting if b > 1) or "0",
            "--batch-steps",
            steps,
            "-r",
            2,
        ],
    )
    by_depth = [_batches([row for row in rows if row["n_depth"] == d]) for d in depths]
    per_token = shape.layers * 2 * 256 * 4
    return {
        "target": rows[0]["simd_target"],
        "state_bytes": shape.steps * per_token,
        "depths": depths,
        "does_not_fit": [b for b in wanted if b not in fitting],
        "batches": [
            _row(
                b,
                shape.steps * statistics.fmean(one[b] for one in by_depth),
                step_ms=[1e3 * one[b] for one in by_depth],
            )
            for b in fitting
        ],
    }


def _naive(settings: Settings, shape: Shape, weights: str, threads: int) -> JsonDict:
    """The prefix read again for every step: prefills of some lengths, integrated."""
    lengths = [round(shape.steps * node) for node, _ in _NODES]
    repeats = 1 if shape.layers > 8 or settings.size == "quick" else 3
    rows = _bench(
        settings,
        _model(settings, shape, "full"),
        weights,
        threads,
        [
            "-p",
            ",".join(map(str, lengths)),
            "-n",
            0,
            "--batch",
            0,
            "-r",
            repeats,
            "--warm-ups",
            0 if repeats == 1 else 1,
        ],
    )
    taken = [statistics.median(row["samples_ns"]) * 1e-9 for row in rows]
    mean = math.fsum(weight * one for (_, weight), one in zip(_NODES, taken, strict=True))
    return {
        "target": rows[0]["simd_target"],
        "state_bytes": 0,
        "lengths": lengths,
        "prefill_ms": [1e3 * one for one in taken],
        "batches": [_row(1, shape.steps * mean)],
    }


def _reading(settings: Settings, shape: Shape, threads: int) -> JsonDict:
    """One step against one pass over a buffer of the weights' size, both kinds
    of weights in turn, round by round: the machine's speed moves."""
    model = _model(settings, shape, "linear")
    rounds = []
    for _ in range(_ROUNDS[settings.size]):
        one: JsonDict = {}
        for weights in ("f32", "bf16"):
            row = _bench(
                settings,
                model,
                weights,
                threads,
                ["-p", 0, "-n", 128, "-d", 32, "--batch", 0, "-r", 3],
            )[0]
            size = row["bytes_per_step"] - 2 * row["session_bytes"]
            step = row["median_step_ns"] * 1e-9
            one[weights] = {
                "weight_bytes": size,
                "step_us": 1e6 * step,
                "read_gbs": row["read_bytes_per_s"] * 1e-9,
                "share": size / row["read_bytes_per_s"] / step,
            }
        one["speedup"] = one["f32"]["step_us"] / one["bf16"]["step_us"]
        rounds.append(one)
    middle = {
        w: {key: statistics.median(one[w][key] for one in rounds) for key in rounds[0][w]}
        for w in ("f32", "bf16")
    }
    return middle | {
        "speedup": statistics.median(one["speedup"] for one in rounds),
        "rounds": len(rounds),
    }


_GENERATORS = {
    "linear": ("linear", _linear),
    "cached": ("softmax", _cached),
    "naive": ("softmax", _naive),
}


def run(settings: Settings, progress: Progress) -> JsonDict:
    """All shapes, thread counts and weights; a part is one `tarn bench` or a
    few, of one generator."""
    threads = sorted({1, settings.threads}) if settings.size != "quick" else [settings.threads]
    weights = ("f32", "bf16")
    generators = [name for name, (kind, _) in _GENERATORS.items() if kind in settings.attentions]
    parts = {
        f"{shape.name}: {name}, {w}, {t} thread{'s' * (t > 1)}": (shape, name, w, t)
        for shape in _SHAPES[settings.size]
        for name in generators
        for w in weights
        for t in threads
    }
    reading = {
        f"{shape.name}: reading, {t} thread{'s' * (t > 1)}": (shape, t)
        for shape in _SHAPES[settings.size]
        for t in threads
        if "linear" in settings.attentions
    }
    pace = settings.pick(quick=0.4, cpu=1.0, full=1.5)
    progress.plan(
        {
            part: pace * _PLAN[name][shape.layers] * 1.5 / t
            for part, (shape, name, _, t) in parts.items()
        }
        | {part: pace * _PLAN["reading"][shape.layers] for part, (shape, _) in reading.items()}
    )
    timed, read = [], []
    for part, (shape, name, w, t) in parts.items():
        function = _GENERATORS[name][1]
        figures = measure(
            settings,
            progress,
            part,
            {"shape": shape.preset, "batches": _BATCHES[settings.size]},
            lambda f=function, s=shape, w=w, t=t: f(settings, s, w, t),
        )
        timed.append({"shape": shape.name, "generator": name, "weights": w, "threads": t} | figures)
    for part, (shape, t) in reading.items():
        figures = measure(
            settings,
            progress,
            part,
            {"shape": shape.preset, "rounds": _ROUNDS[settings.size]},
            lambda s=shape, t=t: _reading(settings, s, t),
        )
        read.append({"shape": shape.name, "threads": t} | figures)
    return {"weights": "random", "timed": timed, "reading": read}


EXPERIMENT = Experiment(
    name="generation",
    title="Speed of image generation",
    paper="Tables 4 and 5",
    claim="Linear transformers generate images faster than softmax ones: up to 4,000 times on very "
    "long sequences, against a softmax that recomputes its prefix for every pixel.",
    sources=(
        "experiments/generation.py",
        "experiments/core/program.py",
        "bench/random_model.py",
        "src/cli/bench/bench.cc",
        "src/cli/bench/report.cc",
        "src/cli/bench/run.cc",
        "src/config",
        "src/core",
        "src/kernels",
        "src/runtime",
        "src/text",
    ),
    devices=("cpu",),  # it times the runtime
    minutes={"quick": 0.3, "cpu": 5.3, "full": 20},
    run=run,
    criteria=criteria,
    page=page,
)
