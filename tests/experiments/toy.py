"""A small experiment in place of one of the paper's: two trainings of some
steps, one measured point that counts its calls, all kinds of figures."""

import os
import pathlib

import numpy as np

from experiments.core import (
    ATTENTION_FLAG,
    Criterion,
    Experiment,
    Figures,
    JsonDict,
    Page,
    Panel,
    Progress,
    Section,
    Series,
    Settings,
    Table,
    measure,
    number,
    pack_images,
    thinned,
    train,
    unpack_images,
)

STEPS = int(os.environ.get("TOY_STEPS", "0"))
CALLS: list[int] = []


def _point(value: int) -> JsonDict:
    CALLS.append(value)
    return {"value": value / 3, "calls": len(CALLS)}


def run(settings: Settings, progress: Progress) -> JsonDict:
    text = settings.data_file("text-shakespeare", "input.txt")
    progress.plan({f"train {kind}": 5 for kind in settings.attentions} | {"point": 1})
    curves: JsonDict = {
        kind: [{"step": s, "elapsed_s": s / 10, "loss": 1 / s} for s in range(1, 9)]
        for kind in settings.attentions
    }
    if STEPS:
        flags = [
            "--preset",
            "tiny",
            "--data",
            text,
            "--steps",
            STEPS,
            "--warmup",
            5,
            "--batch",
            2,
            "--seq-len",
            32,
            "--checkpoint-every",
            5,
        ]
        for kind in settings.attentions:
            done = train(
                settings, progress, f"train {kind}", [*flags, "--attention", ATTENTION_FLAG[kind]]
            )
            curves[kind] = thinned(done.log, ["step", "elapsed_s", "loss"])
    value = int(os.environ.get("TOY_VALUE", "1"))
    images = np.arange(2 * 3 * 4 * 5, dtype=np.uint8).reshape(2, 3, 4, 5)
    return {
        "seeds": [settings.seed, 7],
        "curves": curves,
        "images": pack_images(images),
        "point": measure(settings, progress, "point", {"value": value}, lambda: _point(value)),
    }


def criteria(result: JsonDict) -> list[Criterion]:
    curves = result["measured"]["curves"]
    lines = [
        Criterion.at_most(f"{kind} loss", rows[-1]["loss"], 0.5) for kind, rows in curves.items()
    ]
    return [*lines, Criterion.at_least("speed", None, 1.7, "x")]


def page(result: JsonDict, figures: Figures) -> Page:
    curves = result["measured"]["curves"]
    panels = [
        Panel(
            [
                Series(kind, [(row[x], row["loss"]) for row in rows], kind)
                for kind, rows in curves.items()
            ],
            x,
            "loss",
            log_y=True,
        )
        for x in ("step", "elapsed_s")
    ]
    loss = figures.lines("loss", panels, "Loss over updates and seconds", "All runs.")
    bars = figures.bars(
        "rate",
        ["784", "3,072"],
        {"linear": [3.0, 2.0], "softmax": [1.0, None]},
        "images/s",
        "Images a second",
        texts=number,
    )
    grid = figures.images(
        "grid", unpack_images(result["measured"]["images"]), "Images", row_gaps=[1]
    )
    table = Table(["kind", "loss"], [[kind, rows[-1]["loss"]] for kind, rows in curves.items()])
    return Page(
        f"{number(result['measured']['point']['value'])} a point",
        "All agrees.",
        ["The data are a text."],
        [Section("Curves", ["Text.", loss, bars, grid, table])],
        theirs="none",
        picture=loss,
    )


EXPERIMENT = Experiment(
    name="scaling",
    title="A toy",
    paper="Figure 1",
    claim="Toys are small.",
    sources=(str(pathlib.Path(__file__).resolve()), "src/data/text/corpus.cc"),
    data=("text-shakespeare",),
    minutes={"quick": 0.1, "cpu": 0.1, "full": 0.1},
    run=run,
    criteria=criteria,
    page=page,
)
