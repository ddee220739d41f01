"""Images as sequences of pixels: bits/dim of linear against softmax attention
(Katharopoulos et al. 2020, tables 1 and 2)."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from experiments import images_page
from experiments.core import (
    ATTENTION_FLAG,
    Criterion,
    Experiment,
    Figures,
    JsonDict,
    Page,
    Progress,
    Settings,
    TrainingRun,
    measure,
    tarn_json,
    thinned,
    train,
)
from experiments.core.files import read_json

DATA = "mnist|fashion-mnist"
COLOUR = ("cifar10", "cifar10-lossless-4k")  # used where --data names one
TRAIN, TEST = "train-images-idx3-ubyte", "t10k-images-idx3-ubyte"
# Of the pass criterion: the paper's own gap is 0.023.
MOST_APART = 0.05


@dataclass(frozen=True)
class Setup:
    """Sizes of one set of runs; everything but the attention is the same for
    all kinds. `seconds` is what one run is thought to take on two AVX2 cores."""

    preset: str  # of `tarn train`
    pool: int
    updates: int
    test_images: int  # of the figures in the table
    seconds: float
    changes: Mapping[str, str | int] = field(default_factory=dict)  # of the preset

    def flags(self) -> list[str]:
        """Options of `tarn train`, all but data, attention and seed."""
        given = {"preset": self.preset, "pool": self.pool, "steps": self.updates, **self.changes,
                 "checkpoint-every": max(self.updates // 10, 1), "sample-every": 0}
        return [word for name, value in given.items() for word in (f"--{name}", str(value))]

    def used(self, run: TrainingRun) -> JsonDict:
        """For the result: these sizes, and the options that the run recorded."""
        record = read_json(run.folder / "checkpoint" / "train.json")
        model, options = record["model"], record["options"]
        return {"preset": self.preset, "pool": self.pool, "updates": self.updates,
                "test_images": self.test_images, "n_layers": model["model"]["n_layers"],
                "d_model": model["model"]["d_model"],
                "norm": model["norm"]["place"], "lr": options["lr"],
                "batch": int(options["batch"]), "eval_images": int(options["eval_windows"])}


def setup_of(settings: Settings) -> Setup:
    """Grey images: 7 x 7, 14 x 14 or the paper's 28 x 28."""
    return settings.pick(
        quick=Setup("images-small", 4, 30, 40, 4, {
            "d-model": 32, "n-layers": 2, "n-heads": 2, "batch": 8, "warmup": 0,
            "schedule": "constant", "eval-every": 10, "eval-windows": 32}),
        cpu=Setup("images-small", 2, 12_000, 2000, 540),
        full=Setup("mnist", 1, 1_500_000, 10_000, 300_000),
    )


def colour_setup_of(settings: Settings) -> Setup:
    """Colour images, 8 x 8 but at full size: a few updates that show the way
    from the file to bits/dim."""
    return settings.pick(
        quick=Setup("images-small", 8, 6, 8, 2, {
            "d-model": 32, "n-layers": 1, "n-heads": 2, "batch": 4, "warmup": 0,
            "schedule": "constant", "eval-every": 3, "eval-windows": 8}),
        cpu=Setup("images-small", 4, 150, 200, 30, {
            "batch": 16, "warmup": 50, "schedule": "constant", "eval-every": 50, "eval-windows": 64}),
        full=Setup("cifar10", 1, 500_000, 10_000, 2_000_000),
    )


def models(settings: Settings, progress: Progress) -> dict[str, TrainingRun]:
    """The trained models by kind; those that are there are not trained again.
    The settings are those of this experiment."""
    setup = setup_of(settings)
    # Colour images named for another part make no other models of these.
    grey = {name: path for name, path in settings.data_paths.items() if name not in COLOUR}
    settings = dataclasses.replace(settings, data_paths=grey)
    data = ["--data", str(settings.data_file(DATA, TRAIN)),
            "--held-out", str(settings.data_file(DATA, TEST))]
    return {kind: _train(settings, progress, kind, kind, setup, data)
            for kind in settings.attentions}


def _train(settings: Settings, progress: Progress, part: str, kind: str, setup: Setup,
           data: Sequence[str]) -> TrainingRun:
    return train(settings, progress, part,
                 [*data, *setup.flags(), "--attention", ATTENTION_FLAG[kind],
                  "--seed", str(settings.seed)])


# --- What is measured ---------------------------------------------------------


def _curves(run: TrainingRun) -> JsonDict:
    """bits/dim over updates, wall and CPU seconds."""
    keys = ["step", "elapsed_s", "cpu_s", "bits_per_dim", "val_bits_per_dim"]
    looks = [row for row in run.log if row.get("val_bits_per_dim") is not None]
    return {"training": thinned(run.log, keys[:4], 100),
            "held_out": [{key: row.get(key) for key in keys if key != "bits_per_dim"}
                         for row in looks]}


def _figures(settings: Settings, run: TrainingRun) -> JsonDict:
    updates = len(run.log)
    return {
        "parameters": tarn_json(settings, ["info", run.model])["parameters"]["total"],
        "updates": updates, "seconds": run.seconds, "cpu_seconds": run.cpu_seconds,
        "seconds_an_update": run.seconds / max(updates, 1), **_curves(run),
    }


def _test(settings: Settings, run: TrainingRun, file: pathlib.Path, setup: Setup) -> JsonDict:
    """bits/dim of the first test images, and of each."""
    found = tarn_json(settings, ["eval", run.model, file, "--pool", setup.pool, "--index",
                                 f"0-{setup.test_images - 1}", "--per-image", "--threads",
                                 settings.threads])
    return {key: found[key] for key in
            ("images", "bits_per_dim", "standard_error", "bits_per_dim_of_images", "seconds")}


def _apart(linear: Sequence[float], softmax: Sequence[float]) -> JsonDict:
    """Linear minus softmax on the same images: mean and its standard error."""
    apart = [a - b for a, b in zip(linear, softmax, strict=True)]
    mean = math.fsum(apart) / len(apart)
    squares = math.fsum((x - mean) ** 2 for x in apart)
    error = math.sqrt(squares / max(len(apart) - 1, 1) / len(apart))
    return {"difference": mean, "standard_error": error}


def at_time(looks: Sequence[JsonDict], seconds: float, clock: str) -> float | None:
    """Held-out bits/dim at a time, on the straight line between two looks; None
    before the first and after the last."""
    points = [(row[clock], row["val_bits_per_dim"]) for row in looks
              if row.get(clock) is not None]
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        if x0 <= seconds <= x1:
            return y0 + (y1 - y0) * (seconds - x0) / (x1 - x0) if x1 > x0 else y1
    return points[0][1] if points and points[0][0] == seconds else None


def equal_time(kinds: JsonDict, clock: str) -> JsonDict | None:
    """Held-out bits/dim of all kinds when the first of them had finished. The
    winner is the lower; None where a curve does not reach there."""
    ends = [kinds[kind]["held_out"][-1].get(clock) for kind in kinds if kinds[kind]["held_out"]]
    if len(ends) < 2 or any(end is None for end in ends):
        return None
    seconds = min(ends)
    found = {kind: at_time(kinds[kind]["held_out"], seconds, clock) for kind in kinds}
    if any(value is None for value in found.values()):
        return None
    return {"seconds": seconds, "bits_per_dim": found,
            "winner": min(found, key=lambda kind: found[kind] or math.inf)}


def _colour_files(settings: Settings) -> list[pathlib.Path] | None:
    """Training files of the colour set that was named; the last is held out
    where there are several. None where there was none."""
    name = next((one for one in COLOUR if settings.given(one)), None)
    if name is None:
        return None
    if name == "cifar10-lossless-4k":
        return [settings.data_file(name, "data_batch_1_first4000.bin")]
    if settings.size != "full":
        return [settings.data_file(name, "data_batch_1.bin")]
    return [settings.data_file(name, f"data_batch_{i}.bin") for i in range(1, 6)] + [
        settings.data_file(name, "test_batch.bin")]


def _colour(settings: Settings, progress: Progress, files: list[pathlib.Path]) -> JsonDict:
    setup = colour_setup_of(settings)
    name = next(one for one in COLOUR if settings.given(one))
    data = [word for file in files[:5] for word in ("--data", str(file))]
    if len(files) > 5:
        data += ["--held-out", str(files[5])]
    rows = {}
    for kind in settings.attentions:
        run = _train(settings, progress, f"colour {kind}", kind, setup, data)
        rows[kind] = _figures(settings, run)
    return {"data": name, "pool": setup.pool, "side": 32 // setup.pool,
            "kinds": rows}


def run(settings: Settings, progress: Progress) -> JsonDict:
    setup, colour = setup_of(settings), colour_setup_of(settings)
    files = _colour_files(settings)
    progress.plan({
        **{kind: setup.seconds for kind in settings.attentions},
        **{f"test images, {kind}": setup.test_images * 0.01 for kind in settings.attentions},
        **{f"colour {kind}": colour.seconds for kind in settings.attentions if files},
    })
    runs = models(settings, progress)
    kinds = {kind: _figures(settings, one) for kind, one in runs.items()}
    test_file = settings.data_file(DATA, TEST)
    # A point a kind: a run of one kind serves the run of both.
    tests = {kind: measure(
        settings, progress, f"test images, {kind}",
        {"images": setup.test_images, "pool": setup.pool, "updates": setup.updates},
        lambda one=one: _test(settings, one, test_file, setup)) for kind, one in runs.items()}
    result: JsonDict = {
        "seeds": [settings.seed],
        "data": settings.data_name(DATA),
        "side": 28 // setup.pool,
        "setup": setup.used(next(iter(runs.values()))),
        "kinds": {kind: {**kinds[kind], "test": {key: value for key, value in tests[kind].items()
                                                 if key != "bits_per_dim_of_images"}}
                  for kind in kinds},
        "equal_updates": None, "equal_time": None, "equal_cpu_time": None,
    }
    if {"linear", "softmax"} <= set(kinds):
        per_image = [tests[kind]["bits_per_dim_of_images"] for kind in ("linear", "softmax")]
        result["equal_updates"] = _apart(*per_image)
        result["equal_time"] = equal_time(kinds, "elapsed_s")
        result["equal_cpu_time"] = equal_time(kinds, "cpu_s")
    result["colour"] = _colour(settings, progress, files) if files else None
    return result


# --- What is told -------------------------------------------------------------


def criteria(result: JsonDict) -> list[Criterion]:
    measured, quick = result["measured"], result["size"] == "quick"
    apart = measured["equal_updates"]
    gap = "linear minus softmax at equal updates, either way"
    if apart is None or quick:
        why = "one kind only" if apart is None else "a smoke run: too few updates to tell"
        gap_line = Criterion(gap, f"at most {MOST_APART} bits/dim", why, None)
    else:
        gap_line = Criterion(
            gap, f"at most {MOST_APART} bits/dim",
            f"{apart['difference']:+.4f} bits/dim, standard error {apart['standard_error']:.4f}",
            abs(apart["difference"]) <= MOST_APART)
    named = "at equal time both curves are shown and the winner named"
    equal = measured["equal_time"]
    if equal is None:
        return [gap_line, Criterion(named, "a winner", "not measured", None, stated=True)]
    bits = ", ".join(f"{kind} {value:.4f}" for kind, value in equal["bits_per_dim"].items())
    near = ", level within two standard errors" if images_page.level(measured, equal) else ""
    return [gap_line, Criterion(named, "a winner", f"{equal['winner']}: {bits} bits/dim after "
                                f"{equal['seconds']:.0f} s{near}", True, stated=True)]


def page(result: JsonDict, figures: Figures) -> Page:
    return images_page.page(result, figures)


EXPERIMENT = Experiment(
    name="images",
    title="Images as sequences of pixels",
    paper="Tables 1, 2",
    claim="Trained on images pixel by pixel, linear attention reaches nearly the bits/dim of "
    "softmax attention after as many updates, and more in the same time where sequences are long.",
    sources=("experiments/images.py", "src/config", "src/core", "src/data", "src/kernels", "src/torch_nn", "src/torch_ops",
             "src/train", "src/runtime", "src/text", "src/cli"),
    data=(DATA, *(f"?{name}" for name in COLOUR)),
    attention=("linear", "softmax"),
    minutes={"quick": 0.4, "cpu": 18.0, "full": 75_000.0},
    run=run,
    criteria=criteria,
    page=page,
)
