"""The page of the feature maps, from its stored result."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

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
)
from experiments.core.baselines import CAPTION, Baseline, best
from experiments.core.scale import counted, trainings

_TASKS = {"copy": "copy", "recall": "recall", "text": "text"}
_UNITS = {"copy": "nats", "recall": "nats", "text": "bits per byte"}
_MAPS = ("elu1", "relu", "relu2", "identity", "poly2", "favor", "rff")
_KINDS = (*_MAPS, "softmax")
_NAMES = {
    "elu1": "elu + 1",
    "relu": "ReLU",
    "relu2": "ReLU squared",
    "identity": "identity",
    "poly2": "degree 2",
    "favor": "favor",
    "rff": "rff",
    "softmax": "softmax",
}
_COLOURS = {
    "elu1": "linear",
    "relu": "naive",
    "relu2": "cached",
    "identity": "lstm",
    "poly2": "reformer",
    "favor": "",
    "rff": "",
    "softmax": "softmax",
}
_DASHES = {"relu2": 1, "rff": 1, "identity": 1}
_EXPONENT = (-0.6, -0.4)
_THEORY = -0.5
_PAIRS = 8  # of recall
_MODERATE = 0.25  # deviation of the entries for which the exponent is judged


def _runs(result: JsonDict, task: str, kind: str) -> list[JsonDict]:
    return [
        run for run in result["measured"]["runs"] if run["task"] == task and run["kind"] == kind
    ]


def _losses(result: JsonDict, task: str, kind: str) -> list[float]:
    """The held-out loss of each seed after the last update."""
    return [float(run["held_out"][-1]["loss"]) for run in _runs(result, task, kind)]


def _medians(result: JsonDict, task: str, kinds: Sequence[str] = _MAPS) -> dict[str, float]:
    known = {kind: _losses(result, task, kind) for kind in kinds}
    return {kind: statistics.median(losses) for kind, losses in known.items() if losses}


def _learner(result: JsonDict, task: str, kind: str) -> Learner:
    trivial = best(result, f"maps/{task}", _PAIRS if task == "recall" else 0)
    return learner(
        _NAMES[kind], _runs(result, task, kind), "loss", trivial.value if trivial else None
    )


def _apart(
    result: JsonDict,
    task: str,
    better: str,
    worse: str,
    without: int | None = None,
) -> list[Evidence]:
    """Two maps by the seeds. That which chose them counts as one, but not in the interval."""
    ahead, behind = (
        [run for run in _runs(result, task, kind) if run["seed"] != without]
        for kind in (better, worse)
    )
    margins = paired(ahead, behind, lambda low, high: _last(high) - _last(low))
    return [
        Evidence(
            [_learner(result, task, better)],
            [_learner(result, task, worse)],
            margins,
            seeds=len(_seeds(result)),
        )
    ]


def _last(run: JsonDict) -> float:
    return float(run["held_out"][-1]["loss"])


# --- Criteria -----------------------------------------------------------------


def _spread(result: JsonDict, task: str) -> Criterion:
    """Whether maps differ by more than seeds do. The worst and the best of seven are
    apart by chance alone: the first seed names them, and the others judge."""
    name = (
        f"{_TASKS[task]}: the worst map of the first seed against its best map, compared "
        "on the other seeds"
    )
    wanted = "every seed of the worst above every seed of the best"
    part = f"the choice matters for {_TASKS[task]}"
    first, *others = _seeds(result)
    found = {
        kind: {run["seed"]: float(run["held_out"][-1]["loss"]) for run in _runs(result, task, kind)}
        for kind in _MAPS
    }
    maps = [kind for kind in _MAPS if {first, *others} <= found[kind].keys()]
    if result["size"] == "quick" or len(maps) < 2 or not others:
        return Criterion(name, wanted, "not measured", None, part=part)
    least, worst = (chosen(maps, key=lambda kind: found[kind][first]) for chosen in (min, max))
    low, high = ([found[kind][seed] for seed in others] for kind in (least, worst))
    got = f"{_NAMES[worst]} {_from_to(high)} against {_NAMES[least]} {_from_to(low)} {_UNITS[task]}"
    return Criterion(
        name,
        wanted,
        got,
        min(high) > max(low),
        part=part,
        opposite=max(high) < min(low),
        evidence=_apart(result, task, least, worst, first),
    )


def _from_to(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.4f}" if low == high else f"{low:.4f} to {high:.4f}"


def _relu(result: JsonDict, task: str) -> Criterion:
    """Every seed of one against every seed of the other."""
    name = f"{_TASKS[task]}: ReLU's loss against that of elu + 1"
    wanted, part = "larger, all seeds", f"ReLU is worse on {_TASKS[task]}"
    relu, elu = _losses(result, task, "relu"), _losses(result, task, "elu1")
    if result["size"] == "quick" or min(len(relu), len(elu)) < 2:
        return Criterion(name, wanted, "not measured", None, part=part)
    got = f"{_from_to(relu)} against {_from_to(elu)} {_UNITS[task]}"
    return Criterion(
        name,
        wanted,
        got,
        min(relu) > max(elu),
        part=part,
        opposite=max(relu) < min(elu),
        evidence=_apart(result, task, "elu1", "relu"),
    )


def _zeros() -> Criterion:
    """The claim's reason. That one map is worse than another does not tell why."""
    return Criterion(
        "ReLU's zero gradient as the cause",
        "measured",
        "not measured",
        None,
        part="the zero gradient as the cause",
    )


def _seeds(result: JsonDict) -> list[int]:
    return sorted({run["seed"] for run in result["measured"]["runs"]})


def _kernels(result: JsonDict) -> list[JsonDict]:
    return result["measured"].get("kernel", [])


def _estimators(kernel: JsonDict) -> list[str]:
    return list(dict.fromkeys(row["map"] for row in kernel["rows"]))


def _errors(kernel: JsonDict, name: str) -> list[JsonDict]:
    return sorted(
        (row for row in kernel["rows"] if row["map"] == name), key=lambda row: row["features"]
    )


def _exponent(kernel: JsonDict, name: str) -> float | None:
    """The exponent p of error ~ features^p, by least squares of the logarithms. Rows count
    from two features a key column on: fewer are no whole block of directions."""
    points = [
        (math.log(row["features"]), math.log(row["error"]))
        for row in _errors(kernel, name)
        if row["features"] >= 2 * kernel["d_key"] and row["error"] > 0
    ]
    if len(points) < 3:
        return None
    x, y = (statistics.fmean(one[i] for one in points) for i in range(2))
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)


def _falls(result: JsonDict, kernel: JsonDict) -> list[Criterion]:
    """A claim for short queries and keys; for long ones the figure is reported."""
    judged = kernel["deviation"] == _MODERATE
    lines = []
    for name in _estimators(kernel):
        title = f"{name}: exponent of the error, entries of {kernel['deviation']:g}"
        found = _exponent(kernel, name) if result["size"] != "quick" else None
        if judged:
            lines.append(
                Criterion.between(
                    title,
                    found,
                    *_EXPONENT,
                    part="the error falls as one over the square root of the features",
                    opposite=found is not None and found >= 0,
                )
            )
        else:
            lines.append(
                Criterion(
                    title,
                    "reported",
                    "not measured" if found is None else f"{found:.3g}",
                    None if found is None else True,
                    reported=True,
                )
            )
    return lines


def criteria(result: JsonDict) -> list[Criterion]:
    lines = [_spread(result, task) for task in _TASKS] + [_relu(result, task) for task in _TASKS]
    lines.append(_zeros())
    for kernel in _kernels(result):
        lines += _falls(result, kernel)
    return lines


# --- The page -----------------------------------------------------------------


def _trivial(result: JsonDict, task: str) -> Baseline | None:
    return best(result, f"maps/{task}", 8 if task == "recall" else 0)


def _learning(result: JsonDict, figures: Figures, name: str, tasks: Sequence[str]) -> Picture:
    panels = []
    for task in tasks:
        lines = []
        for kind in _KINDS:
            runs = _runs(result, task, kind)
            points, band = [], []
            for row in zip(*(run["held_out"] for run in runs)):
                losses = [one["loss"] for one in row]
                points.append((row[0]["step"], statistics.median(losses)))
                band.append((row[0]["step"], min(losses), max(losses)))
            if points:
                lines.append(
                    Series(
                        _NAMES[kind],
                        points,
                        _COLOURS[kind] or kind,
                        band=band,
                        dash=_DASHES.get(kind, 0),
                    )
                )
        trivial = _trivial(result, task)
        lines += trivial.line(lines) if trivial else []
        panels.append(
            Panel(lines, "updates", f"held-out loss, {_UNITS[task]}", task.capitalize(), log_y=True)
        )
    return figures.lines(
        name,
        panels,
        f"Held-out loss over updates, {' and '.join(tasks)}, by feature map",
        "Medians of the seeds and their range; the same model, rows and rate for all."
        + (CAPTION if _trivial(result, tasks[0]) else ""),
    )


def _table(result: JsonDict) -> Table:
    """Loss with the seeds' range, task by task, and what an update takes."""
    rows = []
    for kind in _KINDS:
        if not any(_runs(result, task, kind) for task in _TASKS):
            continue
        cells: list[object] = [_NAMES[kind]]
        for task in _TASKS:
            losses = _losses(result, task, kind)
            text = f"{statistics.median(losses):.4f}" if losses else "-"
            if len(losses) > 1:
                text += f" ({min(losses):.4f} to {max(losses):.4f})"
            cells.append(text)
        for task in ("copy", "recall"):
            cells.append(_accuracy(result, task, kind))
        runs = _runs(result, "copy", kind)
        cells.append(
            number(1000 * statistics.median(run["seconds"] / run["updates"] for run in runs))
            if runs
            else None
        )
        rows.append(cells)
    trivial = {task: _trivial(result, task) for task in _TASKS}
    for task, one in trivial.items():
        if one:
            rows.append(
                [
                    one.title,
                    *(f"{one.value:.4f}" if other == task else None for other in _TASKS),
                    *(
                        f"{100 * one.accuracy:.1f}" if other == task and one.accuracy else None
                        for other in ("copy", "recall")
                    ),
                    None,
                ]
            )
    return Table(
        [
            "map",
            "copy, nats",
            "recall, nats",
            "text, bits per byte",
            "copy accuracy, %",
            "recall accuracy, %",
            "ms per update (copy)",
        ],
        rows,
        "Losses of held-out rows after the last update: medians of the seeds and their range. "
        "As many runs train at a time as there are threads, each on one thread, so the times "
        "per update are not a benchmark.",
    )


def _accuracy(result: JsonDict, task: str, kind: str) -> str | None:
    found = [run["held_out"][-1]["accuracy"] for run in _runs(result, task, kind)]
    return f"{100 * statistics.median(found):.1f}" if found else None


def _kernel_picture(result: JsonDict, figures: Figures) -> Picture:
    panels = []
    for kernel in _kernels(result):
        lines, colours = [], ("linear", "softmax", "reformer", "naive")
        for colour, name in zip(colours, _estimators(kernel)):
            rows = _errors(kernel, name)
            lines.append(
                Series(
                    name,
                    [(row["features"], row["error"]) for row in rows],
                    colour,
                    marker=True,
                    band=[(row["features"], row["low"], row["high"]) for row in rows],
                )
            )
        first = _errors(kernel, _estimators(kernel)[0])
        last = first[-1]
        lines.append(
            Series(
                "1 / root",
                [
                    (
                        row["features"],
                        last["error"] * (row["features"] / last["features"]) ** _THEORY,
                    )
                    for row in first
                ],
                "bound",
                dash=2,
            )
        )
        panels.append(
            Panel(
                lines,
                "features",
                "relative error",
                f"Entries of deviation {kernel['deviation']:g}",
                log_x=True,
                log_y=True,
                x_ticks=[row["features"] for row in first[::2]],
            )
        )
    return figures.lines(
        "kernel",
        panels,
        "Relative error of random features against the exponential kernel",
        "Mean over pairs and draws of |phi(q).phi(k) - e| / e with e = exp(q.k / sqrt(d)); the "
        "band reaches from the lowest to the highest tenth of the draws. Dotted: the slope of "
        "1 / sqrt(m), through the last point of the first line.",
    )


def _kernel_section(result: JsonDict, figures: Figures) -> Section:
    kernels = _kernels(result)
    rows = []
    for kernel in kernels:
        for name in _estimators(kernel):
            errors, exponent = _errors(kernel, name), _exponent(kernel, name)
            rows.append(
                [
                    f"{kernel['deviation']:g}",
                    name,
                    number(errors[0]["error"]),
                    number(errors[-1]["error"]),
                    None if exponent is None else f"{exponent:.2f}",
                ]
            )
    first = _errors(kernels[0], _estimators(kernels[0])[0])
    return Section(
        "Random features and softmax's kernel",
        [
            f"Queries and keys of width {kernels[0]['d_key']} with normal entries, "
            f"{number(kernels[0]['pairs'])} pairs, {number(kernels[0]['draws'])} draws of "
            "directions. "
            "favor: positive features [exp(u); exp(-u)] on orthogonal directions; independent: the "
            "same on independent directions; favor-positive: exp(u) only; rff: sines and cosines, "
            "whose Gaussian kernel is scaled to the exponential one. The error of an average of m "
            "independent draws falls as 1 / sqrt(m). A block of orthogonal directions is complete "
            f"at two features per column, here {2 * kernels[0]['d_key']}; the exponent is fitted "
            "from this number on. " + _orthogonal(kernels[0]),
            _kernel_picture(result, figures),
            Table(
                [
                    "deviation of the entries",
                    "map",
                    f"error, {number(first[0]['features'])} features",
                    f"error, {number(first[-1]['features'])} features",
                    "exponent",
                ],
                rows,
            ),
            "The variance of positive features grows as the exponential of |q + k|^2 / sqrt(d), "
            "the variance of scaled sines and cosines as that of |q|^2 and |k|^2 separately. "
            + _far(kernels[-1]),
        ],
    )


def _orthogonal(kernel: JsonDict) -> str:
    """favor's directions against independent ones, as the figures are: until a block
    is full, and in their slopes after it."""
    rows = {
        name: {row["features"]: row["error"] for row in _errors(kernel, name)}
        for name in ("favor", "favor, independent")
    }
    both = [one for one in rows["favor"] if one in rows["favor, independent"]]
    full = max((one for one in both if one <= 2 * kernel["d_key"]), default=None)
    slopes = [_exponent(kernel, name) for name in rows]
    if full is None or None in slopes or not rows["favor, independent"][full]:
        return ""
    share = rows["favor"][full] / rows["favor, independent"][full]
    ours, theirs = (one for one in slopes if one is not None)
    same = abs(ours - theirs) <= _EXPONENT[1] - _THEORY
    return (
        f"With entries of deviation {kernel['deviation']:g} and {number(full)} features, "
        f"the error of orthogonal directions is {share:.2f} times that of independent "
        f"ones; with more features their errors fall with "
        f"{'about the same' if same else 'different'} exponents, {ours:.2f} and {theirs:.2f}."
    )


def _far(kernel: JsonDict) -> str:
    """What is left with long queries and keys."""
    last = {name: _errors(kernel, name)[-1] for name in _estimators(kernel)}
    text = ", ".join(f"{name} {number(row['error'])}" for name, row in last.items())
    features = number(next(iter(last.values()))["features"])
    return (
        f"With entries of deviation {kernel['deviation']:g}, {features} features still "
        f"have these relative errors: {text}."
    )


def _order(result: JsonDict, task: str) -> str:
    medians = _medians(result, task, _KINDS)
    return ", ".join(
        f"{_NAMES[kind]} {medians[kind]:.3f}" for kind in sorted(medians, key=lambda k: medians[k])
    )


def _agrees(result: JsonDict) -> str:
    if result["size"] == "quick":
        return "This size is too short to say."
    parts = [
        f"{task.capitalize()}, from the best: {_order(result, task)}."
        for task in _TASKS
        if _medians(result, task, _KINDS)
    ]
    told = [one for one in criteria(result) if one.part.startswith("ReLU is worse")]
    for found, text in (
        (Outcome.HOLDS, "is worse than elu + 1 on"),
        (Outcome.OPPOSITE, "is better than elu + 1 on"),
        (Outcome.FAILS, "is not worse than elu + 1 in all seeds on"),
        (Outcome.NOT_DISTINGUISHABLE, "cannot be distinguished from elu + 1 with these seeds on"),
        (Outcome.NOT_REACHED, "and elu + 1 have learned too little to be compared on"),
    ):
        tasks = [one.part.split()[-1] for one in told if outcome(one) is found]
        if tasks:
            parts.append(f"ReLU {text} {' and '.join(tasks)}.")
    return " ".join([*parts, "Whether its zero gradient is the cause was not measured."])


def _figure_of(result: JsonDict) -> str:
    medians = _medians(result, "copy")
    if not medians:
        return ""
    least, most = (chosen(medians, key=lambda kind: medians[kind]) for chosen in (min, max))
    return f"copy: {_NAMES[least]} {medians[least]:.3f}, {_NAMES[most]} {medians[most]:.3f} nats"


def _headline(result: JsonDict) -> str:
    best = []
    for task in _TASKS:
        medians = _medians(result, task)
        if medians:
            best.append(f"{task} {_NAMES[min(medians, key=lambda k: medians[k])]}")
    return f"the best map: {', '.join(best)}" if best else "no map was trained"


def page(result: JsonDict, figures: Figures) -> Page:
    # Two pictures: three panels in one would be too small to read.
    picture = _learning(result, figures, "learning", ("copy", "recall"))
    text = _learning(result, figures, "text", ("text",))
    sections = [
        Section(
            "Three tasks",
            [
                "All models are the same except for the map of queries and keys, or softmax instead of "
                "it: two layers of 4 heads, 16 columns each, D 64. Copy: rows `w 0 w` of 32 tokens. "
                "Recall: "
                "8 keys and their values, then each key again. Text: characters of Shakespeare's plays "
                "in "
                "rows of 64. favor and rff draw their directions once per model, "
                f"{result['measured']['n_dims']} features per head. Degree 2 has 153 features per head, "
                "the others 16, so the size of the state differs between maps.",
                picture,
                text,
                _table(result),
                "The losses show which map learns better in this number of updates. They do not show "
                "that ReLU's zeros are the cause: ReLU squared has the same zeros.",
            ],
        )
    ]
    if _kernels(result):
        sections.append(_kernel_section(result, figures))
    tried = {
        one.name: "rate, rows and schedule are the same for all maps and come from the "
        "tasks' presets; none was tuned for a map."
        for one in criteria(result)
    }
    for one in criteria(result):
        if "exponent" in one.name:
            tried[one.name] = (
                "the fit begins at the size of a complete block of orthogonal directions."
            )
    return Page(
        short="The choice of the feature map matters; ReLU is worse",
        figure=_figure_of(result),
        scale=trainings(result["measured"]["runs"], counted(result, "maps")),
        headline=_headline(result),
        agrees=_agrees(result),
        picture=picture,
        sections=sections,
        theirs="none: the paper trains only with elu(x) + 1 and says that ReLU's gradient is "
        "zero for negative inputs",
        differences=[
            "the paper compares no maps; tasks and models here are small and trained for minutes",
            "rates are those of elu + 1's presets, which may favour it",
        ],
        tried=tried,
    )
