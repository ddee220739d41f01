"""Model directories with random weights for the runtime's measures, written
once into a folder outside the tree (bench/random_model.py)."""

import atexit
import functools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import native


@functools.lru_cache(maxsize=1)
def folder():
    """TARN_BENCH_MODELS, which is kept, or a folder removed when the process ends."""
    named = os.environ.get("TARN_BENCH_MODELS")
    if named:
        return pathlib.Path(named)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tarn-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def model(name, **options):
    """The directory of a model made with these options of bench/random_model.py."""
    path = folder() / name
    if not (path / "model.safetensors").is_file():
        words = [f"--{key.replace('_', '-')}={value}" for key, value in options.items()]
        program = native.ROOT / "bench" / "random_model.py"
        subprocess.run(
            [sys.executable, str(program), str(path), *words],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    return path


def m150(quick=False):
    """150 million parameters, 12 layers, 1024 wide: weights out of cache."""
    if quick:
        return model("quick", layers=1, width=32, heads=2)
    return model("m150", preset="150m")


def paper(name, quick=False):
    """The shapes of Katharopoulos et al. 2020, 4.2: "mnist" or "cifar"; post-norm
    and ReLU as there, byte embedding concatenated with sines of the position."""
    layers = 1 if quick else {"mnist": 8, "cifar": 16}[name]
    return model(
        f"{name}-{layers}",
        layers=layers,
        width=256,
        heads=8,
        ff=1024,
        norm="post",
        activation="relu",
        positions="sinusoidal",
        combine="concat",
    )


def softmax(quick=False):
    """A softmax model whose weights and cache are out of cache at 4,096."""
    if quick:
        return model("quick-softmax", layers=1, width=32, heads=2, attention="full")
    return model(
        "softmax",
        layers=6,
        width=1024,
        heads=16,
        attention="full",
        positions="rotary",
    )


def long(quick=False):
    """A small linear model without a longest position."""
    layers = 1 if quick else 4
    return model(f"long-{layers}", layers=layers, width=128, heads=4, positions="sinusoidal")
