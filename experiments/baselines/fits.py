"""All baselines of the report: each is fitted on the training split of a page's models and
scored on the items that these are tested on."""

from __future__ import annotations

import math
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np

from experiments.baselines import labels, pixels, sound, splits
from experiments.baselines.counts import ORDERS, CountTable, choose_order, copy_chance
from experiments.core import Criterion, Experiment, Figures, JsonDict, Page, Progress, Settings
from experiments.core.packing import unpacked
from experiments.core.places import ROOT
from experiments.core.types import ExperimentError

_MOST_BYTES = 1 << 28
_CIFAR_BYTES = 1 + 3 * 32 * 32
_STREAM = 1_000_000  # letters of experiments/long.py
_SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
# scripts/make_listops.py as experiments/long.py calls it.
_LISTOPS = "--min-len 20 --max-len 100 --train 48000 --valid 100 --test 2000 --seed 1"

Fits = list[JsonDict]


def _fit(
    part: str,
    name: str,
    unit: str,
    score: Callable[[], float | JsonDict],
    learned: int,
    judged: int,
    data: str = "",
) -> JsonDict:
    """One row: the score of a fit, what it learned from, what it is judged on, its seconds."""
    began = time.monotonic()
    found = score()
    values = found if isinstance(found, dict) else {"value": found}
    return {
        "part": part,
        "name": name,
        "unit": unit,
        **values,
        "learned": learned,
        "judged": judged,
        "data": data,
        "seconds": time.monotonic() - began,
    }


# --- Text and DNA -------------------------------------------------------------


def _encoded(text: bytes, alphabet: np.ndarray) -> np.ndarray:
    return np.searchsorted(alphabet, np.frombuffer(text, np.uint8))


def _tables(
    part: str, unit: str, learned: np.ndarray, rows: np.ndarray, symbols: int, data: str
) -> Fits:
    """A row an order; the one that the training split alone chooses is marked."""
    chosen = choose_order(learned, symbols)
    judged = rows.shape[0] * (rows.shape[1] - 1)
    fits = [
        _fit(
            part,
            f"counts of order {k}",
            unit,
            lambda k=k: CountTable(learned, symbols, k).bits(rows),
            learned.size,
            judged,
            data,
        )
        for k in ORDERS
    ]
    return [fit | {"chosen": order == chosen} for order, fit in zip(ORDERS, fits, strict=True)]


def text_fits(part: str, text: bytes, seq_len: int, most: int, data: str, unit: str) -> Fits:
    """Of the rows that `tarn train --seq-len --eval-windows` evaluates."""
    alphabet = np.unique(np.frombuffer(text, np.uint8))
    learned, held = (_encoded(one, alphabet) for one in splits.split_text(text))
    return _tables(part, unit, learned, splits.windows(held, seq_len, most), alphabet.size, data)


def stream_fits(part: str, letters: bytes, tokens: int, data: str) -> Fits:
    """Of the last letters as one row, learned from those before, less what is held out there."""
    alphabet = np.unique(np.frombuffer(letters, np.uint8))
    learned, _ = splits.split_text(letters[: -tokens - 1])
    row = _encoded(letters[-tokens - 1 :], alphabet)[None]
    return _tables(part, "bits per letter", _encoded(learned, alphabet), row, alphabet.size, data)


def _letters(path: pathlib.Path) -> bytes:
    """Of a FASTA file of one sequence."""
    head, *lines = unpacked(path, _MOST_BYTES).split(b"\n")
    if not head.startswith(b">"):
        raise ExperimentError(f"{path.name}: want FASTA with one sequence", 3)
    return b"".join(line.strip() for line in lines).upper()


# --- Images -------------------------------------------------------------------


def image_fits(part: str, learned: np.ndarray, judged: np.ndarray, data: str) -> Fits:
    """Both tables of bytes before a byte, over all images that the trainer learns from."""
    kept = splits.learned_images(learned)
    counts = kept.shape[0], judged.shape[0], data
    found = [
        _fit(
            part,
            "difference to the previous pixel",
            "bits/dim",
            lambda: pixels.difference_bits(kept, judged),
            *counts,
        ),
        _fit(
            part,
            "four quantised neighbours",
            "bits/dim",
            lambda: pixels.neighbour_bits(kept, judged),
            *counts,
        ),
    ]
    return _better_chosen(found)


def _better_chosen(fits: Fits) -> Fits:
    """Of several, that with the lowest value is the one to beat."""
    best = min(fit["value"] for fit in fits)
    return [fit | {"chosen": fit["value"] == best} for fit in fits]


def _idx(path: pathlib.Path) -> np.ndarray:
    content = unpacked(path, _MOST_BYTES)
    if content[:4] != b"\0\0\x08\x03":
        raise ExperimentError(f"{path.name}: want an IDX file of images, got another", 3)
    shape = np.frombuffer(content, ">u4", 3, 4).astype(int)
    return np.frombuffer(content, np.uint8, -1, 16).reshape(*shape, 1)


def _cifar(path: pathlib.Path) -> np.ndarray:
    records = np.frombuffer(unpacked(path, _MOST_BYTES), np.uint8).reshape(-1, _CIFAR_BYTES)
    return records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


def _grey(settings: Settings) -> Fits:
    learned, judged = (
        _idx(settings.data_file("mnist", f"{one}-images-idx3-ubyte")) for one in ("train", "t10k")
    )
    return [
        *image_fits(
            "images/grey", splits.pooled(learned, 2), splits.pooled(judged, 2)[:1000], "mnist"
        ),
        *image_fits("images/whole", learned, judged[:500], "mnist"),
    ]


def _colour(settings: Settings) -> Fits:
    found = _cifar(settings.data_file("cifar10-lossless-4k", "data_batch_1_first4000.bin"))
    return image_fits("images/colour", found[:-200], found[-200:], "cifar10-lossless-4k")


# --- Speech and ListOps -------------------------------------------------------


def speech_fits(spoken: list[sound.Recording]) -> Fits:
    """Letter errors of each speaker, learned from the four that a page's models learn from."""
    constant: JsonDict = {}
    frames: JsonDict = {}
    began = time.monotonic()
    learned = judged = 0
    for index, unseen in enumerate(_SPEAKERS):
        held = _SPEAKERS[(index + 1) % len(_SPEAKERS)]
        known = [one for one in spoken if one.speaker not in (unseen, held)]
        asked = [one for one in spoken if one.speaker == unseen]
        learned, judged = len(known), len(asked)
        true = [one.name for one in asked]
        always = labels.constant_name([one.name for one in known], sound.NAMES)
        constant[unseen] = labels.letter_error([always] * len(true), true)
        classifier = labels.FrameClassifier(
            {
                name: np.concatenate([one.frames for one in known if one.name == name])
                for name in sound.NAMES
            }
        )
        frames[unseen] = labels.letter_error([classifier.label(one.frames) for one in asked], true)
    return _better_chosen(
        [
            {
                "part": "speech/unseen",
                "name": name,
                "unit": "letter error",
                "value": math.fsum(errors.values()) / len(errors),
                "of": errors,
                "learned": learned,
                "judged": judged,
                "data": "fsdd",
                "seconds": (time.monotonic() - began) / 2,
            }
            for name, errors in (
                ("always the same name", constant),
                ("the likeliest of ten names by single frames", frames),
            )
        ]
    )


def _listops() -> Fits:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [
                sys.executable,
                "-B",
                str(ROOT / "scripts" / "make_listops.py"),
                folder,
                *_LISTOPS.split(),
            ],
            check=True,
            capture_output=True,
        )
        learned, judged = (
            [line.split("\t") for line in (pathlib.Path(folder) / name).read_text().splitlines()]
            for name in ("train.tsv", "test.tsv")
        )
    return listops_fits(learned, judged)


def listops_fits(learned: list[list[str]], judged: list[list[str]]) -> Fits:
    """Accuracy of the commonest label, and of that after the outermost operator."""
    answers = [label for label, _ in learned]
    cues = labels.commonest_after([text[0] for _, text in learned], answers)
    most = labels.commonest(answers)
    counts = len(learned), len(judged)

    def right(say: Callable[[str], str]) -> float:
        return sum(say(text) == label for label, text in judged) / len(judged)

    return [
        _fit("long/listops", "commonest label", "accuracy", lambda: right(lambda _: most), *counts)
        | {"chosen": False},
        _fit(
            "long/listops",
            "commonest label of the outermost operator",
            "accuracy",
            lambda: right(lambda text: cues.get(text[0], most)),
            *counts,
        )
        | {"chosen": True},
    ]


# --- Generated rows -----------------------------------------------------------


def chance_fits() -> Fits:
    """In expectation over the generators' rows: nothing is drawn."""
    found: Fits = []
    for part, seq_len in (("copy/copy", 64), ("maps/copy", 32), ("families/copy", 64)):
        nats, accuracy = copy_chance(seq_len)
        found.append(
            {
                "part": part,
                "name": "counts of order 0",
                "unit": "nats",
                "value": nats,
                "accuracy": accuracy,
                "chosen": True,
            }
        )
    for page, pairs in (
        ("maps", (8,)),
        ("recall", (4, 8, 16, 32, 64)),
        ("families", (3, 8, 16, 32)),
    ):
        found += [
            {
                "part": f"{page}/recall",
                "name": "any value of the row",
                "unit": "nats",
                "value": math.log(n),
                "accuracy": 1 / n,
                "pairs": n,
                "chosen": True,
            }
            for n in pairs
        ]
    return [{**one, "learned": 0, "judged": 0, "data": "", "seconds": 0.0} for one in found]


def run(settings: Settings, progress: Progress) -> JsonDict:
    """The fits of all pages at their cpu size; the others have no baselines."""
    if settings.size != "cpu":
        raise ExperimentError(f"baselines: --size: want cpu, got {settings.size}", 2)
    plays = settings.data_file("text-shakespeare", "input.txt").read_bytes()
    genome = _letters(settings.data_file("dna", "NC_008253.fna"))
    folder = settings.data("fsdd")
    archive = folder / "fsdd.tar.zst"
    # Rows and evaluated windows are those of experiments/earlier.py, maps.py and families.py.
    bits = "bits per byte"
    parts: dict[str, Callable[[], Fits]] = {
        "rows of 128": lambda: text_fits("earlier/text", plays, 128, 96, "text-shakespeare", bits),
        "rows of 64": lambda: text_fits("maps/text", plays, 64, 256, "text-shakespeare", bits),
        "genome": lambda: text_fits("families/dna", genome, 256, 96, "dna", bits),
        "stream": lambda: stream_fits("long/stream", genome, _STREAM, "dna"),
        "grey": lambda: _grey(settings),
        "colour": lambda: _colour(settings),
        "speech": lambda: speech_fits(sound.recordings(archive if archive.is_file() else folder)),
        "ListOps": _listops,
        "generated": chance_fits,
    }
    progress.plan(dict.fromkeys(parts, 10.0))
    fits: Fits = []
    for name, make in parts.items():
        with progress.part(name):
            fits += make()
    # families evaluates the rows of text that earlier does.
    fits += [fit | {"part": "families/text"} for fit in fits if fit["part"] == "earlier/text"]
    return {"seeds": [settings.seed], "fits": fits}


def _criteria(result: JsonDict) -> list[Criterion]:
    del result
    return []


def _page(result: JsonDict, figures: Figures) -> Page:
    del result, figures
    raise NotImplementedError("baselines stand on the pages of the models")


EXPERIMENT = Experiment(
    name="baselines",
    title="Trivial baselines",
    paper="beyond the paper",
    claim="A model has learned what its page is about where it beats a table of counts.",
    sources=("experiments/baselines", "scripts/make_listops.py"),
    run=run,
    criteria=_criteria,
    page=_page,
    attention=(),
    data=("mnist", "cifar10-lossless-4k", "fsdd", "dna", "text-shakespeare"),
    devices=("cpu",),
    minutes={"cpu": 2.0},
)
