"""Beyond the paper: associative recall to convergence, and how much a state of
fixed size holds. One layer pairs each value with its key in all models alike;
the one that recalls is linear, with keys of different widths, or softmax."""

from __future__ import annotations

from experiments import recall_runs
from experiments.core import Experiment, JsonDict, Progress, Settings, TrainingRun, train_together
from experiments.recall_page import criteria, page

# Each number of pairs is learned from the weights of the one before.
_PAIRS = {"quick": (4, 8), "cpu": (4, 8, 16, 32, 64), "full": (4, 8, 16, 32, 64, 128)}
# Key widths of the only head: the state holds d_key rows of a value's width and no more.
_D_KEYS = {"quick": (8,), "cpu": (16, 32, 64), "full": (16, 32, 64)}
_SOFTMAX_D_KEY = {"quick": 8, "cpu": 32, "full": 32}
_STEPS = {"quick": 6, "cpu": 1350, "full": 6000}
_SEEDS = {"quick": 1, "cpu": 3, "full": 5}
_BATCH = {4: 32, 8: 32, 16: 32, 32: 16, 64: 16, 128: 16}  # rows; 4 at the quick size
# Seconds of 1,000 updates as planned of one of two runs at once, halved; by pairs.
_PLAN = {4: 1.9, 8: 3.4, 16: 6.6, 32: 7.0, 64: 13.5, 128: 28.0}


def _models(settings: Settings) -> list[tuple[str, int]]:
    """Kind and width of its keys."""
    models = [("linear", one) for one in _D_KEYS[settings.size] if "linear" in settings.attentions]
    if "softmax" in settings.attentions:
        models.append(("softmax", _SOFTMAX_D_KEY[settings.size]))
    return models


def _part(kind: str, d_key: int, pairs: int, seed: int, alone: bool = False) -> str:
    how = ", from the start" if alone else ""
    return f"{kind}, d_key {d_key}, {pairs} pairs{how}, seed {seed}"


def _flags(settings: Settings, kind: str, d_key: int, pairs: int) -> list[str]:
    """One layer of local attention sees two tokens: it brings key and value together,
    and the other one recalls."""
    quick, steps = settings.size == "quick", _STEPS[settings.size]
    second = "linear" if kind == "linear" else "full"
    return [
        *recall_runs.rows(pairs, max(_PAIRS[settings.size]), 4 if quick else _BATCH[pairs]),
        "--layers",
        f"{recall_runs.PAIRING},{second}",
        "--n-layers",
        "2",
        "--d-model",
        "32" if quick else "64",
        "--n-heads",
        "1",
        "--d-key",
        str(d_key),
        "--d-value",
        "64",
        "--d-ff",
        "128",
        "--schedule",
        "cosine",
        "--steps",
        str(steps),
        "--warmup",
        str(min(100, steps // 3)),
        "--sample-every",
        "0",
        "--checkpoint-every",
        str(steps),
        "--eval-every",
        str(steps // (2 if quick else 8)),
        "--eval-windows",
        "16" if quick else "128",
    ]


def _figures_of(model: tuple[str, int], pairs: int, seed: int, done: TrainingRun) -> JsonDict:
    return {
        "kind": model[0],
        "d_key": model[1],
        "pairs": pairs,
        "seed": seed,
        "updates": len(done.log),
        "seconds": done.seconds,
        "cpu_seconds": done.cpu_seconds,
        "held_out": recall_runs.held_out(done),
    }


def run(settings: Settings, progress: Progress) -> JsonDict:
    """All models and seeds with few pairs, then with more; at last the largest
    number without the others before it."""
    size, models, pairs = settings.size, _models(settings), _PAIRS[settings.size]
    seeds = [settings.seed + i for i in range(_SEEDS[size])]
    seconds = {n: 0.8 + _STEPS[size] / 1000 * _PLAN[n] for n in pairs}
    progress.plan(
        {
            **{
                _part(*model, n, seed): seconds[n]
                for n in pairs
                for seed in seeds
                for model in models
            },
            **{
                _part(*model, pairs[-1], settings.seed, True): seconds[pairs[-1]]
                for model in _widest(models)
            },
        }
    )
    found = recall_runs.grown(
        settings,
        progress,
        pairs,
        [(*model, seed) for seed in seeds for model in models],
        lambda model, n: [*_flags(settings, *model[:2], n), "--seed", str(model[2])],
        lambda model, n: _part(model[0], model[1], n, model[2]),
    )
    runs = [
        _figures_of((kind, d_key), n, seed, one) for ((kind, d_key, seed), n), one in found.items()
    ]
    alone = {
        _part(*model, pairs[-1], settings.seed, True): [
            *_flags(settings, *model, pairs[-1]),
            "--seed",
            str(settings.seed),
        ]
        for model in _widest(models)
    }
    done = train_together(settings, progress, alone)
    return {
        "seeds": seeds,
        "runs": runs,
        "from_the_start": [
            _figures_of(
                model, pairs[-1], settings.seed, done[_part(*model, pairs[-1], settings.seed, True)]
            )
            for model in _widest(models)
        ],
        "d_value": 64,
        "key_symbols": recall_runs.symbols(pairs[-1]) // 2 - 1,
    }


def _widest(models: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """The model with the widest keys of each kind."""
    return list({kind: (kind, d_key) for kind, d_key in sorted(models)}.values())


EXPERIMENT = Experiment(
    name="recall",
    title="What a state of fixed size recalls",
    paper="beyond the paper",
    claim="Softmax attention recalls every number of pairs tried. The state of linear "
    "attention holds as many pairs as its keys have columns; with more pairs recall falls.",
    sources=(
        "experiments/recall.py",
        "experiments/recall_runs.py",
        "src/config",
        "src/core",
        "src/data",
        "src/kernels",
        "src/text",
        "src/torch_nn",
        "src/torch_ops",
        "src/train",
    ),
    attention=("linear", "softmax"),
    devices=("cpu", "cuda"),
    minutes={"quick": 0.3, "cpu": 10.3, "full": 600},
    run=run,
    criteria=criteria,
    page=page,
)
