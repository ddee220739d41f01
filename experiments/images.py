"""Images as sequences of pixels: bits/dim of linear against softmax attention,
after as many updates and in the same time (Katharopoulos et al. 2020, tables 1
and 2)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from experiments import colour, images_page, whole_images
from experiments.core import (
    ATTENTION_FLAG,
    Experiment,
    JsonDict,
    Progress,
    Settings,
    TrainingRun,
    measure,
    train,
)
from experiments.core.files import read_json
from experiments.image_runs import COMPARED as KINDS
from experiments.image_runs import figures_of, pairs, test

DATA = "mnist|fashion-mnist"
TRAIN, TEST = "train-images-idx3-ubyte", "t10k-images-idx3-ubyte"
_SEEDS = {"quick": 1, "cpu": 3, "full": 1}


@dataclass(frozen=True)
class Setup:
    """Sizes of one set of runs; everything but the attention is the same for
    all kinds. `seconds` is what one run is thought to take on two AVX-512 cores."""

    preset: str  # of `tarn train`
    pool: int
    updates: int
    test_images: int  # of the figures in the table
    seconds: float
    changes: Mapping[str, str | int] = field(default_factory=dict)  # of the preset

    def flags(self) -> list[str]:
        """Options of `tarn train`, all but data, attention and seed."""
        given = {
            "preset": self.preset,
            "pool": self.pool,
            "steps": self.updates,
            **self.changes,
            "checkpoint-every": max(self.updates // 10, 1),
            "sample-every": 0,
        }
        return [word for name, value in given.items() for word in (f"--{name}", str(value))]

    def used(self, run: TrainingRun) -> JsonDict:
        """The sizes as the result stores them, with the options that the run recorded."""
        record = read_json(run.folder / "checkpoint" / "train.json")
        model, options = record["model"], record["options"]
        return {
            "preset": self.preset,
            "pool": self.pool,
            "updates": self.updates,
            "test_images": self.test_images,
            "n_layers": model["model"]["n_layers"],
            "d_model": model["model"]["d_model"],
            "activation": model["model"].get("activation", "gelu"),
            "dropout": model["model"].get("dropout", 0.0),
            "norm": model["norm"]["place"],
            "lr": options["lr"],
            "batch": int(options["batch"]),
            "eval_images": int(options["eval_windows"]),
        }


def setup_of(settings: Settings) -> Setup:
    """Grey images: 7 x 7, 14 x 14 or the paper's 28 x 28."""
    return settings.pick(
        quick=Setup(
            "images-small",
            4,
            30,
            40,
            4,
            {
                "d-model": 32,
                "n-layers": 2,
                "n-heads": 2,
                "batch": 8,
                "warmup": 0,
                "schedule": "constant",
                "eval-every": 10,
                "eval-windows": 32,
            },
        ),
        cpu=Setup("images-small", 2, 5000, 1000, 76),
        full=Setup("mnist", 1, 1_500_000, 10_000, 300_000),
    )


def models(settings: Settings, progress: Progress) -> dict[str, TrainingRun]:
    """The trained models of the first seed by kind; those that are there are not
    trained again. The settings are those of this experiment."""
    return {
        kind: _run_of(settings, progress, kind, settings.seed)
        for kind in KINDS
        if kind in settings.attentions
    }


def part_of(kind: str, seed: int) -> str:
    return f"{kind}, seed {seed}"


def _run_of(settings: Settings, progress: Progress, kind: str, seed: int) -> TrainingRun:
    """Trained on the training file alone, of which the trainer holds out a part:
    that is what the curves show, and the test file is never seen."""
    # Colour images named for another part make no other models of these.
    grey = {name: path for name, path in settings.data_paths.items() if name not in colour.SETS}
    settings = dataclasses.replace(settings, data_paths=grey)
    return train(
        settings,
        progress,
        part_of(kind, seed),
        [
            "--data",
            str(settings.data_file(DATA, TRAIN)),
            *setup_of(settings).flags(),
            "--attention",
            ATTENTION_FLAG[kind],
            "--seed",
            str(seed),
        ],
    )


# --- What is measured ----------------------------------------------------------


def run(settings: Settings, progress: Progress) -> JsonDict:
    """Seed by seed, so that a stopped run has pairs; then the longer images."""
    setup = setup_of(settings)
    seeds = range(settings.seed, settings.seed + _SEEDS[settings.size])
    parts = [(kind, seed) for seed in seeds for kind in KINDS if kind in settings.attentions]
    progress.plan(
        {
            **{part_of(*part): setup.seconds for part in parts},
            **{f"test images, {part_of(*part)}": setup.test_images * 0.006 for part in parts},
            **whole_images.planned(settings),
            **colour.planned(settings),
        }
    )
    runs, tests, used = [], {}, None
    file = settings.data_file(DATA, TEST)
    for kind, seed in parts:
        done = _run_of(settings, progress, kind, seed)
        used = used or setup.used(done)
        part = part_of(kind, seed)
        tests[part] = measure(
            settings,
            progress,
            f"test images, {part}",
            {"images": setup.test_images, "pool": setup.pool, "updates": setup.updates},
            lambda done=done: test(settings, done, file, setup.pool, setup.test_images),
        )
        shown = {
            key: value for key, value in tests[part].items() if key != "bits_per_dim_of_images"
        }
        runs.append({"kind": kind, "seed": seed, **figures_of(settings, done), "test": shown})
    return {
        "seeds": list(seeds),
        "data": settings.data_name(DATA),
        "side": 28 // setup.pool,
        "setup": used,
        "runs": runs,
        "pairs": pairs(
            runs,
            {(run["kind"], run["seed"]): tests[part_of(run["kind"], run["seed"])] for run in runs},
        ),
        "whole": whole_images.run(settings, progress, settings.data_file(DATA, TRAIN), file),
        "colour": colour.run(settings, progress),
    }


EXPERIMENT = Experiment(
    name="images",
    title="Images as sequences of pixels",
    paper="Tables 1, 2",
    claim="Trained on images pixel by pixel, linear attention nearly reaches the bits/dim of "
    "softmax attention after as many updates, and lower bits/dim in the same time if "
    "sequences are long.",
    sources=(
        "experiments/images.py",
        "experiments/image_runs.py",
        "experiments/timed_images.py",
        "experiments/whole_images.py",
        "experiments/colour.py",
        "experiments/core/curves.py",
        "experiments/core/update_time.py",
        "src/config",
        "src/core",
        "src/data",
        "src/kernels",
        "src/torch_nn",
        "src/torch_ops",
        "src/train",
        "src/runtime",
        "src/text",
        "src/cli",
    ),
    data=(DATA, *(f"?{name}" for name in colour.SETS)),
    attention=("linear", "softmax", "reformer"),
    minutes={"quick": 0.4, "cpu": 49.5, "full": 75_000.0},
    run=run,
    criteria=images_page.criteria,
    page=images_page.page,
)
