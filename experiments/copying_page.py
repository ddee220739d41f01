"""The page of the copy task, from its stored result."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

from experiments.core import (
    Criterion,
    Evidence,
    Figures,
    JsonDict,
    Learner,
    Page,
    Panel,
    Section,
    Series,
    Table,
    learner,
    number,
    paired,
)
from experiments.core.baselines import CAPTION, best
from experiments.core.scale import counted, trainings

_NAMES = {"linear": "linear", "softmax": "softmax", "reformer": "reformer"}
_WANTED = 0.99  # masked accuracy
_SAME = 1.5  # times softmax's loss
_AS_FAST = 1.5  # times softmax's updates
_LEARNED = 0.5  # nats: from there on a curve that rises is one that goes back
_DECAY_AT = 5 / 7  # of the updates at the cpu size, experiments/copying.py


def _runs(result: JsonDict, kind: str) -> list[JsonDict]:
    return [run for run in result["measured"]["runs"] if run["kind"] == kind]


def _last(run: JsonDict, key: str) -> float:
    return float(run["held_out"][-1][key])


def _final_loss(result: JsonDict, kind: str) -> float | None:
    """The median of the seeds' last held-out losses; None where the kind was not run."""
    runs = _runs(result, kind)
    return statistics.median(_last(run, "loss") for run in runs) if runs else None


def _reached(run: JsonDict) -> int | None:
    """The first evaluation with 99 %, in updates."""
    return next((int(one["step"]) for one in run["held_out"] if one["accuracy"] >= _WANTED), None)


def _learner(result: JsonDict, kind: str) -> Learner:
    """A kind's losses, with counts of single symbols."""
    trivial = best(result, "copy/copy")
    return learner(kind, _runs(result, kind), "loss", trivial.value if trivial else None)


def _compared(
    result: JsonDict,
    margin: Callable[[JsonDict, JsonDict], float | None],
    need: float = math.inf,
    slack: float = 0.0,
) -> list[Evidence]:
    """Linear, which the claim says is no worse, and softmax, seed by seed. Training on turns
    no comparison of what came before the end."""
    linear, softmax = (_runs(result, kind) for kind in ("linear", "softmax"))
    return [
        Evidence(
            [_learner(result, "linear")],
            [_learner(result, "softmax")],
            paired(linear, softmax, margin),
            slack,
            need=need,
        )
    ]


def _all_seeds(result: JsonDict, kind: str) -> Criterion:
    name = f"{kind}: masked accuracy of at least 99 %"
    part = f"{kind} solves the task"
    runs = _runs(result, kind)
    if result["size"] == "quick" or not runs:
        return Criterion(name, "3 of 3 seeds", "not measured", None, part=part)
    right = [_last(run, "accuracy") for run in runs]
    good = sum(one >= _WANTED for one in right)
    got = f"{good} of {len(runs)}, at least {100 * min(right):.2f} %"
    trivial = best(result, "copy/copy")
    model = learner(kind, runs, "accuracy", trivial.accuracy if trivial else None, higher=True)
    return Criterion(
        name,
        "3 of 3 seeds",
        got,
        good == len(runs) and len(runs) >= 3,
        part=part,
        evidence=[Evidence([model], seeds=len(runs), need=_WANTED - min(right))],
    )


def _loss_criterion(result: JsonDict) -> Criterion:
    """The claim's "same loss", judged by medians over the seeds: a mean would be
    that of the worst seed alone."""
    name = "median final loss of linear over softmax's, held out"
    part = "softmax's final loss"
    linear, softmax = _final_loss(result, "linear"), _final_loss(result, "softmax")
    if result["size"] == "quick" or linear is None or softmax is None:
        return Criterion.at_most(name, None, _SAME, "x", part=part)
    return Criterion(
        name,
        f"at most {_SAME:g}x",
        f"{number(linear / softmax)}x ({linear:.5f} over {softmax:.5f})",
        linear <= _SAME * softmax,
        part=part,
        opposite=linear > 2 * softmax,
        evidence=_compared(
            result,
            lambda ours, theirs: math.log(_SAME * _last(theirs, "loss") / _last(ours, "loss")),
            abs(_SAME * softmax - linear),
            math.log(_SAME),
        ),
    )


def _updates_to_solve(result: JsonDict, kind: str) -> float | None:
    """Median over the seeds, one that does not get there counted as never; None
    where the kind was not run."""
    found = [_reached(run) for run in _runs(result, kind)]
    if not found:
        return None
    return statistics.median(math.inf if one is None else one for one in found)


def _speed(result: JsonDict) -> float | None:
    """Updates to 99 % of linear over softmax's; None where softmax does not get there."""
    linear, softmax = (_updates_to_solve(result, kind) for kind in ("linear", "softmax"))
    if linear is None or softmax is None or softmax == math.inf:
        return None
    return linear / softmax


def _speed_criterion(result: JsonDict) -> Criterion:
    """The claim's "equally fast": the final loss alone would not tell one that comes late."""
    name, part = "updates to 99 %, linear over softmax, medians", "equally fast"
    ratio = _speed(result) if result["size"] != "quick" else None
    if ratio == math.inf:
        return Criterion(
            name,
            f"at most {_AS_FAST:g}x",
            "linear does not reach 99 %",
            False,
            part=part,
            opposite=True,
            evidence=[Evidence(seeds=len(_runs(result, "linear")))],
        )
    evidence = [] if ratio is None else _compared(result, _updates_apart, slack=math.log(_AS_FAST))
    return Criterion.at_most(
        name,
        ratio,
        _AS_FAST,
        "x",
        part=part,
        evidence=evidence,
        opposite=ratio is not None and ratio > _AS_FAST,
    )


def _updates_apart(ours: JsonDict, theirs: JsonDict) -> float | None:
    """The logarithm of the updates that linear may need for 99 % over those it needs."""
    linear, softmax = _reached(ours), _reached(theirs)
    return None if not linear or not softmax else math.log(_AS_FAST * softmax / linear)


def _rise(run: JsonDict) -> float | None:
    """The largest of the held-out loss from one evaluation to the next, 0 where it
    only falls, once it was below _LEARNED; None where it never was, or at the end."""
    losses = [float(one["loss"]) for one in run["held_out"]]
    first = next((i for i, loss in enumerate(losses) if loss < _LEARNED), len(losses))
    rises = [b - a for a, b in zip(losses[first:], losses[first + 1 :])]
    return max(0.0, *rises) if rises else None


def _rises(result: JsonDict, kind: str) -> float | None:
    """Median over the seeds; None where one of them has none."""
    found = [_rise(run) for run in _runs(result, kind)]
    known = [one for one in found if one is not None]
    return statistics.median(known) if known and len(known) == len(found) else None


def _smooth_criterion(result: JsonDict) -> Criterion:
    """The claim's "equally smooth": the paper's figure shows linear the smoothest."""
    name = (
        "largest rise of the held-out loss between two evaluations once it was below "
        f"{_LEARNED:g}, medians"
    )
    wanted, part = "linear at most softmax's", "equally smooth"
    linear, softmax = _rises(result, "linear"), _rises(result, "softmax")
    if result["size"] == "quick" or linear is None or softmax is None:
        return Criterion(name, wanted, "not measured", None, part=part)
    return Criterion(
        name,
        wanted,
        f"{linear:.4f} against {softmax:.4f} nats",
        linear <= softmax,
        part=part,
        opposite=linear > 2 * softmax,
        evidence=_compared(result, _rises_apart),
    )


def _rises_apart(ours: JsonDict, theirs: JsonDict) -> float | None:
    linear, softmax = _rise(ours), _rise(theirs)
    return None if linear is None or softmax is None else softmax - linear


def _at_reformers_end(result: JsonDict) -> tuple[int, list[float]] | None:
    """Updates of the shortest run of the reformer, and median losses of reformer,
    linear and softmax after so many; None where one of them was not evaluated
    there."""
    ends = [int(run["held_out"][-1]["step"]) for run in _runs(result, "reformer")]
    values = []
    for kind in ("reformer", "linear", "softmax"):
        there = [
            one["loss"]
            for run in _runs(result, kind)
            for one in run["held_out"]
            if ends and int(one["step"]) == min(ends)
        ]
        if not there:
            return None
        values.append(statistics.median(there))
    return min(ends), values


def _reformer_criterion(result: JsonDict) -> Criterion:
    """Figure 2 shows LSH attention above both, at every number of updates. Reported
    alone: its run is shorter than the others', and its rate drops earlier."""
    name = "held-out loss of reformer, with the medians of linear and softmax"
    found = _at_reformers_end(result)
    if result["size"] == "quick" or found is None:
        return Criterion(name, "reported", "not measured", None, reported=True)
    _, (reformer, *others) = found
    return Criterion(
        name,
        "reported",
        f"{reformer:.4f}; {others[0]:.4f} and {others[1]:.4f}: {_reformers_run(result)}",
        True,
        reported=True,
    )


def _reformers_run(result: JsonDict) -> str:
    """The seeds and updates that the reformer's figures rest on, in words."""
    runs = _runs(result, "reformer")
    seeds = "one seed" if len(runs) == 1 else f"{len(runs)} seeds"
    solved = all(_reached(run) is not None for run in runs)
    updates = min(int(run["held_out"][-1]["step"]) for run in runs)
    return f"{seeds}, {updates:,} updates" + ("" if solved else ", before convergence")


def criteria(result: JsonDict) -> list[Criterion]:
    return [
        _all_seeds(result, "linear"),
        _all_seeds(result, "softmax"),
        _loss_criterion(result),
        _speed_criterion(result),
        _smooth_criterion(result),
        _reformer_criterion(result),
    ]


def _kinds(result: JsonDict) -> list[str]:
    return [kind for kind in _NAMES if _runs(result, kind)]


def _curves(result: JsonDict, x: str) -> list[Series]:
    """A line a kind, the median of its seeds' held-out losses at each evaluation,
    and the range of the seeds around it."""
    lines = []
    for kind in _kinds(result):
        points, band = [], []
        for row in zip(*(run["held_out"] for run in _runs(result, kind))):
            place = statistics.median(one[x] for one in row)
            losses = [one["loss"] for one in row]
            points.append((place, statistics.median(losses)))
            band.append((place, min(losses), max(losses)))
        lines.append(Series(_NAMES[kind], points, kind, band=band))
    trivial = best(result, "copy/copy")
    return lines + (trivial.line(lines) if trivial else [])


def _table(result: JsonDict) -> Table:
    rows = []
    for kind in _kinds(result):
        for run in _runs(result, kind):
            rows.append(
                [
                    _NAMES[kind],
                    str(run["seed"]),
                    f"{100 * _last(run, 'accuracy'):.2f}",
                    f"{_last(run, 'loss'):.4f}",
                    _reached(run),
                    number(1000 * run["seconds"] / run["updates"]),
                    number(run["seconds"]),
                    number(run["cpu_seconds"]),
                ]
            )
    trivial = best(result, "copy/copy")
    if trivial:
        accuracy = None if trivial.accuracy is None else f"{100 * trivial.accuracy:.2f}"
        rows.append([trivial.title, None, accuracy, f"{trivial.value:.4f}", *[None] * 4])
    return Table(
        [
            "attention",
            "seed",
            "accuracy, %",
            "loss, nats",
            "updates to 99 %",
            "ms per update",
            "seconds",
            "CPU seconds",
        ],
        rows,
        "Accuracy and loss of held-out rows after the last update; updates to 99 % at the "
        "first evaluation that reaches it. Seconds are measured by the trainer and include "
        "evaluations.",
    )


def _figure_of(result: JsonDict) -> str:
    speed = _speed(result) if result["size"] != "quick" else None
    return "" if speed in (None, math.inf) else f"{speed:.2g}x softmax's updates to 99 %"


def _headline(result: JsonDict) -> str:
    runs = _runs(result, "linear")
    if not runs:
        return "linear attention was not run"
    text = (
        f"linear reaches {100 * min(_last(run, 'accuracy') for run in runs):.2f} % "
        f"accuracy in {len(runs)} of {len(runs)} seeds, median loss "
        f"{_final_loss(result, 'linear'):.5f}"
    )
    softmax = _final_loss(result, "softmax")
    text += "" if softmax is None else f" (softmax {softmax:.5f})"
    speed = _speed(result) if result["size"] != "quick" else None
    return text + (
        ""
        if speed in (None, math.inf)
        else f"; it needs {speed:.2g} times softmax's updates to 99 %"
    )


def _agrees(result: JsonDict) -> str:
    linear, softmax = _final_loss(result, "linear"), _final_loss(result, "softmax")
    if result["size"] == "quick" or linear is None or softmax is None:
        return "This size is too short to say."
    ratio = linear / softmax
    text = f"Linear attention's median held-out loss is {number(ratio, 2)} times softmax's"
    if all(_all_seeds(result, kind).holds for kind in ("linear", "softmax")):
        text += "; both label more than 99 % correctly, and both losses are close to zero"
    return " ".join(
        [
            f"{text}.",
            *_told_of_speed(result),
            *_told_of_smoothness(result),
            *_told_of_reformer(result),
        ]
    )


def _told_of_speed(result: JsonDict) -> list[str]:
    times = _speed(result)
    if times is None:
        return []
    if times == math.inf:
        return ["Softmax reaches 99 %; linear attention does not in most seeds."]
    steps = [one["step"] for one in _runs(result, "linear")[0]["held_out"]]
    between = f", evaluated every {steps[1] - steps[0]:,} updates" if len(steps) > 1 else ""
    return [f"It needs {times:.2g} times softmax's updates to 99 % (medians{between})."]


def _told_of_smoothness(result: JsonDict) -> list[str]:
    """The paper's "linear the smoothest", by the criterion."""
    one = _smooth_criterion(result)
    if one.holds is None:
        return []
    word = (
        "as smooth as softmax's"
        if one.holds
        else ("less smooth than softmax's" if one.opposite else "not quite as smooth as softmax's")
    )
    seen = "as in the paper" if one.holds else "unlike in the paper"
    return [f"Its curve is {word}, {seen}: the largest rise between two evaluations is {one.got}."]


def _told_of_reformer(result: JsonDict) -> list[str]:
    found = _at_reformers_end(result)
    if found is None:
        return []
    updates, (reformer, *others) = found
    if reformer > max(others):
        place = "above both, as in the paper"
    elif reformer < min(others):
        place = "below both, unlike in the paper"
    else:
        place = "between the two; in the paper it is above both"
    drop = "" if result["size"] != "cpu" else f", with the rate lowered at {_drop(updates):,}"
    return [
        f"After {updates:,} updates reformer's loss is {reformer:.4f}, {place}. Its figure "
        f"({_reformers_run(result)}{drop}) is shown for reference only."
    ]


def _drop(updates: int) -> int:
    """The update at which the rate drops to a tenth, at the cpu size."""
    return round(_DECAY_AT * updates)


def _tried(result: JsonDict) -> dict[str, str]:
    """What was tried for a criterion, by its name; the page prints it where one is missed."""
    if result["size"] != "cpu":
        return {}
    text = (
        "rate, clipping and dropout are the paper's and the same for all variants (with "
        "dropout of attention weights where they exist). In an earlier, shorter run the "
        "losses of linear and softmax attention were further apart."
    )
    return {one.name: text for one in criteria(result)}


def _updates(result: JsonDict, kind: str) -> str:
    """The number of a kind's updates and where the rate drops, in words."""
    runs = _runs(result, kind)
    if not runs:
        return "none"
    updates = runs[0]["updates"]
    drop = f" with the rate lowered at {_drop(updates):,}" if result["size"] == "cpu" else ""
    return f"{updates:,} updates{drop}"


def _lengths(result: JsonDict) -> str:
    """The lengths of the runs in words, with that of the paper's run."""
    kind = next((one for one in ("linear", "softmax") if _runs(result, one)), None)
    texts = [] if kind is None else [_updates(result, kind)]
    if _runs(result, "reformer"):
        texts.append("for reformer, whose updates take longer, " + _updates(result, "reformer"))
    return f"{'; '.join(texts)} (the paper: 10,000 with the rate lowered at 3,000)"


def page(result: JsonDict, figures: Figures) -> Page:
    panels = [
        Panel(
            _curves(result, "step"),
            "updates",
            "loss at labelled positions, nats",
            "By updates",
            log_y=True,
        ),
        Panel(_curves(result, "elapsed_s"), "seconds", "", "By time", log_y=True),
    ]
    picture = figures.lines(
        "convergence",
        panels,
        "Held-out loss over updates and over seconds",
        "Loss of held-out rows, without dropout: the median of the seeds, and their range."
        + (CAPTION if best(result, "copy/copy") else ""),
    )
    full = result["size"] == "full"
    differences = (
        []
        if full
        else [
            "rows of 64 tokens instead of 128, strings of 16 to 30 symbols",
            "2 layers, 4 heads of width 32, D = 128, instead of 4 layers, 8 heads, D = 256",
            f"batch {'4' if result['size'] == 'quick' else '32'} instead of 64",
            _lengths(result),
            "GELU in the feed-forward layers instead of the ReLU of the paper's code",
            "reformer with 16 planes, chunks of 16 and 2 rounds at half the length, instead of 32, "
            "32, 4",
        ]
    )
    differences += [
        "sinusoidal positions concatenated to the embedding, dropout 0.1, layer norm after "
        "each part, as in the paper's code; its text does not specify them",
        "hardware: a CPU instead of a GPU",
    ]
    measured = [run for kind in ("linear", "softmax") for run in _runs(result, kind)]
    return Page(
        headline=_headline(result),
        agrees=_agrees(result),
        differences=differences,
        short="The copy task is learned to softmax's loss, equally fast and smoothly",
        figure=_figure_of(result),
        scale=trainings(measured or _runs(result, "reformer"), counted(result, "copy")),
        seeds="; ".join(
            f"{kind}: {', '.join(str(run['seed']) for run in _runs(result, kind))}"
            for kind in _kinds(result)
        ),
        sections=[
            Section(
                "The task",
                [
                    "A row is `w 0 w`: a string of symbols 1 to 10, the separator, the string "
                    "again, then zeros. Loss and accuracy count the separator and the second "
                    "string. Rows are drawn at random for every update, so a row hardly ever "
                    "repeats; a model that cannot look back reaches n / (n + 1) ln 10, about 2.2 "
                    "nats. The optimiser is RAdam at 1e-3, with each tensor's gradient clipped to "
                    "norm 1 and weight decay 0.01. `tarn train --preset "
                    + ("copy-task" if full else "copy")
                    + "` is the linear run."
                ],
            ),
            Section("Convergence", [picture, _table(result)]),
        ],
        theirs="a plot without numbers: linear reaches softmax's loss, both are below LSH, and "
        "linear is the smoothest",
        picture=picture,
        tried=_tried(result),
    )
