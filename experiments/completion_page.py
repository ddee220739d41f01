"""The page of experiments/completion.py."""

from __future__ import annotations

import numpy as np

from experiments.core import (
    Criterion,
    Evidence,
    Figures,
    JsonDict,
    Learner,
    Page,
    Picture,
    Section,
    Table,
    number,
    unpack_images,
)
from experiments.core.scale import counted, parameters
from experiments.images_page import data_title

# Zalando's names of the classes of Fashion-MNIST, in their order.
_CLOTHES = (
    "T-shirt",
    "trousers",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)

# The models that draw, by size (n_layers, d_model, ... of experiments/images.py).
_MODELS = {
    "quick": "2 layers, width 32, pre-norm, GELU, no dropout",
    "cpu": "4 layers, width 128, pre-norm, GELU, no dropout",
    "full": "8 layers, width 256, post-norm, ReLU, dropout 0.1",
}

# A sample's half must be read as its class at least as often as midway between
# the better of the two controls and the true halves.
_MIDWAY = 0.5

_TRIED = (
    "the samples are drawn at temperature 1 from the models of `images` without "
    "selection; neither a lower temperature nor longer training was tried."
)


def criteria(result: JsonDict) -> list[Criterion]:
    """The claim rests on the images that linear attention completes. What must be
    exact is so by construction and a goal; softmax is the control."""
    kinds = result["measured"]["kinds"]
    done = [one["completed"] for one in kinds.values()]
    different = sum(one["given_bytes_different"] for one in done)
    given = sum(one["given_bytes"] for one in done)
    stepping = all(one["stepping_is_prefill"] for one in done)
    bits = ", ".join(
        f"{kind} {one['lower_half']['bits_per_dim']:.4f}" for kind, one in kinds.items()
    )
    return [
        Criterion(
            "given pixels are unchanged",
            "0 bytes differ",
            f"{different} of {given:,} bytes differ",
            different == 0,
            goal=True,
        ),
        Criterion(
            "sampling after prefill equals sampling after steps, bit for bit",
            "equal",
            "equal" if stepping else "different",
            stepping,
            goal=True,
        ),
        Criterion(
            "bits/dim of the true lower half given the upper",
            "reported",
            f"{bits} bits/dim",
            bool(kinds),
            reported=True,
        ),
        *(_alike(kind, one["judged"], result["size"]) for kind, one in kinds.items()),
    ]


def _alike(kind: str, judged: JsonDict, size: str) -> Criterion:
    """What the eye sees on the grids, as a number. Only linear's decides the claim."""
    name, reported = _name_of(kind), kind != "linear"
    part = f"{kind}'s completions look like the image's class"
    if not judged["images"] or size == "quick":
        why = "no labels" if not judged["images"] else "a smoke run"
        return Criterion(
            name,
            "reported" if reported else "midway between controls and true halves, or more",
            f"not measured: {why}",
            None,
            part=part,
            reported=reported,
        )
    least = max(judged["blank"], judged["another"])
    wanted = least + _MIDWAY * (judged["true"] - least)
    share, true, blank, another = (
        _percent(judged[one]) for one in ("samples", "true", "blank", "another")
    )
    got = (
        f"{share} of {judged['images']} (true halves {true}, blank {blank}, another class's "
        f"{another})"
    )
    if reported:
        return Criterion(name, "reported", got, True, part=part, reported=True)
    return Criterion(
        name,
        f"at least {_percent(wanted)}, midway between controls and true halves",
        got,
        judged["samples"] >= wanted,
        part=part,
        opposite=judged["samples"] <= least,
        evidence=[_evidence(kind, judged, least, wanted)],
    )


def _evidence(kind: str, judged: JsonDict, least: float, wanted: float) -> Evidence:
    """The better control is the trivial baseline. That images can be completed takes one
    model; what is drawn of each image is a replicate."""
    images = judged["images"]
    right = round(judged["samples"] * images)
    return Evidence(
        [Learner(kind, judged["samples"], least, higher=True)],
        margins=[1 - wanted] * right + [-wanted] * (images - right),
        unit="image",
    )


def _name_of(kind: str) -> str:
    return f"drawn halves that look like their class, {kind}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _class_names(data: str, labels: list[int]) -> str:
    """The classes of the picture's rows, for its caption."""
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
    rows = [
        [_upper(image, done["pixels"]), image, *samples]
        for image, samples in zip(true, drawn, strict=True)
    ]
    scale = max(1, 56 // measured["side"])
    return figures.images(
        f"completed-{kind}",
        rows,
        f"Images completed by the model with {kind} attention",
        f"{kind}: the given half, the true image, {measured['samples']} samples."
        + _class_names(measured["data"], measured["labels"]),
        scale=scale,
        row_gaps=(1, 2),
    )


def _sample_grid(measured: JsonDict, kind: str, figures: Figures) -> Picture:
    drawn = unpack_images(measured["kinds"][kind]["from_nothing"]["drawn"])
    rows = [list(drawn[start : start + 12]) for start in range(0, len(drawn), 12)]
    return figures.images(
        f"drawn-{kind}",
        rows,
        f"New images drawn by the model with {kind} attention",
        f"{kind}: the first {len(drawn)} new images, without selection.",
        scale=max(1, 56 // measured["side"]),
    )


def _bits_table(measured: JsonDict) -> Table:
    rows = []
    for kind, one in measured["kinds"].items():
        half, whole, judged = one["lower_half"], one["whole"], one["judged"]
        rows.append(
            [
                kind,
                f"{half['bits_per_dim']:.4f}",
                f"{half['standard_error']:.4f}",
                f"{whole['bits_per_dim']:.4f}",
                *(_share(judged.get(name)) for name in ("samples", "true", "blank", "another")),
                number(one["completed"]["images_a_second"]),
                number(one["from_nothing"]["images_a_second"]),
            ]
        )
    count = next(iter(measured["kinds"].values()))["lower_half"]["images"]
    return Table(
        [
            "attention",
            "bits/dim, lower half given the upper",
            "standard error",
            "bits/dim, whole image",
            "drawn halves like their class",
            "true halves",
            "blank halves",
            "halves of another class",
            "completions per second",
            "images per second",
        ],
        rows,
        f"bits/dim of the first {count:,} test images. Like their class: the lower half alone, "
        "classified by a vote of the 5 nearest lower halves of training images.",
    )


def _stepped(done: list[JsonDict], stepping: bool) -> str:
    """What the first images of each model were checked for."""
    same = "the same" if stepping else "**not** always the same"
    return (
        f"a sample is {same} whether its pixels were processed in steps or by prefill "
        f"(checked on the first {done[0]['checked']} images of each model)"
    )


def _share(value: float | None) -> str | None:
    return None if value is None else _percent(value)


def _alike_told(kinds: JsonDict) -> str:
    """What the vote says of the samples, in a sentence."""
    told = [
        f"{_percent(one['judged']['samples'])} of {kind}'s"
        for kind, one in kinds.items()
        if one["judged"]["images"]
    ]
    if not told:
        return ""
    one = next(iter(kinds.values()))["judged"]
    return (
        f"From the drawn half alone {' and '.join(told)} samples are classified as their "
        f"image's class, compared with {_percent(one['true'])} of true halves and "
        f"{_percent(one['another'])} of halves of another class. "
    )


# A share in words, to the nearest quarter.
_QUARTERS = ("few", "about a quarter", "about half", "about three quarters", "nearly all")


def _headline(result: JsonDict) -> str:
    """How many halves are legible, what the true ones cost, and what is not exact."""
    kinds = result["measured"]["kinds"]
    kind = "linear" if "linear" in kinds else next(iter(kinds))
    judged = kinds[kind]["judged"]
    if not judged["images"] or result["size"] == "quick":
        texts = ["the drawn halves were not classified"]
    else:
        texts = [
            f"{_percent(judged['samples'])} of the halves drawn with {kind} attention are "
            f"classified as their class (true halves {_percent(judged['true'])}): "
            f"{_QUARTERS[round(4 * judged['samples'])]} are legible"
        ]
    bits = ", ".join(
        f"{name} {one['lower_half']['bits_per_dim']:.3f}" for name, one in kinds.items()
    )
    texts.append(f"the true lower half takes {bits} bits/dim")
    done = [one["completed"] for one in kinds.values()]
    if different := sum(one["given_bytes_different"] for one in done):
        texts.append(f"{different:,} given bytes changed")
    if not all(one["stepping_is_prefill"] for one in done):
        texts.append("stepping and prefill differ")
    return "; ".join(texts)


def _theirs_of(size: str) -> str:
    """The paper's model, where ours is another."""
    return "" if size == "full" else f"{_MODELS['full']}, "


def _figure_of(kinds: JsonDict) -> str:
    judged = kinds["linear"]["judged"] if "linear" in kinds else {"images": 0}
    return (
        ""
        if not judged["images"]
        else (
            f"{_percent(judged['samples'])} of the drawn halves look like their class, "
            f"{_percent(judged['true'])} of true halves"
        )
    )


def page(result: JsonDict, figures: Figures) -> Page:
    """All sections; works for one kind, too."""
    measured = result["measured"]
    kinds = measured["kinds"]
    completed = {kind: _completion_grid(measured, kind, figures) for kind in kinds}
    drawn = {kind: _sample_grid(measured, kind, figures) for kind in kinds}
    done = [one["completed"] for one in kinds.values()]
    given = sum(one["given_bytes"] for one in done)
    different = sum(one["given_bytes_different"] for one in done)
    exact = (
        "Every given pixel is unchanged" if different == 0 else f"{different:,} given bytes changed"
    )
    stepping = all(one["stepping_is_prefill"] for one in done)
    side = measured["side"]
    updates = max(one["updates"] for one in kinds.values())
    scale = [
        parameters(counted(result, "completion")),
        f"{updates:,} updates",
        f"images of {side} x {side} pixels",
        "one run per variant",
    ]
    return Page(
        short="Images are completed",
        figure=_figure_of(kinds),
        scale=", ".join(text for text in scale if text),
        headline=_headline(result),
        agrees=f"{_alike_told(kinds)}The paper shows such images without numbers; the quality "
        "of ours depends on the size of the model and the length of its training. "
        f"{exact} ({given:,} bytes compared), and {_stepped(done, stepping)}.",
        differences=[
            f"data: {data_title(measured['data'])}, {side} x {side} pixels (MNIST, 28 x 28)",
            f"models: those of the experiment `images`, {_MODELS[result['size']]}, "
            f"{updates:,} updates ({_theirs_of(result['size'])}250 epochs)",
            "Figure 4 of the paper completes CIFAR-10, which is not repeated here",
        ],
        sections=[
            Section("bits/dim", [_bits_table(measured)]),
            Section("Completions", list(completed.values())),
            Section(
                "New images",
                [
                    "No criterion evaluates these images. The first byte of an image is not "
                    "modelled: it is 0 here.",
                    *drawn.values(),
                ],
            ),
        ],
        theirs="pictures without numbers: MNIST (Figure 3), CIFAR-10 (Figure 4)",
        picture=completed.get("linear") or next(iter(completed.values())),
        tried={_name_of("linear"): _TRIED} if "linear" in kinds else {},
    )
