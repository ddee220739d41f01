"""Beyond the paper: a stream of a million tokens through a constant state, and
ListOps, a task on which softmax might be thought ahead."""

from __future__ import annotations

import pathlib
import subprocess
import sys

from experiments.core import (
    ATTENTION_FLAG,
    Experiment,
    JsonDict,
    Progress,
    Settings,
    TrainingRun,
    evaluations,
    measure,
    thinned,
    train,
)
from experiments.core.data import ROOT, sha256
from experiments.core.packing import unpacked
from experiments.core.program import tarn_json
from experiments.core.types import ExperimentError
from experiments.long_page import criteria, page
from experiments.state_error import state_error

_STREAM = {"quick": 20_000, "cpu": 1_000_000, "full": 1_000_000}
_MOST_BYTES = 1 << 30  # of a genome, unpacked: all of it is held

# --- One stream of DNA --------------------------------------------------------


def genome(path: pathlib.Path, most: int = _MOST_BYTES) -> str:
    """The letters of a FASTA file with one sequence, plain or packed; of at most
    so many bytes unpacked. ExperimentError (3)."""
    try:
        text = unpacked(path, most).decode("ascii")
    except UnicodeDecodeError as error:
        raise ExperimentError(
            f"{path.name}: want FASTA, plain or packed; got {error}", 3
        ) from error
    head, *rest = text.splitlines() or [""]  # of any of the three line ends
    if not head.startswith(">") or any(line.startswith(">") for line in rest):
        raise ExperimentError(f"{path.name}: want FASTA with one sequence", 3)
    return "".join(line.strip() for line in rest)


def _write_fasta(path: pathlib.Path, name: str, letters: str) -> pathlib.Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [letters[i : i + 70] for i in range(0, len(letters), 70)]
    path.write_text("\n".join([f">{name}", *lines, ""]))
    return path


def _split_genome(settings: Settings) -> tuple[pathlib.Path, pathlib.Path, int, int]:
    """What is learned, and the end of the genome, which is the stream; letters
    of the first and of the whole genome."""
    letters = genome(settings.data_file("dna", "NC_008253.fna"))
    tokens = _STREAM[settings.size]
    learned = letters[:200_000] if settings.size == "quick" else letters[: -tokens - 1]
    if len(letters) < 2 * tokens:
        raise ExperimentError(f"dna: want {2 * tokens} letters or more, got {len(letters)}", 3)
    folder = settings.out / "data"
    return (
        _write_fasta(folder / "learned.fa", "learned", learned),
        _write_fasta(folder / "stream.fa", "stream", letters[-tokens - 1 :]),
        len(learned),
        len(letters),
    )


def _stream_flags(settings: Settings, data: pathlib.Path) -> list[str]:
    sizes = settings.pick(
        quick="--d-model 32 --n-layers 1 --n-heads 2 --batch 4 --seq-len 64 --steps 20 "
        "--eval-every 20 --eval-windows 4",
        cpu="--d-model 128 --n-layers 2 --n-heads 4 --batch 8 --seq-len 256 --long-every 4 "
        "--steps 2200 --eval-every 550 --eval-windows 64",
        full="--d-model 256 --n-layers 6 --n-heads 8 --batch 16 --seq-len 1024 --long-every 4 "
        "--steps 30000 --eval-every 1000 --eval-windows 256",
    )
    return [
        "--data",
        str(data),
        "--records",
        "fasta",
        "--positions",
        "rotary",
        "--lr",
        "0.002",
        "--warmup",
        "100",
        "--schedule",
        "cosine",
        "--sample-every",
        "0",
        "--seed",
        str(settings.seed),
        *sizes.split(),
    ]


def _stream(settings: Settings, progress: Progress) -> JsonDict:
    learned, stream, letters, whole = _split_genome(settings)
    flags = _stream_flags(settings, learned)
    done = train(settings, progress, "stream: train", flags)

    def read() -> JsonDict:
        """Three processes: the placement of memory differs from one to the next, and with it the
        time of a step. The one with the median ratio is kept."""
        readings = []
        for i in range(3):
            readings.append(
                tarn_json(
                    settings,
                    [
                        "eval",
                        done.model,
                        stream,
                        "--records",
                        "fasta",
                        "--by-position",
                        "--max-tokens",
                        _STREAM[settings.size],
                        "--steps",
                        settings.pick(quick=500, cpu=40_000, full=40_000),
                        "--threads",
                        1,
                    ],
                )
            )
            progress.at((i + 1) / 3)
        readings.sort(key=lambda one: one["steps"]["ratio"])
        return {**readings[1], "ratios": [one["steps"]["ratio"] for one in readings]}

    figures = measure(
        settings,
        progress,
        "stream: read",
        {"model": sha256(done.model / "model.safetensors")},
        read,
    )
    every = int(flags[flags.index("--long-every") + 1]) if "--long-every" in flags else 0
    return {
        "learned_letters": letters,
        "genome_letters": whole,
        "long_every": every,
        "seq_len": int(flags[flags.index("--seq-len") + 1]),
        "held_out": evaluations(done.log, "val_bits_per_byte")[-1][1],
        "training_seconds": done.seconds,
        "figures": figures,
    }


def _state_error(settings: Settings, progress: Progress) -> list[JsonDict]:
    """The errors of sums as long as the stream, of random numbers: no model is needed."""
    shape = {
        "seq_len": settings.pick(quick=10_000, cpu=1_000_000, full=1_000_000),
        "heads": 4,
        "width": 32,
        "seed": settings.seed,
    }
    return measure(
        settings,
        progress,
        "stream: float64",
        shape,
        lambda: {"rows": state_error(**shape, told=progress.at)},
    )["rows"]


def _curve(done: TrainingRun) -> JsonDict:
    return {
        "held_out": [[step, accuracy] for step, accuracy in evaluations(done.log, "val_accuracy")],
        "curve": thinned(done.log, ["step", "elapsed_s", "loss", "accuracy"], 60),
        "seconds": done.seconds,
        "cpu_seconds": done.cpu_seconds,
    }


# --- ListOps ------------------------------------------------------------------


def _make_listops(settings: Settings, progress: Progress) -> pathlib.Path:
    """The generator's files, made again if they are missing or made with other settings."""
    sizes = settings.pick(
        quick="--min-len 10 --max-len 40 --train 300 --valid 10 --test 60",
        cpu="--min-len 20 --max-len 100 --train 48000 --valid 100 --test 2000",
        full="--train 96000 --valid 2000 --test 2000",
    )
    words = [*sizes.split(), "--seed", str(1 + settings.seed)]
    folder = settings.out / "data" / "listops"
    made = folder / "command.txt"
    with progress.part("listops: data"):
        if not made.is_file() or made.read_text() != " ".join(words):
            script = ROOT / "scripts" / "make_listops.py"
            done = subprocess.run(
                [sys.executable, "-B", str(script), str(folder), *words],
                capture_output=True,
                text=True,
            )
            if done.returncode != 0:
                raise ExperimentError(f"make_listops.py: {done.stderr.strip()[-200:]}")
            made.write_text(" ".join(words))
    return folder


def _listops(settings: Settings, progress: Progress, kind: str, folder: pathlib.Path) -> JsonDict:
    sizes = settings.pick(
        quick="--d-model 32 --n-heads 2 --batch 8 --seq-len 40 --steps 20 --eval-every 10",
        cpu="--seq-len 100 --steps 1500 --eval-every 250",
        full="--seq-len 2000 --steps 5000 --eval-every 500",
    )
    done = train(
        settings,
        progress,
        f"listops: {kind}",
        [
            "--preset",
            "listops",
            "--attention",
            ATTENTION_FLAG[kind],
            "--sample-every",
            "0",
            "--seed",
            str(settings.seed),
            "--data",
            str(folder / "train.tsv"),
            "--held-out",
            str(folder / "test.tsv"),
            *sizes.split(),
        ],
    )
    return {"kind": kind, **_curve(done)}


def _majority(path: pathlib.Path) -> JsonDict:
    """How many examples there are, and the share of the commonest label."""
    labels = [line.split("\t")[0] for line in path.read_text().splitlines()]
    return {
        "examples": len(labels),
        "majority": max(labels.count(label) for label in set(labels)) / len(labels),
    }


# --- Both ----------------------------------------------------------------


def run(settings: Settings, progress: Progress) -> JsonDict:
    """The stream (linear attention alone), then ListOps, kind by kind."""
    slow = {"quick": 1.0, "cpu": 31.0, "full": 4000.0}[settings.size]
    progress.plan(
        {
            "stream: train": 5 * slow,
            "stream: read": 2 * slow,
            "stream: float64": slow / 2,
            "listops: data": slow / 2,
            **{f"listops: {kind}": 3 * slow for kind in settings.attentions},
        }
    )
    measured: JsonDict = {"seeds": [settings.seed]}
    if "linear" in settings.attentions:
        measured["stream"] = _stream(settings, progress)
        measured["state_error"] = _state_error(settings, progress)
    folder = _make_listops(settings, progress)
    measured["listops"] = [
        _listops(settings, progress, kind, folder) for kind in settings.attentions
    ]
    return measured | {"listops_data": _majority(folder / "test.tsv")}


EXPERIMENT = Experiment(
    name="long",
    title="One long stream, ListOps",
    paper="beyond the paper",
    claim="A linear model reads a million tokens at constant time and memory per token.",
    sources=(
        "experiments/long.py",
        "experiments/state_error.py",
        "experiments/core/program.py",
        "experiments/core/training.py",
        "scripts/make_listops.py",
        "python/tarn/ops",
        "src/cli",
        "src/config",
        "src/core",
        "src/data",
        "src/kernels",
        "src/torch_nn",
        "src/torch_ops",
        "src/runtime",
        "src/text",
        "src/train",
    ),
    data=("dna",),
    attention=("linear", "softmax"),
    minutes={"quick": 0.3, "cpu": 7.3, "full": 1800},
    run=run,
    criteria=criteria,
    page=page,
)
