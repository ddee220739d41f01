"""The page of the copy task, from its stored result."""

from __future__ import annotations

import math
import statistics
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
_SAME = 1.5  # times softmax's loss


def _runs(result: JsonDict, kind: str) -> list[JsonDict]:
    return [run for run in result["measured"]["runs"] if run["kind"] == kind]


def _last(run: JsonDict, key: str) -> float:
    return float(run["held_out"][-1][key])


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def _final_loss(result: JsonDict, kind: str) -> float | None:
    """Held out, median over the seeds; None where the kind was not run."""
    runs = _runs(result, kind)
    return statistics.median(_last(run, "loss") for run in runs) if runs else None


def _reached(run: JsonDict) -> int | None:
    """The first evaluation with 99 %, in updates."""
    return next((int(one["step"]) for one in run["held_out"]
                 if one["accuracy"] >= _WANTED), None)


def _all_seeds(result: JsonDict, kind: str) -> Criterion:
    name = f"{kind}: masked accuracy of at least 99 %"
    more = {"part": f"{kind} solves the task"}
    runs = _runs(result, kind)
    if result["size"] == "quick" or not runs:
        return Criterion(name, "3 of 3 seeds", "not measured", None, **more)
    right = [_last(run, "accuracy") for run in runs]
    good = sum(one >= _WANTED for one in right)
    got = f"{good} of {len(runs)}, the least {100 * min(right):.2f} %"
    return Criterion(name, "3 of 3 seeds", got, good == len(runs) and len(runs) >= 3, **more)


def _loss_criterion(result: JsonDict) -> Criterion:
    """The claim's "same loss", judged by medians over the seeds: a mean would be
    that of the worst seed alone."""
    name = "median final loss of linear over softmax's, held out"
    part = "the same loss as softmax"
    linear, softmax = _final_loss(result, "linear"), _final_loss(result, "softmax")
    if result["size"] == "quick" or linear is None or softmax is None:
        return Criterion.at_most(name, None, _SAME, "x", part=part)
    return Criterion(name, f"at most {_SAME:g}x",
                     f"{number(linear / softmax)}x ({linear:.5f} over {softmax:.5f})",
                     linear <= _SAME * softmax, part=part, opposite=linear > 2 * softmax)


def _at_reformers_end(result: JsonDict) -> tuple[int, list[float]] | None:
    """Updates of the shortest run of the reformer, and median losses of reformer,
    linear and softmax after so many; None where one of them was not evaluated
    there."""
    ends = [int(run["held_out"][-1]["step"]) for run in _runs(result, "reformer")]
    values = []
    for kind in ("reformer", "linear", "softmax"):
        there = [one["loss"] for run in _runs(result, kind) for one in run["held_out"]
                 if ends and int(one["step"]) == min(ends)]
        if not there:
            return None
        values.append(statistics.median(there))
    return min(ends), values


def _reformer_criterion(result: JsonDict) -> Criterion:
    """Figure 2 shows LSH attention above both, at every number of updates."""
    name, wanted = "reformer's held-out loss after as many updates as the others' medians", "above"
    part = "both below LSH attention"
    found = _at_reformers_end(result)
    if result["size"] == "quick" or found is None:
        return Criterion(name, wanted, "not measured", None, part=part)
    updates, (reformer, *others) = found
    return Criterion(name, wanted, f"{reformer:.4f} against {others[0]:.4f} and {others[1]:.4f} "
                     f"after {updates:,} updates", reformer > max(others), part=part,
                     opposite=reformer < min(others))


def criteria(result: JsonDict) -> list[Criterion]:
    return [_all_seeds(result, "linear"), _all_seeds(result, "softmax"),
            _loss_criterion(result), _reformer_criterion(result)]


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
    return lines


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
        "Accuracy and loss of held-out rows after the last update; updates to 99 % at the first "
        "evaluation that reaches them. Seconds are the trainer's own, evaluations included.")


def _headline(result: JsonDict) -> str:
    runs = _runs(result, "linear")
    if not runs:
        return "linear attention was not run"
    text = (f"linear {100 * min(_last(run, 'accuracy') for run in runs):.2f} % accuracy or more "
            f"in {len(runs)} of {len(runs)} seeds, median loss {_final_loss(result, 'linear'):.5f}")
    softmax = _final_loss(result, "softmax")
    return text + ("" if softmax is None else f"; softmax's {softmax:.5f}")


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
    ratio = linear / softmax
    text = (f"Linear attention's median held-out loss is {number(ratio, 2)} times softmax's; "
            "with labels that are right to more than 99 %, both are near zero. ")
    times = _ratio(result, _reached)
    if times is not None:
        steps = [one["step"] for one in _runs(result, "linear")[0]["held_out"]]
        between = f", evaluated every {steps[1] - steps[0]:,}" if len(steps) > 1 else ""
        text += f"It needs about {number(times, 2)} times softmax's updates to 99 %{between}. "
    found = _at_reformers_end(result)
    if found is not None:
        updates, (reformer, *others) = found
        text += f"After {updates:,} updates reformer stands at {reformer:.4f}, "
        text += "above both, as in the paper." if reformer > max(others) else (
            "no worse than the others at this length, unlike the paper's.")
    return text.strip()


def _tried(result: JsonDict) -> dict[str, str]:
    """By criterion, for those that are missed."""
    if result["size"] != "cpu":
        return {}
    text = ("rate, clipping, dropout and the place of the drop are the paper's, the same for all "
            "kinds (dropout of the attention weights where there are such); half as many updates left "
            "two of three seeds unconverged when the rate dropped.")
    return {one.name: text for one in criteria(result)}


def _updates(result: JsonDict, kind: str) -> str:
    runs = _runs(result, kind)
    return number(runs[0]["updates"]) if runs else "no"


def page(result: JsonDict, figures: Figures) -> Page:
    panels = [
        Panel(_curves(result, "step"), "updates", "loss on labelled places, nats",
              "By updates", log_y=True),
        Panel(_curves(result, "elapsed_s"), "seconds", "", "By time", log_y=True),
    ]
    picture = figures.lines(
        "convergence", panels, "Held-out loss over updates and over seconds",
        "Loss of held-out rows, without dropout: the median of the seeds, and their range.")
    full = result["size"] == "full"
    differences = [] if full else [
        "rows of 64 tokens instead of 128, strings of 16 to 30 symbols",
        "2 layers, 4 heads of width 32, D = 128, instead of 4 layers, 8 heads, D = 256",
        f"batch 32 instead of 64; {_updates(result, 'linear')} updates, rate / 10 after 5/7 of them "
        "(the paper: after 3,000); the reformer, whose update takes three times as long, "
        f"{_updates(result, 'reformer')}",
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
        picture=picture, tried=_tried(result))
