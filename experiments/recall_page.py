"""The page of recall, from its stored result."""

from __future__ import annotations

import statistics

from experiments.core import (
    Criterion,
    Evidence,
    Figures,
    JsonDict,
    Learner,
    Outcome,
    Page,
    Panel,
    Picture,
    Section,
    Series,
    Table,
    learner,
    number,
    outcome,
    paired,
    why,
)
from experiments.core.baselines import best
from experiments.core.scale import counted, trainings

_SOLVED = 0.99
_HELD = 0.95  # where there is room for all pairs
_FELL = 0.05  # of recall, from where there is room to where there is none
_CONVERGED = 0.01  # change of accuracy over the last quarter of the schedule
_MORE = 1.25  # times d_key: more than that is not "as many as columns"
_COLOURS = {8: "naive", 16: "cached", 32: "linear", 64: "reformer"}


def _runs(
    result: JsonDict, kind: str, d_key: int | None = None, pairs: int | None = None
) -> list[JsonDict]:
    return [
        run
        for run in result["measured"]["runs"]
        if run["kind"] == kind and d_key in (None, run["d_key"]) and pairs in (None, run["pairs"])
    ]


def _pairs(result: JsonDict) -> list[int]:
    return sorted({run["pairs"] for run in result["measured"]["runs"]})


def _widths(result: JsonDict) -> list[int]:
    """d_key of the linear models."""
    return sorted({run["d_key"] for run in _runs(result, "linear")})


def _accuracies(runs: list[JsonDict]) -> list[float]:
    """The held-out accuracy of each seed after the last update."""
    return [float(run["held_out"][-1]["accuracy"]) for run in runs]


def _median(runs: list[JsonDict]) -> float:
    return statistics.median(_accuracies(runs))


def _of(result: JsonDict, d_key: int, pairs: int) -> float:
    return _median(_runs(result, "linear", d_key, pairs))


def _learner(result: JsonDict, kind: str, d_key: int, pairs: int) -> Learner:
    trivial = best(result, "recall/recall", pairs)
    return learner(
        f"{kind}, d_key {d_key}, {pairs} pairs",
        _runs(result, kind, d_key, pairs),
        "accuracy",
        trivial.accuracy if trivial else None,
        higher=True,
    )


def _last(run: JsonDict) -> float:
    return float(run["held_out"][-1]["accuracy"])


# --- Criteria -----------------------------------------------------------------


def _solved(result: JsonDict) -> Criterion:
    name = "softmax: the lowest accuracy of all sizes and seeds"
    found = _accuracies(_runs(result, "softmax"))
    least = 100 * min(found) if found and result["size"] != "quick" else None
    models = dict.fromkeys((run["d_key"], run["pairs"]) for run in _runs(result, "softmax"))
    evidence = [
        Evidence(
            [_learner(result, "softmax", d_key, pairs)],
            seeds=len(_runs(result, "softmax", d_key, pairs)),
            need=_SOLVED - min(found),
        )
        for d_key, pairs in models
    ]
    return Criterion.at_least(
        name, least, 100 * _SOLVED, "%", part="softmax recalls every size", evidence=evidence
    )


def _room(result: JsonDict, d_key: int) -> Criterion:
    """A state of so many columns holds so many pairs."""
    name = f"linear, d_key {d_key}: the lowest accuracy with at most {d_key} pairs, medians"
    known = [_of(result, d_key, n) for n in _pairs(result) if n <= d_key]
    least = 100 * min(known) if known and result["size"] != "quick" else None
    evidence = [
        Evidence(
            [_learner(result, "linear", d_key, n)],
            margins=[_last(run) - _HELD for run in _runs(result, "linear", d_key, n)],
        )
        for n in _pairs(result)
        if n <= d_key
    ]
    return Criterion.at_least(
        name, least, 100 * _HELD, "%", evidence=evidence, part=f"d_key {d_key} holds {d_key} pairs"
    )


def _falls(result: JsonDict, d_key: int) -> Criterion:
    """Recall beyond the columns, against where there is room; not measured where no
    size goes beyond."""
    part = f"beyond d_key {d_key} recall falls"
    within = [n for n in _pairs(result) if n <= d_key]
    beyond = [n for n in _pairs(result) if n > d_key]
    if not beyond:
        return Criterion(
            f"linear, d_key {d_key}: accuracy lost with more than {d_key} pairs",
            f"at least {100 * _FELL:g} points",
            f"not measured: the largest size has {_pairs(result)[-1]} pairs",
            None,
            part=part,
        )
    first = within[-1] if within else "no"
    name = f"linear, d_key {d_key}: accuracy lost from {first} pairs to {beyond[-1]}"
    lost, evidence = None, []
    if within and result["size"] != "quick":
        sizes = (within[-1], beyond[-1])
        some, more = (_runs(result, "linear", d_key, n) for n in sizes)
        evidence = [
            Evidence(
                [_learner(result, "linear", d_key, sizes[0])],
                [_learner(result, "linear", d_key, sizes[1])],
                paired(some, more, lambda a, b: _last(a) - _last(b) - _FELL),
            )
        ]
        lost = 100 * (_of(result, d_key, within[-1]) - _of(result, d_key, beyond[-1]))
    return Criterion.at_least(
        name,
        lost,
        100 * _FELL,
        "points",
        part=part,
        evidence=evidence,
        opposite=lost is not None and lost < -100 * _FELL,
    )


def _at_most_columns(result: JsonDict, d_key: int) -> Criterion | None:
    """How many pairs a state recalls, by accuracy times pairs, where there are more
    than its columns. The opposite is measured where no seed stays within the bound."""
    most = _pairs(result)[-1]
    if most < 2 * d_key:
        return None
    name = f"linear, d_key {d_key}: pairs recalled of {most}, over d_key"
    ratio = _of(result, d_key, most) * most / d_key if result["size"] != "quick" else None
    least = min(_accuracies(_runs(result, "linear", d_key, most))) * most / d_key
    found = [
        _MORE * d_key / most - one for one in _accuracies(_runs(result, "linear", d_key, most))
    ]
    evidence = [Evidence([], [_learner(result, "linear", d_key, most)], found)]
    return Criterion.at_most(
        name,
        ratio,
        _MORE,
        "x",
        part=f"d_key {d_key} holds no more",
        evidence=evidence,
        opposite=ratio is not None and least > _MORE,
    )


def _grows(result: JsonDict) -> Criterion:
    """Each width above the one before, all seeds, or both solve it."""
    most = _pairs(result)[-1]
    name = f"linear, {most} pairs: accuracy by d_key"
    wanted = "each above the one before, all seeds"
    part = "more columns recall more"
    widths = _widths(result)
    if result["size"] == "quick" or len(widths) < 2:
        return Criterion(name, wanted, "not measured", None, part=part)
    rows = [_accuracies(_runs(result, "linear", one, most)) for one in widths]
    got = ", ".join(
        f"{one}: {100 * statistics.median(row):.1f} %" for one, row in zip(widths, rows)
    )
    steps = list(zip(rows, rows[1:]))
    evidence = [
        Evidence(
            [_learner(result, "linear", wide, most)],
            [_learner(result, "linear", narrow, most)],
            paired(
                _runs(result, "linear", wide, most),
                _runs(result, "linear", narrow, most),
                lambda a, b: _last(a) - _last(b),
            ),
        )
        for narrow, wide in zip(widths, widths[1:])
    ]
    return Criterion(
        name,
        wanted,
        got,
        all(min(b) > max(a) or min(*a, *b) >= _SOLVED for a, b in steps),
        part=part,
        opposite=all(max(b) < min(a) for a, b in steps),
        evidence=evidence,
    )


def _change(result: JsonDict) -> float | None:
    """The change of accuracy over the last quarter of the updates, in points: the median
    of the seeds, the largest of all models. Both evaluations read the same held-out rows,
    whose choice therefore adds no noise."""
    changes = []
    for kind, d_key, pairs in dict.fromkeys(
        (run["kind"], run["d_key"], run["pairs"]) for run in result["measured"]["runs"]
    ):
        found = []
        for run in _runs(result, kind, d_key, pairs):
            rows = run["held_out"]
            early = [row["accuracy"] for row in rows if row["step"] <= 0.75 * rows[-1]["step"]]
            if early:
                found.append(abs(rows[-1]["accuracy"] - early[-1]))
        if found:
            changes.append(100 * statistics.median(found))
    return max(changes) if changes and result["size"] != "quick" else None


def _still(result: JsonDict) -> Criterion:
    """A goal that tests the experiment, not the claim. It also measures the schedule:
    where the rate goes to zero, accuracies come to rest whether or not more updates
    would change them."""
    name = (
        "largest median change of accuracy over the last quarter of the cosine schedule, "
        "which ends at a rate of zero"
    )
    return Criterion.at_most(
        name,
        _change(result),
        100 * _CONVERGED,
        "points",
        part="at rest where the schedule ends",
        goal=True,
    )


def criteria(result: JsonDict) -> list[Criterion]:
    lines: list[Criterion | None] = [_solved(result), _grows(result)]
    for d_key in _widths(result):
        lines += [_room(result, d_key), _falls(result, d_key), _at_most_columns(result, d_key)]
    return [one for one in (*lines, _still(result)) if one is not None]


# --- The page -----------------------------------------------------------------


def _line(result: JsonDict, kind: str, d_key: int, label: str, colour: str) -> Series:
    points, band = [], []
    for pairs in _pairs(result):
        found = _accuracies(_runs(result, kind, d_key, pairs))
        if found:
            points.append((pairs, 100 * statistics.median(found)))
            band.append((pairs, 100 * min(found), 100 * max(found)))
    return Series(label, points, colour, marker=True, band=band)


def _chance(result: JsonDict) -> list[Series]:
    """Naming any value of the row, over pairs; empty where no baseline was fitted."""
    found = [(n, best(result, "recall/recall", n)) for n in _pairs(result)]
    points = [(n, 100 * one.accuracy) for n, one in found if one and one.accuracy]
    return [Series("baseline", points, "bound", dash=2)] if points else []


def _capacity(result: JsonDict, figures: Figures) -> Picture:
    pairs, lines = _pairs(result), []
    for run in _runs(result, "softmax")[:1]:
        lines.append(_line(result, "softmax", run["d_key"], "softmax", "softmax"))
    for d_key in _widths(result):
        lines.append(_line(result, "linear", d_key, f"linear, {d_key}", _COLOURS.get(d_key, "")))
    lines += _chance(result)
    ratios = []
    for d_key in _widths(result):
        found = [(n / d_key, 100 * _of(result, d_key, n)) for n in pairs]
        ratios.append(Series(f"linear, {d_key}", found, _COLOURS.get(d_key, ""), marker=True))
    reach = sorted({n / d for n in pairs for d in _widths(result)})
    bound = [(x, 100 * min(1.0, 1 / x)) for x in reach]
    if bound:
        ratios.append(Series("d_key pairs", bound, "bound", dash=2))
    panels = [
        Panel(
            lines, "pairs", "accuracy, %", "By pairs", log_x=True, x_ticks=pairs, y_limits=(0, 104)
        )
    ]
    if ratios:
        panels.append(
            Panel(
                ratios,
                "pairs over d_key",
                "",
                "By pairs per column",
                log_x=True,
                x_ticks=_thin(reach),
                y_limits=(0, 104),
            )
        )
    return figures.lines(
        "capacity",
        panels,
        "Accuracy of recall by number of pairs and width of the keys",
        "Left: held-out accuracy, medians of the seeds and their range"
        + ("; dotted: the trivial baseline" if _chance(result) else "")
        + ". Right: the same by pairs per column; dotted: a state that holds exactly d_key pairs.",
    )


def _thin(ticks: list[float], most: int = 6) -> list[float]:
    """Ticks few enough to be legible on half a page."""
    step = -(-len(ticks) // most)
    return ticks[::step]


def _learning(result: JsonDict, figures: Figures) -> Picture:
    panels = []
    # The first and the last: more panels would be too small to read.
    for pairs in dict.fromkeys((_pairs(result)[0], _pairs(result)[-1])):
        lines = []
        for run in result["measured"]["runs"]:
            kind, d_key = run["kind"], run["d_key"]
            if run["pairs"] != pairs or run["seed"] != result["measured"]["runs"][0]["seed"]:
                continue
            points, band = [], []
            for row in zip(*(one["held_out"] for one in _runs(result, kind, d_key, pairs))):
                found = [100 * one["accuracy"] for one in row]
                points.append((row[0]["step"], statistics.median(found)))
                band.append((row[0]["step"], min(found), max(found)))
            label = "softmax" if kind == "softmax" else f"linear, {d_key}"
            colour = "softmax" if kind == "softmax" else _COLOURS.get(d_key, "")
            lines.append(Series(label, points, colour, band=band))
        panels.append(
            Panel(
                lines,
                "updates",
                "accuracy, %" if pairs == _pairs(result)[0] else "",
                f"{pairs} pairs",
                y_limits=(0, 104),
            )
        )
    return figures.lines(
        "learning",
        panels,
        "Held-out accuracy over updates, fewest and most pairs",
        "Each number of pairs continues from the weights of the one before. "
        "Medians of the seeds and their range.",
    )


def _table(result: JsonDict) -> Table:
    rows = []
    models = dict.fromkeys((run["kind"], run["d_key"]) for run in result["measured"]["runs"])
    for kind, d_key in sorted(models):
        cells: list[object] = [kind, str(d_key), _state_text(result, kind, d_key)]
        for pairs in _pairs(result):
            found = _accuracies(_runs(result, kind, d_key, pairs))
            text = f"{100 * statistics.median(found):.1f}" if found else "-"
            if len(found) > 1:
                text += f" ({100 * min(found):.1f} to {100 * max(found):.1f})"
            cells.append(text)
        rows.append(
            [
                *cells,
                number(
                    sum(run["seconds"] for run in _runs(result, kind, d_key))
                    / len({r["seed"] for r in _runs(result, kind, d_key)})
                ),
            ]
        )
    trivial = [best(result, "recall/recall", n) for n in _pairs(result)]
    known = [one for one in trivial if one]
    if known:
        rows.append(
            [
                known[0].title,
                None,
                None,
                *(f"{100 * one.accuracy:.1f}" if one and one.accuracy else None for one in trivial),
                None,
            ]
        )
    return Table(
        [
            "attention",
            "d_key",
            "numbers kept",
            *(f"{pairs} pairs, %" for pairs in _pairs(result)),
            "seconds",
        ],
        rows,
        "Held-out accuracy, median of the seeds and their range. Numbers kept: S and "
        "z of the layer that recalls, or its keys and values after the row. Seconds: "
        "all sizes of one seed; as many runs train at a time as there are threads, "
        "each on one thread, so the times are not a benchmark.",
    )


def _state_text(result: JsonDict, kind: str, d_key: int) -> str:
    d_value = result["measured"]["d_value"]
    if kind == "linear":
        return number(d_key * (d_value + 1))
    return number(4 * _pairs(result)[-1] * (d_key + d_value))


def _left(result: JsonDict) -> str:
    """What more updates might add."""
    change = _change(result)
    if change is None:
        return ""
    return (
        f"Over the last quarter of the updates accuracies change by up to {change:.1f} "
        "points. "
        "This reflects the schedule, whose rate goes to zero, not convergence: the effect "
        "of more updates was not measured."
    )


def _alone(result: JsonDict) -> str:
    """The largest size without those before it."""
    runs = result["measured"]["from_the_start"]
    if not runs:
        return ""
    text = "; ".join(f"{run['kind']} {100 * _median([run]):.1f} %" for run in runs)
    pairs = runs[0]["pairs"]
    chance = 100 / pairs
    stuck = all(_median([run]) < 2 / pairs for run in runs)
    return (
        f"With {pairs} pairs from the start and as many updates: {text}; guessing any "
        f"value of the row is right in {chance:.1f} % of cases. "
        + (
            "Neither has begun to learn: the obstacle is finding the pairs, not the size of "
            "the state."
            if stuck and len(runs) > 1
            else ""
        )
    )


def _recalled(result: JsonDict) -> str:
    most = _pairs(result)[-1]
    return ", ".join(
        f"{100 * _of(result, one, most):.0f} % with d_key {one}" for one in _widths(result)
    )


def _agrees(result: JsonDict) -> str:
    if result["size"] == "quick":
        return "This size is too short to say."
    most, parts = _pairs(result)[-1], []
    softmax = _runs(result, "softmax", pairs=most)
    if _widths(result):
        parts.append(
            f"Of {most} pairs linear attention recalls {_recalled(result)}"
            + (f"; softmax {100 * _median(softmax):.0f} %." if softmax else ".")
        )
    narrow = _widths(result)[:1]
    if narrow and most > narrow[0]:
        count = most * _of(result, narrow[0], most)
        fell = _falls(result, narrow[0])
        text = f"With {narrow[0]} columns that is {count:.1f} pairs"
        words = {Outcome.HOLDS: "falls", Outcome.OPPOSITE: "rises", Outcome.FAILS: "does not fall"}
        if outcome(fell) in words:
            text += f": recall {words[outcome(fell)]} when there are more pairs than columns"
        elif why(fell):
            text += f": whether recall falls beyond the columns is not decided ({why(fell)})"
        parts.append(text + ".")
        if count > narrow[0]:
            parts.append(
                "That is more than the columns can store without error, because a "
                "value only has to score highest to be recalled."
            )
    for d_key in _widths(result):
        if most <= d_key:
            parts.append(f"More pairs than the {d_key} columns of d_key {d_key} were not measured.")
    return " ".join(parts)


def _headline(result: JsonDict) -> str:
    most = _pairs(result)[-1]
    parts = []
    if _widths(result):
        parts.append(f"{most} pairs: linear {_recalled(result)}")
    softmax = _runs(result, "softmax", pairs=most)
    if softmax:
        parts.append(f"softmax {100 * _median(softmax):.0f} %")
    return ", ".join(parts)


def page(result: JsonDict, figures: Figures) -> Page:
    capacity, learning = _capacity(result, figures), _learning(result, figures)
    updates = sorted({run["updates"] for run in result["measured"]["runs"]})
    task = (
        "Multi-query associative recall: a row holds keys and their values, then each key "
        "again, in random order, and the model has to recall its value. Models have two layers "
        "and differ only in the attention of the second. The first is local attention over two "
        "tokens, which combines each value with its key; the second has one head and recalls, "
        "by softmax or from a linear state of d_key columns (elu + 1). There are no positions. "
        "Each model learns "
        f"{', then '.join(str(n) for n in _pairs(result))} pairs, {number(updates[-1])} "
        "updates each, with a separate cosine schedule; every size starts from the weights of "
        "the one before."
    )
    theory = (
        "The state S is the sum of phi(k) v^T. Reading it with phi(q) returns a value without "
        "error only if the query's features are orthogonal to those of all other keys, which "
        "is possible for at most d_key keys; other keys add their values in proportion to the "
        "similarity of their features to the query's. The features of elu + 1 are positive and "
        "never orthogonal. Moreover, the keys of a row are drawn at random from "
        f"{result['measured']['key_symbols']}, which cannot all be linearly independent in "
        "fewer columns, so a narrow state confuses some keys even if there are few."
    )
    tried = (
        "every size starts from the weights of the one before; Training shows the largest "
        "size without this. No further attempt was made."
    )
    return Page(
        short="A state recalls as many pairs as its keys have columns",
        figure=_headline(result),
        scale=trainings(result["measured"]["runs"], counted(result, "recall"))
        + f", for each of {len(_pairs(result))} numbers of pairs",
        headline=_headline(result),
        agrees=_agrees(result),
        picture=capacity,
        theirs="none",
        differences=[
            "the paper has no such task; the model is small, its first layer is local "
            "attention, and it trains on increasing numbers of pairs"
        ],
        sections=[
            Section("The task", [task]),
            Section("How much is recalled", [theory, capacity, _table(result)]),
            Section(
                "Training", [learning, *(text for text in (_left(result), _alone(result)) if text)]
            ),
        ],
        tried={one.name: tried for one in criteria(result)},
    )
