"""Beyond the paper: the models that came before, on one text. A vanilla RNN, an
LSTM, a stack of convolutions and both kinds of attention, of about as many
parameters, each for the same wall time; and what one more token costs them."""

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
    tarn_json,
    thinned,
    train,
    update_time,
)
from experiments.earlier_page import criteria, page
from experiments.earlier_token import token_times

# Keys of config.json, by kind: within a tenth of the transformers' parameters.
_TRANSFORMER = {
    "quick": {"d_model": 32, "n_layers": 1, "n_heads": 2},
    "cpu": {"d_model": 96, "n_layers": 3, "n_heads": 4},
    "full": {"d_model": 256, "n_layers": 6, "n_heads": 8},
}
_EARLIER = {
    "quick": {
        "rnn": {"d_model": 64, "n_layers": 1},
        "lstm": {"d_model": 38, "n_layers": 1},
        "cnn": {"d_model": 44, "n_layers": 2, "kernel_size": 3},
    },
    "cpu": {
        "rnn": {"d_model": 228, "n_layers": 3},
        "lstm": {"d_model": 144, "n_layers": 2},
        "cnn": {"d_model": 116, "n_layers": 5, "kernel_size": 5},
    },
    "full": {
        "rnn": {"d_model": 880, "n_layers": 3},
        "lstm": {"d_model": 540, "n_layers": 2},
        "cnn": {"d_model": 396, "n_layers": 6, "kernel_size": 5},
    },
}
_ROWS = {"quick": (4, 32), "cpu": (4, 128), "full": (32, 256)}  # batch, tokens a row
# Rows and tokens a row of an update that is timed twice, the second time with all tokens in
# one row: the ratio tells what a row's length costs.
_MANY = {"quick": (4, 32), "cpu": (16, 128), "full": (16, 128)}
_SECONDS = {"quick": 0.2, "cpu": 22.0, "full": 7200.0}  # of one training
_TIMED = {"quick": 2, "cpu": 8, "full": 8}  # updates whose median time is an update's
_SEEDS = {"quick": 1, "cpu": 3, "full": 3}
_RATE = {"rnn": "0.001", "lstm": "0.004", "cnn": "0.002", "linear": "0.002", "softmax": "0.002"}
_CONTEXTS = {"quick": (64, 256), "cpu": (64, 256, 1024, 4096), "full": (64, 256, 1024, 4096, 16384)}
_ROUNDS = {"quick": 1, "cpu": 5, "full": 5}


def shape(size: str, kind: str) -> JsonDict:
    """Keys of config.json."""
    if kind in _EARLIER[size]:
        return {"arch": kind, **_EARLIER[size][kind]}
    attention = "full" if kind == "softmax" else "linear"
    return {**_TRANSFORMER[size], "attention": attention, "positions": "rotary"}


def _stepped(keys: JsonDict) -> JsonDict:
    """The same model with positions that the package's step of a decoder does in
    one call; rotary ones take the way through the modules, which would be timed."""
    return keys | {"positions": "sinusoidal"} if keys.get("positions") == "rotary" else keys


def _kinds(settings: Settings) -> list[str]:
    """--attention lstm means all that came before."""
    earlier = ["rnn", "lstm", "cnn"] if "lstm" in settings.attentions else []
    return earlier + [one for one in ("linear", "softmax") if one in settings.attentions]


def _flags(
    settings: Settings, kind: str, text: pathlib.Path, rows: tuple[int, int], steps: int
) -> list[str]:
    """All flags but the seed. The rate stays where it is after warm-up, so that a curve
    cut short is that of a shorter run."""
    batch, seq_len = rows
    flags = [
        "--data",
        str(text),
        "--tokenizer",
        "char",
        "--batch",
        str(batch),
        "--seq-len",
        str(seq_len),
        "--schedule",
        "constant",
        "--lr",
        _RATE[kind],
        "--warmup",
        str(min(100, max(1, steps // 10))),
        "--steps",
        str(steps),
        "--sample-every",
        "0",
        "--checkpoint-every",
        str(steps),
        "--eval-windows",
        "16" if settings.size == "quick" else "96",
    ]
    for key, value in shape(settings.size, kind).items():
        flags += [f"--{key.replace('_', '-')}", str(value)]
    return flags


def _ms_an_update(
    settings: Settings,
    progress: Progress,
    part: str,
    kind: str,
    text: pathlib.Path,
    rows: tuple[int, int],
) -> float:
    """The median milliseconds of the updates after the first, without evaluations."""
    steps = 1 + _TIMED[settings.size]
    done = train(
        settings,
        progress,
        part,
        [
            *_flags(settings, kind, text, rows, steps),
            "--seed",
            str(settings.seed),
            "--eval-every",
            str(steps),
        ],
    )
    return 1000 * update_time(done.log).update


def _parameters(settings: Settings, done: TrainingRun) -> int:
    """Parameters as `tarn info` counts them: the numbers of the weight file."""
    return int(tarn_json(settings, ["info", str(done.model)])["parameters"]["total"])


def _trained(
    settings: Settings, progress: Progress, kind: str, seed: int, steps: int, text: pathlib.Path
) -> JsonDict:
    every = max(1, steps // (2 if settings.size == "quick" else 12))
    done = train(
        settings,
        progress,
        f"{kind}, seed {seed}",
        [
            *_flags(settings, kind, text, _ROWS[settings.size], steps),
            "--seed",
            str(seed),
            "--eval-every",
            str(every),
        ],
    )
    bits = evaluations(done.log, "val_bits_per_byte")
    times = evaluations(done.log, "val_bits_per_byte", "elapsed_s")
    return {
        "kind": kind,
        "seed": seed,
        "updates": steps,
        "parameters": _parameters(settings, done),
        "seconds": done.seconds,
        "cpu_seconds": done.cpu_seconds,
        "curve": thinned(done.log, ["step", "elapsed_s", "loss"], 60),
        "held_out": [
            {"step": step, "elapsed_s": seconds, "bits": value}
            for (step, value), (seconds, _) in zip(bits, times, strict=True)
        ],
    }


def run(settings: Settings, progress: Progress) -> JsonDict:
    """How long an update takes decides how many fit into the wall time."""
    text = settings.data_file("text-shakespeare", "input.txt")
    size, kinds = settings.size, _kinds(settings)
    rows, seeds = _ROWS[size], [settings.seed + i for i in range(_SEEDS[size])]
    many = _MANY[size]
    shapes = {"rows": rows, "many rows": many, "one row": (1, many[0] * many[1])}
    progress.plan(
        {
            **{
                f"time of an update, {kind}, {name}": 0.6 if size == "quick" else 1.5
                for name in shapes
                for kind in kinds
            },
            "time of a token": 0.5 if size == "quick" else 12.0,
            **{
                f"{kind}, seed {seed}": 0.8 + 1.05 * _SECONDS[size]
                for seed in seeds
                for kind in kinds
            },
        }
    )
    updates = []
    for kind in kinds:
        times = {
            name: _ms_an_update(
                settings, progress, f"time of an update, {kind}, {name}", kind, text, of
            )
            for name, of in shapes.items()
        }
        updates.append(
            {
                "kind": kind,
                "ms": times["rows"],
                "many_rows_ms": times["many rows"],
                "one_row_ms": times["one row"],
            }
        )
    steps = {one["kind"]: max(2, round(1000 * _SECONDS[size] / one["ms"])) for one in updates}
    asked = {
        "contexts": list(_CONTEXTS[size]),
        "rounds": _ROUNDS[size],
        "models": {kind: _stepped(shape(size, kind)) for kind in kinds},
    }
    tokens = measure(
        settings,
        progress,
        "time of a token",
        asked,
        lambda: {
            "rows": token_times(
                asked["models"],
                asked["contexts"],
                asked["rounds"],
                settings.threads,
                settings.seed,
                progress.at,
            )
        },
    )["rows"]
    runs = [
        _trained(settings, progress, kind, seed, steps[kind], text)
        for seed in seeds
        for kind in kinds
    ]
    return {
        "seeds": seeds,
        "rows": list(rows),
        "many_rows": list(many),
        "seconds": _SECONDS[size],
        "updates": updates,
        "rates": {kind: float(_RATE[kind]) for kind in kinds},
        "models": {kind: shape(size, kind) for kind in kinds},
        "tokens": tokens,
        "runs": runs,
    }


EXPERIMENT = Experiment(
    name="earlier",
    title="The models that came before",
    paper="beyond the paper",
    claim="Recurrent networks generate at a constant cost per token, but train one position "
    "after the other and learn less in the same time. Softmax transformers train well, "
    "but every token of the context costs time. A linear transformer trains as well and "
    "generates at a constant cost.",
    sources=(
        "experiments/earlier.py",
        "experiments/earlier_token.py",
        "experiments/core/program.py",
        "experiments/core/update_time.py",
        "python/tarn/models",
        "src/cli",
        "src/config",
        "src/core",
        "src/data",
        "src/kernels",
        "src/runtime",
        "src/text",
        "src/torch_nn",
        "src/torch_ops",
        "src/train",
    ),
    data=("text-shakespeare",),
    attention=("linear", "softmax", "lstm"),
    devices=("cpu",),
    minutes={"quick": 0.3, "cpu": 6.6, "full": 1900},
    run=run,
    criteria=criteria,
    page=page,
)
