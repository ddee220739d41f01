"""The page of the copy task, from its stored result."""

from __future__ import annotations

import math
from collections.abc import Callable

from experiments.core import (
    Criterion,
    Figures,
    JsonDict,
    Page,
    Panel,
    Section,
    Series,
    Table,
    number,
)

_NAMES = {"linear": "linear", "softmax": "softmax", "reformer": "reformer"}
_WANTED = 0.99  # masked accuracy


def _runs(result: JsonDict, kind: str) -> list[JsonDict]:
    return [run for run in result["measured"]["runs"] if run["kind"] == kind]


def _last(run: JsonDict, key: str) -> float:
    return float(run["held_out"][-1][key])


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def _final_loss(result: JsonDict, kind: str) -> float | None:
    """Held out, mean over the seeds; None where the kind was not run."""
    runs = _runs(result, kind)
    return _mean([_last(run, "loss") for run in runs]) if runs else None


def _reached(run: JsonDict) -> int | None:
    """The first look with 99 %, in updates."""
    return next((int(look["step"]) for look in run["held_out"]
                 if look["accuracy"] >= _WANTED), None)


def _all_seeds(result: JsonDict, kind: str) -> Criterion:
    name = f"{kind}: masked accuracy of at least 99 %"
    runs = _runs(result, kind)
    if result["size"] == "quick" or not runs:
        return Criterion(name, "3 of 3 seeds", "not measured", None)
    right = [_last(run, "accuracy") for run in runs]
    good = sum(one >= _WANTED for one in right)
    got = f"{good} of {len(runs)}, the least {100 * min(right):.2f} %"
    return Criterion(name, "3 of 3 seeds", got, good == len(runs) and len(runs) >= 3)


def _loss_criterion(result: JsonDict) -> Criterion:
    name = "final loss of linear against softmax's, held out"
    wanted = "at most twice, or both below 0.02"
    linear, softmax = _final_loss(result, "linear"), _final_loss(result, "softmax")
    if result["size"] == "quick" or linear is None or softmax is None:
        return Criterion(name, wanted, "not measured", None)
    holds = linear <= 2 * softmax or max(linear, softmax) < 0.02
    return Criterion(name, wanted, f"{linear:.4f} against {softmax:.4f}", holds)


def criteria(result: JsonDict) -> list[Criterion]:
    return [_all_seeds(result, "linear"), _all_seeds(result, "softmax"), _loss_criterion(result)]


def _kinds(result: JsonDict) -> list[str]:
    return [kind for kind in _NAMES if _runs(result, kind)]


def _curves(result: JsonDict, x: str) -> list[Series]:
    """A line a seed; the first of a kind carries its name."""
    return [
        Series(_NAMES[kind] if i == 0 else "",
               [(line[x], line["loss"]) for line in run["curve"]], kind, faint=i > 0)
        for kind in _kinds(result) for i, run in enumerate(_runs(result, kind))
    ]


def _table(result: JsonDict) -> Table:
    rows = []
    for kind in _kinds(result):
        for run in _runs(result, kind):
            rows.append([
                _NAMES[kind], str(run["seed"]), f"{100 * _last(run, 'accuracy'):.2f}",
                f"{_last(run, 'loss'):.4f}", _reached(run),
                number(1000 * run["seconds"] / run["updates"]), number(run["seconds"]),
                number(run["cpu_seconds"])])
    return Table(
        ["attention", "seed", "accuracy, %", "loss, nats", "updates to 99 %", "ms an update",
         "seconds", "CPU seconds"], rows,
        "Accuracy and loss of held-out rows after the last update; updates to 99 % as far as the "
        "looks at held-out rows tell. Seconds are the trainer's own, looks included.")


def _headline(result: JsonDict) -> str:
    runs = _runs(result, "linear")
    if not runs:
        return "linear attention was not run"
    text = (f"linear {100 * min(_last(run, 'accuracy') for run in runs):.2f} % accuracy or more "
            f"in {len(runs)} of {len(runs)} seeds, loss {_final_loss(result, 'linear'):.4f}")
    softmax = _final_loss(result, "softmax")
    return text + ("" if softmax is None else f"; softmax's loss {softmax:.4f}")


def _ratio(result: JsonDict, of: Callable[[JsonDict], float | None]) -> float | None:
    """Of the means of linear over softmax."""
    means = []
    for kind in ("linear", "softmax"):
        values = [of(run) for run in _runs(result, kind)]
        known = [value for value in values if value is not None]
        if not known or len(known) < len(values):
            return None
        means.append(_mean(known))
    return means[0] / means[1]


def _agrees(result: JsonDict) -> str:
    linear, softmax = _final_loss(result, "linear"), _final_loss(result, "softmax")
    if result["size"] == "quick" or linear is None or softmax is None:
        return "This size is too short to say."
    holds = all(one.holds for one in criteria(result))
    text = "Agrees" if holds else "Does not agree in full: see the criteria that are missed"
    if holds and linear > 2 * softmax:
        text += (" within the criterion: both end below 0.02, linear attention "
                 f"{number(linear / softmax, 2)} times above softmax")
    elif holds:
        text += ": linear attention ends where softmax does"
    text += "."
    times = _ratio(result, _reached)
    if times is not None:
        steps = [look["step"] for look in _runs(result, "linear")[0]["held_out"]]
        between = f" (looked at every {steps[1] - steps[0]:,})" if len(steps) > 1 else ""
        text += (f" It needs about {number(times, 2)} times softmax's updates to 99 %, as far as "
                 f"the looks tell{between}.")
    reformer = _final_loss(result, "reformer")
    if reformer is not None:
        text += f" Reformer ends at {reformer:.4f}, "
        text += "above both, as in the paper." if reformer > max(linear, softmax) else (
            "no worse than the others at this length, unlike the paper's.")
    return text


def _unseen(result: JsonDict) -> list[str]:
    """Parts of the claim that the figures do not show."""
    linear, softmax = _final_loss(result, "linear"), _final_loss(result, "softmax")
    if linear is None or softmax is None or linear <= 2 * softmax:
        return []
    return [f"the same loss ({number(linear / softmax, 2)} times softmax's)"]


def _tried(result: JsonDict) -> dict[str, str]:
    """By criterion, for those that are missed."""
    if result["size"] != "cpu":
        return {}
    text = ("rate, clipping, dropout and the place of the drop are the paper's, the same for all "
            "kinds (dropout of the attention weights where there are such); more updates than the "
            "3,500 were not tried.")
    return {one.name: text for one in criteria(result)}


def page(result: JsonDict, figures: Figures) -> Page:
    panels = [
        Panel(_curves(result, "step"), "updates", "loss on labelled places, nats",
              "By updates", log_y=True),
        Panel(_curves(result, "elapsed_s"), "seconds", "", "By time", log_y=True),
    ]
    picture = figures.lines(
        "convergence", panels, "Training loss over updates and over seconds",
        "Training loss, means over 1/140 of the updates; dropout acts here, so it lies above "
        "the held-out loss. Thin lines are further seeds.")
    full = result["size"] == "full"
    differences = [] if full else [
        "rows of 64 tokens instead of 128, strings of 16 to 30 symbols",
        "2 layers, 4 heads of width 32, D = 128, instead of 4 layers, 8 heads, D = 256",
        "batch 32 instead of 64; 3,500 updates, rate / 10 after 2,500 (the paper: after 3,000)",
        "reformer with 16 planes, chunks of 16 and 2 rounds at half the length, instead of 32, 32, 4",
    ]
    differences += [
        "positions are sines and cosines concatenated to the embedding, dropout 0.1, layer norm "
        "after each part: as in the paper's code, its text does not say",
        "hardware: a CPU instead of a GPU",
    ]
    return Page(
        headline=_headline(result), agrees=_agrees(result), differences=differences,
        sections=[
            Section("The task", [
                "A row is `w 0 w`: a string of symbols 1 to 10, the separator, the string again, "
                "then zeros. Loss and accuracy count the separator and the second string. Rows are "
                "drawn at random for every update, so that one hardly comes twice; a model that cannot look back ends at "
                "n / (n + 1) ln 10, about 2.2 nats. RAdam at 1e-3, each tensor's gradient clipped "
                "to norm 1, weight decay 0.01. `tarn train --preset "
                + ("copy-task" if full else "copy") + "` is the linear run."]),
            Section("Convergence", [picture, _table(result)]),
        ],
        theirs="a figure without numbers: linear reaches softmax's loss, both below lsh, "
               "linear the smoothest",
        picture=picture, unseen=_unseen(result), tried=_tried(result))
