"""The lower half of images drawn from the upper, and images from nothing
(Katharopoulos et al. 2020, figures 3 and 4)."""

from __future__ import annotations

import dataclasses
import pathlib

import numpy as np

from experiments import completion_page, images
from experiments.core import (
    Experiment,
    ExperimentError,
    JsonDict,
    Progress,
    Settings,
    TrainingRun,
    measure,
    pack_images,
    tarn_json,
)
from experiments.core.packing import unpacked

LABELS, TRAIN_LABELS = "t10k-labels-idx1-ubyte", "train-labels-idx1-ubyte"
NEIGHBOURS = 5  # training images that vote on the class of a sample
MOST_LABELS = 1_000_000
CHECKED = 3  # images whose stepping is compared with prefill, of each model


def _images_settings(settings: Settings) -> Settings:
    """The settings of the experiment `images`, which trains the models, in its own folder next to
    this one."""
    return dataclasses.replace(
        settings, experiment=images.EXPERIMENT, out=settings.out.parent / "images", force=False
    )


def _models(others: Settings, progress: Progress) -> dict[str, TrainingRun]:
    """The models; the time of those that were trained before is `images`'s and
    not counted here again."""
    before = progress.reused_s, progress.reused_cpu_s
    models = images.models(others, progress)
    progress.reused_s, progress.reused_cpu_s = before
    return models


def _labels(path: pathlib.Path) -> list[int]:
    """Classes of images from an IDX file, packed or not."""
    data = unpacked(path, MOST_LABELS + 8)
    if (
        len(data) < 8
        or int.from_bytes(data[:4], "big") != 2049
        or (int.from_bytes(data[4:8], "big") != len(data) - 8)
    ):
        raise ExperimentError(f"{path.name}: want an IDX file of labels, got another", 3)
    return list(data[8:])


def _one_a_class(labels: list[int], count: int) -> list[int]:
    """The first image of each of `count` classes, in the order of the classes."""
    first: dict[int, int] = {}
    for index, label in enumerate(labels):
        first.setdefault(label, index)
    chosen = [first[label] for label in sorted(first)][:count]
    return chosen or list(range(count))


def _read_idx(path: pathlib.Path) -> np.ndarray:
    """What `tarn draw` wrote: uint8 of three or four axes."""
    data = path.read_bytes()
    axes = data[3]
    shape = np.frombuffer(data, ">u4", axes, 4).astype(int)
    return np.frombuffer(data, np.uint8, -1, 4 + 4 * axes).reshape(shape)


class _Program:
    """`tarn draw` with one model; files go to the point's folder."""

    def __init__(
        self, settings: Settings, model: pathlib.Path, pool: int, stem: str = images.TEST
    ) -> None:
        self._settings, self._model, self._pool = settings, model, pool
        self._out = settings.out / "points" / "drawn.idx"
        self._file = settings.data_file(images.DATA, stem)

    def draw(self, seed: int, *words: object) -> tuple[np.ndarray, JsonDict]:
        """The images and the program's figures."""
        self._out.parent.mkdir(parents=True, exist_ok=True)
        figures = tarn_json(
            self._settings,
            [
                "draw",
                self._model,
                "--out",
                self._out,
                "--seed",
                seed,
                "--threads",
                self._settings.threads,
                *words,
            ],
        )
        drawn = _read_idx(self._out)
        self._out.unlink()
        return drawn, figures

    def complete(
        self, index: object, pixels: int, samples: int, seed: int = 0
    ) -> tuple[np.ndarray, JsonDict]:
        return self.draw(
            seed,
            "--given",
            self._file,
            "--pool",
            self._pool,
            "--index",
            index,
            "--pixels",
            pixels,
            "--samples",
            samples,
        )


def _stepping_is_prefill(
    model: pathlib.Path, given: np.ndarray, drawn: np.ndarray, pixels: int, seed: int
) -> bool:
    """Whether a state that took the given bytes one by one is the one that took
    them at once, bit for bit, and whether a sample continues as before when it is begun again from
    more of its own bytes, which were stepped before and are prefilled now. given: [H, W]; drawn:
    [1, H, W], the first sample of it."""
    from tarn.runtime import Model

    runtime = Model(model, threads=1)
    tokens = given.reshape(-1)[:pixels].astype(np.int64)
    at_once, stepped = runtime.state(), runtime.state()
    logits = runtime.prefill(at_once, tokens)
    last = logits
    for token in tokens:
        last = runtime.step(stepped, int(token))
    if at_once != stepped or not np.array_equal(logits, last):
        return False
    total = drawn[0].size
    for more in (pixels, (pixels + total) // 2, total - 1):
        again = runtime.complete(drawn, more, samples=1, seed=seed)
        if not np.array_equal(again[0, 0], drawn[0]):
            return False
    return True


def _completions(
    settings: Settings,
    progress: Progress,
    kind: str,
    model: pathlib.Path,
    chosen: list[int],
    samples: int,
) -> JsonDict:
    """Samples of every chosen image, and whether all that must be exact is."""
    pool, side = images.setup_of(settings).pool, 28 // images.setup_of(settings).pool
    pixels = side // 2 * side
    program = _Program(settings, model, pool)
    true = np.concatenate([program.complete(index, side * side, 1)[0] for index in chosen])
    drawn, seconds, steps_equal = [], 0.0, True
    for place, index in enumerate(chosen):
        seed = settings.seed + place  # or all images would get the same numbers
        found, figures = program.complete(index, pixels, samples, seed)
        drawn.append(found)
        seconds += figures["seconds"]
        if place < CHECKED:
            steps_equal &= _stepping_is_prefill(model, true[place], found[:1], pixels, seed)
        progress.at((place + 1) / (len(chosen) + 1), f"{kind}: {place + 1} of {len(chosen)}")
    completed = np.stack(drawn)  # [images, samples, H, W]
    flat = completed.reshape(len(chosen), samples, -1)
    wanted = true.reshape(len(chosen), 1, -1)
    different = int((flat[:, :, :pixels] != wanted[:, :, :pixels]).sum())
    return {
        "true": pack_images(true),
        "drawn": pack_images(completed),
        "pixels": pixels,
        "checked": min(CHECKED, len(chosen)),
        "given_bytes": int(flat[:, :, :pixels].size),
        "given_bytes_different": different,
        "stepping_is_prefill": bool(steps_equal),
        "seconds": seconds,
        "images_a_second": flat.shape[0] * samples / seconds,
    }


def _voted(points: np.ndarray, known: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Class of each of points [n, bytes] by its nearest known images [m, bytes]
    in squared distance; ties go to the lower class. [n]"""
    known32 = known.astype(np.float32)
    squares = (known32**2).sum(axis=1)
    nearest = np.argsort(
        squares - 2 * points.astype(np.float32) @ known32.T, axis=1, kind="stable"
    )[:, :NEIGHBOURS]
    return np.array([np.bincount(labels[row]).argmax() for row in nearest], np.int64)


def _judged(
    settings: Settings, model: pathlib.Path, labels: list[int], count: int, known_count: int
) -> JsonDict:
    """How many drawn lower halves look like their image's class: by the nearest
    lower halves of training images, the given half left out. In addition, what
    bounds such a share: the true lower halves above; blank ones, and the true
    ones of an image of the next class, below. One sample of each of the first
    `count` test images."""
    known_labels = _labels(settings.data_file(images.DATA, TRAIN_LABELS))
    if not labels or not known_labels:
        return {"images": 0}
    pool, side = images.setup_of(settings).pool, 28 // images.setup_of(settings).pool
    pixels = side // 2 * side
    lower = lambda drawn: drawn.reshape(-1, side * side)[:, pixels:]
    program = _Program(settings, model, pool)
    true = lower(program.complete(f"0-{count - 1}", side * side, 1)[0])
    drawn = lower(program.complete(f"0-{count - 1}", pixels, 1, settings.seed)[0])
    # Given as a whole, they come back as the model reads them.
    known = lower(
        _Program(settings, model, pool, images.TRAIN).complete(
            f"0-{known_count - 1}", side * side, 1
        )[0]
    )
    votes, wanted = np.array(known_labels[:known_count]), np.array(labels[:count])
    others = _of_another_class(true, wanted)
    halves = {"samples": drawn, "true": true, "blank": np.zeros_like(true), "another": others}
    return {
        "images": count,
        "training_images": known_count,
        **{
            name: float((_voted(half, known, votes) == wanted).mean())
            for name, half in halves.items()
        },
    }


def _of_another_class(halves: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """For each image the half of the next one, in their order and around its end,
    that is of another class. The same where all are of one class."""
    chosen = []
    for place, label in enumerate(labels):
        later = [(place + step) % len(labels) for step in range(1, len(labels))]
        chosen.append(next((one for one in later if labels[one] != label), place))
    return halves[chosen]


def _from_nothing(settings: Settings, model: pathlib.Path, count: int) -> JsonDict:
    drawn, figures = _Program(settings, model, 1).draw(settings.seed, "--count", count)
    return {
        "drawn": pack_images(drawn),
        "seconds": figures["seconds"],
        "images_a_second": figures["images_per_s"],
    }


def _lower_half(settings: Settings, model: pathlib.Path, count: int) -> JsonDict:
    """bits/dim of the true lower half given the upper, and of the whole image."""
    setup = images.setup_of(settings)
    side = 28 // setup.pool
    file = settings.data_file(images.DATA, images.TEST)
    words = [
        "eval",
        model,
        file,
        "--pool",
        setup.pool,
        "--index",
        f"0-{count - 1}",
        "--threads",
        settings.threads,
    ]
    half = tarn_json(settings, [*words, "--pixels", side // 2 * side])
    whole = tarn_json(settings, words)
    keys = ("images", "bits_per_dim", "standard_error")
    return {
        "lower_half": {key: half[key] for key in keys},
        "whole": {key: whole[key] for key in keys},
    }


def run(settings: Settings, progress: Progress) -> JsonDict:
    others = _images_settings(settings)
    count = settings.pick(quick=2, cpu=10, full=10)
    samples = settings.pick(quick=2, cpu=8, full=8)
    nothing = settings.pick(quick=4, cpu=48, full=48)
    scored = settings.pick(quick=20, cpu=2000, full=10_000)
    known = settings.pick(quick=500, cpu=10_000, full=60_000)
    judged = settings.pick(quick=20, cpu=500, full=2000)
    scale = settings.pick(quick=0.1, cpu=1.0, full=20.0)
    trained = [kind for kind in images.KINDS if kind in others.attentions]
    progress.plan(
        {
            # trained by images, as a rule
            **{images.part_of(kind, settings.seed): 0.1 for kind in trained},
            **{
                f"{what} {kind}": seconds * scale
                for kind in trained
                for what, seconds in (
                    ("complete,", 10.0),
                    ("classes,", 5.0),
                    ("from nothing,", 10.0),
                    ("lower half,", 30.0),
                )
            },
        }
    )
    models = _models(others, progress)
    labels = _labels(settings.data_file(images.DATA, LABELS))
    chosen = _one_a_class(labels, count)
    inputs: JsonDict = {
        "chosen": chosen,
        "samples": samples,
        "count": nothing,
        "scored": scored,
        "known": known,
        "judged": judged,
    }
    kinds: JsonDict = {}
    wanted = [labels[index] for index in chosen] if labels else []
    for kind, one in models.items():
        model = one.model
        completed = measure(
            settings,
            progress,
            f"complete, {kind}",
            inputs,
            lambda k=kind, m=model: _completions(settings, progress, k, m, chosen, samples),
        )
        kinds[kind] = {
            "updates": len(one.log),
            "completed": completed,
            "judged": measure(
                settings,
                progress,
                f"classes, {kind}",
                inputs,
                lambda m=model: _judged(settings, m, labels, judged, known),
            ),
            "from_nothing": measure(
                settings,
                progress,
                f"from nothing, {kind}",
                inputs,
                lambda m=model: _from_nothing(settings, m, nothing),
            ),
            **measure(
                settings,
                progress,
                f"lower half, {kind}",
                inputs,
                lambda m=model: _lower_half(settings, m, scored),
            ),
        }
    return {
        "seeds": [settings.seed],
        "data": settings.data_name(images.DATA),
        "side": 28 // images.setup_of(settings).pool,
        "chosen": chosen,
        "labels": wanted,
        "samples": samples,
        "kinds": kinds,
    }


EXPERIMENT = Experiment(
    name="completion",
    title="Images completed",
    paper="Figures 3, 4",
    claim="Models with linear attention complete images whose upper half is given (shown as "
    "pictures, without numbers).",
    sources=(
        "experiments/completion.py",
        "experiments/images.py",
        "experiments/image_runs.py",
        "experiments/timed_images.py",
        "experiments/whole_images.py",
        "experiments/colour.py",
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
        "python/tarn/runtime",
    ),
    data=(images.DATA,),
    attention=("linear", "softmax"),
    minutes={"quick": 0.3, "cpu": 1.9, "full": 60.0},
    run=run,
    criteria=completion_page.criteria,
    page=completion_page.page,
)
