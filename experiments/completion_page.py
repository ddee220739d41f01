"""The page of experiments/completion.py."""

from __future__ import annotations

import numpy as np

from experiments.core import Figures, JsonDict, Page, Picture, Section, Table, number, unpack_images
from experiments.images_page import data_title

# Zalando's names of the classes of Fashion-MNIST, in their order.
_CLOTHES = ("T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker",
            "bag", "ankle boot")

_TRIED = ("the samples are drawn at temperature 1 from the models of `images` and none is "
          "picked; neither a lower temperature nor a longer training was tried.")


def _class_names(data: str, labels: list[int]) -> str:
    """Row by row, for a caption."""
    if not labels:
        return ""
    words = [_CLOTHES[i] if data == "fashion-mnist" and i < 10 else str(i) for i in labels]
    return " Rows: " + ", ".join(words) + "."


def _upper(image: np.ndarray, pixels: int) -> np.ndarray:
    """The given pixels on grey."""
    shown = np.full_like(image, 128).reshape(-1)
    shown[:pixels] = image.reshape(-1)[:pixels]
    return shown.reshape(image.shape)


def _completion_grid(measured: JsonDict, kind: str, figures: Figures) -> Picture:
    done = measured["kinds"][kind]["completed"]
    true, drawn = unpack_images(done["true"]), unpack_images(done["drawn"])
    rows = [[_upper(image, done["pixels"]), image, *samples]
            for image, samples in zip(true, drawn, strict=True)]
    scale = max(1, 56 // measured["side"])
    return figures.images(
        f"completed-{kind}", rows, f"Images completed by the model with {kind} attention",
        f"{kind}: what is given, the true image, {measured['samples']} samples."
        + _class_names(measured["data"], measured["labels"]), scale=scale, row_gaps=(1, 2))


def _sample_grid(measured: JsonDict, kind: str, figures: Figures) -> Picture:
    drawn = unpack_images(measured["kinds"][kind]["from_nothing"]["drawn"])
    rows = [list(drawn[start:start + 12]) for start in range(0, len(drawn), 12)]
    return figures.images(
        f"drawn-{kind}", rows, f"Images drawn from nothing by the model with {kind} attention",
        f"{kind}: drawn from nothing, the first {len(drawn)}, none picked.",
        scale=max(1, 56 // measured["side"]))


def _bits_table(measured: JsonDict) -> Table:
    rows = []
    for kind, one in measured["kinds"].items():
        half, whole, alike = one["lower_half"], one["whole"], one["classes"]
        rows.append([
            kind, f"{half['bits_per_dim']:.4f}", f"{half['standard_error']:.4f}",
            f"{whole['bits_per_dim']:.4f}", _share(alike["samples_alike"]),
            _share(alike["true_alike"]), number(one["completed"]["images_a_second"]),
            number(one["from_nothing"]["images_a_second"])])
    count = next(iter(measured["kinds"].values()))["lower_half"]["images"]
    return Table(
        ["attention", "bits/dim, lower half given the upper", "standard error",
         "bits/dim, whole image", "samples like their class", "true images like their class",
         "completions a second", "images a second"], rows,
        f"Of the first {count:,} test images. Like their class: by the nearest training images.")


def _stepped(done: list[JsonDict], stepping: bool) -> str:
    """What the first images of each model were checked for."""
    same = "the same" if stepping else "**not** always the same"
    return (f"a sample is {same} whether its pixels were stepped through or prefilled (checked on "
            f"the first {done[0]['checked']} images of each model)")


def _share(value: float | None) -> str | None:
    return None if value is None else f"{value:.0%}"


def page(result: JsonDict, figures: Figures) -> Page:
    """All sections; works for one kind, too."""
    measured = result["measured"]
    kinds = measured["kinds"]
    completed = {kind: _completion_grid(measured, kind, figures) for kind in kinds}
    drawn = {kind: _sample_grid(measured, kind, figures) for kind in kinds}
    done = [one["completed"] for one in kinds.values()]
    given = sum(one["given_bytes"] for one in done)
    different = sum(one["given_bytes_different"] for one in done)
    halves = {kind: one["lower_half"]["bits_per_dim"] for kind, one in kinds.items()}
    bits = ", ".join(f"{kind} {value:.3f}" for kind, value in halves.items())
    exact = ("Every given pixel comes back as it was" if different == 0
             else f"{different:,} given bytes changed")
    stepping = all(one["stepping_is_prefill"] for one in done)
    side = measured["side"]
    updates = max(one["updates"] for one in kinds.values())
    return Page(
        headline=f"{exact[0].lower()}{exact[1:]}"
        + ("" if stepping else "; stepping and prefill differ") + "; the true lower half costs "
        f"{bits} bits/dim",
        agrees=f"{exact} ({given:,} bytes compared), and {_stepped(done, stepping)}. The paper shows such images without a figure; how "
        "good ours look depends on the size of the model and the length of its training.",
        differences=[
            f"data: {data_title(measured['data'])}, {side} x {side} pixels (MNIST, 28 x 28)",
            f"models: those of the experiment `images`, {updates:,} updates (250 epochs)",
            "figure 4 of the paper completes CIFAR-10: not repeated here",
        ],
        sections=[
            Section("bits/dim", [_bits_table(measured)]),
            Section("Completions", list(completed.values())),
            Section("Images from nothing", [
                "The first byte of an image is not modelled: it is 0 here.", *drawn.values()]),
        ],
        theirs="images without a figure: MNIST (figure 3), CIFAR-10 (figure 4)",
        picture=completed.get("linear") or next(iter(completed.values())),
        tried={f"samples look like their class, {kind}": _TRIED for kind in kinds},
    )
