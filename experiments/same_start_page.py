"""The page of same_start, from its stored result."""

from __future__ import annotations

from experiments.core import (
    Criterion,
    Figures,
    JsonDict,
    Page,
    Panel,
    Picture,
    Section,
    Series,
    Table,
    number,
)
from experiments.core.scale import lasting, parameters

_START = 1e-5  # nats, of the first loss: float32 holds a loss of 2.4 to 2e-7
_EARLY, _EARLY_APART = 100, 1e-3  # updates, nats: rounding has not grown far yet
_ROUNDINGS = 3.0  # times what rounding by itself makes of the peer
_RUNS = {
    "peer": ("fast-transformers", "torch's", "peer"),
    "tarn": ("tarn", "torch's", "linear"),
    "tarn_radam": ("tarn, own RAdam", "tarn's", "cached"),
    "peer_moved": ("moved weights", "torch's", "naive"),
}
_DRAWN = ("tarn", "tarn_radam", "peer_moved")
_FLOOR = 1e-8  # a difference of zero has no place on a log axis


def _runs(result: JsonDict) -> dict[str, JsonDict]:
    return result["measured"].get("runs", {})


def _most(result: JsonDict, run: str, last: int | None = None) -> float | None:
    """The largest difference from fast-transformers' loss, of the first `last` updates."""
    runs = _runs(result)
    return max(runs[run]["differences"][:last]) if run in runs else None


def _start(result: JsonDict, run: str) -> float | None:
    return _most(result, run, 1)


def criteria(result: JsonDict) -> list[Criterion]:
    """The first loss is measured at every size, the course of training from the
    cpu size on: ten updates tell nothing. How far runs may differ is measured
    too: fast-transformers against itself from weights one rounding away."""
    long = result["size"] != "quick"
    lines = [
        Criterion.at_most(
            "first loss, tarn against fast-transformers",
            _start(result, "tarn"),
            _START,
            "nats",
            part="the same function",
        )
    ]
    for run, part in (
        ("tarn", "the same course"),
        ("tarn_radam", "the same course with tarn's optimiser"),
    ):
        text = _RUNS[run][0]
        early = _most(result, run, _EARLY) if long else None
        lines.append(
            Criterion.at_most(
                f"{text}: largest difference of a loss within {_EARLY} updates",
                early,
                _EARLY_APART,
                "nats",
                part=part,
            )
        )
        most, moved = _most(result, run), _most(result, "peer_moved")
        ratio = None
        if long and most is not None and moved is not None:
            ratio = most / max(moved, _FLOOR)
        lines.append(
            Criterion.at_most(
                f"{text}: largest difference of all, over what rounding makes of fast-transformers",
                ratio,
                _ROUNDINGS,
                "x",
                part=part,
            )
        )
    worst = None
    if long and _runs(result):
        worst = max(run["losses"][-1] / run["losses"][0] for run in _runs(result).values())
    # Losses that stay where they began would agree whatever the libraries compute.
    lines.append(
        Criterion.at_most(
            "last loss over the first, worst run",
            worst,
            0.9,
            "x",
            part="a course that leads anywhere",
        )
    )
    return [*lines, *(_apart(result, run) for run in _DRAWN)]


def _apart(result: JsonDict, run: str) -> Criterion:
    """The largest difference in nats, for reference only."""
    most = _most(result, run) if result["size"] != "quick" else None
    return Criterion(
        f"{_RUNS[run][0]}: largest difference from fast-transformers' loss",
        "reported",
        "not measured" if most is None else f"{most:.2g} nats",
        None if most is None else True,
        reported=True,
    )


# --- The page -----------------------------------------------------------------


def _curve(values: list[float], most: int = 250) -> list[tuple[float, float]]:
    """Means over bins of updates."""
    size = max(1, -(-len(values) // most))
    bins = [values[i : i + size] for i in range(0, len(values), size)]
    return [(size * (i + 1), sum(one) / len(one)) for i, one in enumerate(bins)]


def _highest(values: list[float]) -> list[tuple[float, float]]:
    """The largest so far."""
    points, most = [], 0.0
    for step, value in enumerate(values, 1):
        most = max(most, value)
        points.append((step, max(most, _FLOOR)))
    return points


def _picture(result: JsonDict, figures: Figures) -> Picture:
    runs = _runs(result)
    losses = [
        Series(_RUNS[name][0], _curve(runs[name]["losses"]), _RUNS[name][2], dash=dash)
        for name, dash in (("peer", 0), ("tarn", 1))
    ]
    apart = [
        Series(_RUNS[name][0], _highest(runs[name]["differences"]), _RUNS[name][2])
        for name in _DRAWN
    ]
    return figures.lines(
        "losses",
        [
            Panel(losses, "updates", "loss, nats", "Losses, on top of each other"),
            Panel(
                apart,
                "updates",
                "largest difference so far, nats",
                "Distance between them",
                log_y=True,
            ),
        ],
        "Losses of both libraries from the same weights, and their difference",
        "Left: the loss of each update before its step. Right: the largest difference so far "
        "from "
        "fast-transformers' loss; moved weights: fast-transformers against itself, each weight "
        "moved to the neighbouring float32 number.",
    )


def _table(result: JsonDict) -> Table:
    rows = []
    for name, run in _runs(result).items():
        text, optimiser, _ = _RUNS[name]
        text = f"fast-transformers, {text}" if name == "peer_moved" else text
        differences = run["differences"]
        rows.append(
            [
                text,
                optimiser,
                f"{run['losses'][-1]:.6f}",
                *(
                    None if name == "peer" else f"{one:.1e}"
                    for one in (
                        differences[0],
                        max(differences[:50]),
                        max(differences),
                        differences[-1],
                    )
                ),
                number(1000 * run["seconds"] / len(run["losses"])),
            ]
        )
    return Table(
        [
            "run",
            "RAdam",
            "last loss, nats",
            "difference at first",
            "within 50 updates",
            "within all",
            "at the end",
            "ms per update",
        ],
        rows,
        "Differences from the first row, in nats. Times include drawing the rows and are not a "
        "benchmark: each run was made once, one after the other.",
    )


def _agrees(result: JsonDict) -> str:
    most, moved = _most(result, "tarn"), _most(result, "peer_moved")
    if result["size"] == "quick" or most is None or moved is None:
        return "This size is too short to say."
    start = _start(result, "tarn")
    first = f"differ by {start:.1e} nats" if start else "are equal to all stored digits"
    text = (
        f"From the same weights the first losses {first}, and all "
        f"{number(result['measured']['asked']['steps'])} differ by at most {most:.1e} nats. "
    )
    if most <= _ROUNDINGS * moved:
        text += (
            f"This is the effect of rounding: fast-transformers differs from itself by "
            f"{moved:.1e} if each weight is moved to the neighbouring float32 number."
        )
    else:
        text += (
            f"Rounding alone explains {moved:.1e} of it: fast-transformers differs from "
            "itself by this much if each weight is moved to the neighbouring float32 number."
        )
    return text


def _missing(result: JsonDict) -> Page:
    """The page where the environment with the peer was not there."""
    return Page(
        headline="not measured",
        agrees=f"Not measured: {result['measured']['missing']}.",
        differences=["the paper does not compare implementations"],
        sections=[],
        theirs="none",
    )


def page(result: JsonDict, figures: Figures) -> Page:
    if not _runs(result):
        return _missing(result)
    measured, asked = result["measured"], result["measured"]["asked"]
    picture = _picture(result, figures)
    most = _most(result, "tarn")
    headline = (
        f"losses at most {most:.1e} nats apart within {number(asked['steps'])} updates, "
        + (f"{_start(result, 'tarn'):.1e}" if _start(result, "tarn") else "equal")
        + " at first"
    )
    about = (
        f"The copy task in rows of {asked['seq_len']}, batch {asked['batch']}: "
        f"{asked['n_layers']} "
        f"layers, {asked['n_heads']} heads, D {asked['d_model']}, "
        f"{number(measured['parameters'])} parameters. fast-transformers "
        f"{measured['peer_version']} and tarn build the encoder through the same calls; its "
        "weights are copied by name. Embedding, positions, head, rows and loss are the same "
        "code, in one process. Dropout is 0, because the libraries draw their random numbers "
        "differently. fast-transformers is built by pip (scripts/bench_setup.sh), whose flags "
        "name no instruction set, so its causal product runs on SSE2. The builds for specific "
        "instruction sets, which the benchmarks also have, are not used here."
    )
    apart = (
        "Two programs that add the same numbers in a different order round differently, and "
        "training amplifies such differences, because each update starts from slightly "
        "different weights. Neither run is closer to exact arithmetic. Two terms of linear "
        "attention are computed differently. fast-transformers adds 1e-6 to the denominator; "
        "tarn by default adds nothing. And for x below 0, tarn computes elu(x) + 1 as exp(x), "
        "without cancellation, while fast-transformers subtracts 1 and adds it again."
    )
    scale = [
        parameters([measured["parameters"]]),
        f"{number(asked['steps'])} updates",
        lasting([run["seconds"] for run in _runs(result).values()], "a run"),
        "one seed",
    ]
    return Page(
        short="tarn trains as the authors' library does",
        figure=headline,
        scale=", ".join(scale),
        headline=headline,
        agrees=_agrees(result),
        picture=picture,
        theirs="none",
        differences=[
            "the paper does not compare implementations; model, rows and optimiser "
            "are those of its copy task"
            + ("" if result["size"] == "full" else ", smaller and shorter"),
            "dropout 0 instead of 0.1, and no clipping of gradients",
        ],
        sections=[
            Section("Both libraries", [about, picture, _table(result)]),
            Section("Why they drift apart", [apart]),
        ],
        tried={
            one.name: "the runs share rows, loss, optimiser and weights; the page also "
            "shows the effect of rounding alone."
            for one in criteria(result)
        },
    )
