"""Figure 2: convergence on sequence duplication. A random string of 10 symbols,
a separator, the string again; loss and accuracy on the separator and the copy."""

from __future__ import annotations

from experiments.copying_page import criteria, page
from experiments.core import (
    ATTENTION_FLAG,
    Experiment,
    JsonDict,
    Progress,
    Settings,
    evaluations,
    train,
)

# Updates and seeds by kind, and seconds an update as planned on two AVX-512 cores. An update of
# the reformer takes more than twice as long as the others': it gets fewer.
_STEPS = {
    "quick": {"linear": 24, "softmax": 24, "reformer": 24},
    "cpu": {"linear": 7000, "softmax": 7000, "reformer": 3500},
    "full": {"linear": 10_000, "softmax": 10_000, "reformer": 10_000},
}
# The rate drops to a tenth once both kinds have converged.
_DECAY_AT = 5 / 7
_SEEDS = {
    "quick": {"linear": 1, "softmax": 1, "reformer": 1},
    "cpu": {"linear": 3, "softmax": 3, "reformer": 1},
    "full": {"linear": 3, "softmax": 3, "reformer": 1},
}
_SECONDS = {"quick": 0.06, "cpu": 0.0215, "full": 3.0}


def _flags(settings: Settings, kind: str) -> list[str]:
    """The flags of `tarn train`, without seed and steps."""
    full = settings.size == "full"
    flags = [
        "--preset",
        "copy-task" if full else "copy",
        "--sample-every",
        "0",
        "--attention",
        ATTENTION_FLAG[kind],
    ]
    if kind != "linear":  # nothing in linear attention could be dropped
        flags += ["--attention-dropout", "0.1"]
    if kind == "reformer":
        # The paper's code: 32 planes (64 buckets), chunks of 32 among 128
        # places, 4 rounds; at half the length half of each.
        planes, rounds = ("32", "4") if full else ("16", "2")
        flags += ["--bits", planes, "--hash-chunk", planes, "--rounds", rounds]
    if settings.size == "quick":
        flags += ["--batch", "4", "--decay-at", "20", "--eval-every", "12", "--eval-windows", "16"]
    if settings.size == "cpu":
        flags += ["--decay-at", str(round(_DECAY_AT * _STEPS["cpu"][kind]))]
    return flags


def _run_of(settings: Settings, progress: Progress, part: str, kind: str, seed: int) -> JsonDict:
    steps = _STEPS[settings.size][kind]
    flags = [
        *_flags(settings, kind),
        "--seed",
        str(seed),
        "--steps",
        str(steps),
        "--checkpoint-every",
        str(steps),
    ]
    done = train(settings, progress, part, flags)
    held_out = [
        {"step": step, "elapsed_s": elapsed, "loss": loss, "accuracy": accuracy}
        for (step, loss), (elapsed, _), (_, accuracy) in zip(
            evaluations(done.log, "val_loss"),
            evaluations(done.log, "val_loss", "elapsed_s"),
            evaluations(done.log, "val_accuracy"),
            strict=True,
        )
    ]
    return {
        "kind": kind,
        "seed": seed,
        "updates": steps,
        "seconds": done.seconds,
        "cpu_seconds": done.cpu_seconds,
        "held_out": held_out,
    }


def run(settings: Settings, progress: Progress) -> JsonDict:
    """All kinds and seeds, seed by seed, so that a stopped run has pairs."""
    seeds = _SEEDS[settings.size]
    parts = {
        f"{kind}, seed {settings.seed + i}": (kind, settings.seed + i)
        for i in range(max(seeds.values()))
        for kind in settings.attentions
        if i < seeds[kind]
    }
    progress.plan(
        {
            part: _STEPS[settings.size][kind]
            * _SECONDS[settings.size]
            * (2.5 if kind == "reformer" else 1)
            for part, (kind, _) in parts.items()
        }
    )
    runs = [_run_of(settings, progress, part, kind, seed) for part, (kind, seed) in parts.items()]
    return {"seeds": sorted({seed for _, seed in parts.values()}), "runs": runs}


EXPERIMENT = Experiment(
    name="copy",
    title="Convergence on sequence duplication",
    paper="Figure 2",
    claim="Linear attention reaches softmax's final loss on the copy task, and converges as fast "
    "and as smoothly.",
    sources=(
        "experiments/copying.py",
        "src/config",
        "src/core",
        "src/data",
        "src/kernels",
        "src/torch_nn",
        "src/torch_ops",
        "src/text",
        "src/train",
    ),
    attention=("linear", "softmax", "reformer"),
    minutes={"quick": 0.2, "cpu": 18.5, "full": 3600},
    run=run,
    criteria=criteria,
    page=page,
)
