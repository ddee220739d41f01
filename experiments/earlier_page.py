"""The page of the earlier models, from its stored result."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

from experiments.core import (
    Criterion,
    Evidence,
    Figures,
    JsonDict,
    Learner,
    Page,
    Panel,
    Picture,
    Section,
    Series,
    Table,
    learner,
    number,
    paired,
    value_at,
    why,
)
from experiments.core.baselines import CAPTION, best
from experiments.core.scale import trainings

_NAMES = {"rnn": "RNN", "lstm": "LSTM", "cnn": "CNN", "linear": "linear", "softmax": "softmax"}
_COLOURS = {
    "rnn": "naive",
    "lstm": "lstm",
    "cnn": "reformer",
    "linear": "linear",
    "softmax": "softmax",
}
_RECURRENT = ("rnn", "lstm")
_FLAT = 1.25  # times: a cost that does not grow with the context
_GROWS = 2.0
_PARITY = 0.05  # bits per byte
_SEQUENTIAL = 1.5  # times: one row of as many tokens over many rows


def _kinds(result: JsonDict) -> list[str]:
    """The kinds that were run, in the order of the tables."""
    there = {run["kind"] for run in result["measured"]["runs"]}
    return [kind for kind in _NAMES if kind in there]


def _runs(result: JsonDict, kind: str) -> list[JsonDict]:
    return [run for run in result["measured"]["runs"] if run["kind"] == kind]


_TIME, _UPDATES = "elapsed_s", "step"  # of an evaluation


def _common(result: JsonDict, clock: str) -> float:
    """Seconds or updates that every run came to, at its last evaluation."""
    return min(run["held_out"][-1][clock] for run in result["measured"]["runs"])


def _bits(result: JsonDict, kind: str, clock: str = _TIME) -> list[float]:
    """The seeds' held-out bits after the seconds or updates that every run came to; none
    where a run was first evaluated later."""
    place = _common(result, clock)
    found = [value_at(run["held_out"], place, clock, "bits") for run in _runs(result, kind)]
    return [] if None in found else [one for one in found if one is not None]


def _median(result: JsonDict, kind: str, clock: str = _TIME) -> float | None:
    found = _bits(result, kind, clock)
    return statistics.median(found) if found else None


def _medians(result: JsonDict, kinds: Sequence[str], clock: str = _TIME) -> dict[str, float]:
    """The medians of the kinds that have one, from the best to the worst."""
    found = {kind: _median(result, kind, clock) for kind in kinds}
    known = {kind: value for kind, value in found.items() if value is not None}
    return dict(sorted(known.items(), key=lambda one: one[1]))


# --- Criteria -----------------------------------------------------------------


def _unmeasured(name: str, wanted: str, part: str) -> Criterion:
    return Criterion(name, wanted, "not measured", None, part=part)


def _reported(one: Criterion) -> Criterion:
    """Shown for reference only; it does not affect the claim."""
    return dataclasses.replace(
        one,
        wanted="reported",
        holds=None if one.holds is None else True,
        opposite=False,
        reported=True,
    )


def _learner(result: JsonDict, kind: str, clock: str) -> Learner:
    trivial = best(result, "earlier/text")
    return learner(
        _NAMES[kind],
        _runs(result, kind),
        "bits",
        trivial.value if trivial else None,
        value=_median(result, kind, clock),
    )


def _apart(
    result: JsonDict,
    better: str,
    worse: str,
    clock: str,
    slack: float = 0.0,
) -> list[Evidence]:
    """Two kinds by their seeds, after the updates or the seconds that all runs came to."""
    place = _common(result, clock)
    at = {
        kind: {
            run["seed"]: value_at(run["held_out"], place, clock, "bits")
            for run in _runs(result, kind)
        }
        for kind in (better, worse)
    }

    def margin(ours: JsonDict, theirs: JsonDict) -> float | None:
        low, high = at[better][ours["seed"]], at[worse][theirs["seed"]]
        return None if low is None or high is None else high - low + slack

    return [
        Evidence(
            [_learner(result, better, clock)],
            [_learner(result, worse, clock)],
            paired(_runs(result, better), _runs(result, worse), margin),
            slack,
        )
    ]


def _better(
    result: JsonDict, kinds: Sequence[str], than: Sequence[str], clock: str, part: str
) -> Criterion:
    """Whether the worst of `kinds` is below the best of `than`, by medians;
    the opposite where no seed of it does."""
    when = "the same updates" if clock == _UPDATES else "the same time"
    name = (
        f"held-out bits per byte after {when}: {' and '.join(_NAMES[k] for k in kinds)} "
        "against "
        f"the best of {', '.join(_NAMES[k] for k in than)}"
    )
    wanted = "lower, all seeds"
    if result["size"] == "quick" or not {*kinds, *than} <= {*_kinds(result)}:
        return _unmeasured(name, wanted, part)
    own, other = (_medians(result, some, clock) for some in (kinds, than))
    if len(own) < len(kinds) or len(other) < len(than):
        return _unmeasured(name, wanted, part)
    worst, least = [*own][-1], next(iter(other))
    ours, theirs = _bits(result, worst, clock), _bits(result, least, clock)
    got = (
        f"{own[worst]:.3f} ({_NAMES[worst]}) against {other[least]:.3f} ({_NAMES[least]}), "
        "after "
        f"{_place(result, clock)}"
    )
    return Criterion(
        name,
        wanted,
        got,
        max(ours) < min(theirs),
        part=part,
        opposite=min(ours) > max(theirs),
        evidence=_apart(result, worst, least, clock),
    )


def _place(result: JsonDict, clock: str) -> str:
    """The common one in words: "22.1 s"."""
    place = _common(result, clock)
    return f"{place:,} updates" if clock == _UPDATES else f"{number(place)} s"


def _parity(result: JsonDict) -> Criterion:
    name = "linear's bits per byte minus softmax's, after the same time"
    wanted = f"at most {_PARITY:g}"
    part = "linear trains as well as softmax"
    if result["size"] == "quick" or not {"linear", "softmax"} <= {*_kinds(result)}:
        return _unmeasured(name, wanted, part)
    linear, softmax = (_median(result, kind) for kind in ("linear", "softmax"))
    if linear is None or softmax is None:
        return _unmeasured(name, wanted, part)
    more = linear - softmax
    apart = min(_bits(result, "linear")) > max(_bits(result, "softmax"))
    return Criterion(
        name,
        wanted,
        f"{more:+.3f} after {_place(result, _TIME)}",
        more <= _PARITY,
        part=part,
        opposite=more > 2 * _PARITY and apart,
        evidence=_apart(result, "linear", "softmax", _TIME, _PARITY),
    )


def _growth(result: JsonDict, kind: str) -> float | None:
    """Time of a token after the longest context over that after the shortest."""
    rows = sorted(
        (row for row in result["measured"]["tokens"] if row["kind"] == kind),
        key=lambda row: row["context"],
    )
    return rows[-1]["us"] / rows[0]["us"] if len(rows) > 1 and rows[0]["us"] > 0 else None


def _cost(result: JsonDict, kind: str) -> Criterion:
    """The time of a token must not grow with the context, for all but softmax attention."""
    contexts = sorted({row["context"] for row in result["measured"]["tokens"]})
    name = (
        f"{_NAMES[kind]}: time of a token after {number(contexts[-1])} over that after "
        f"{number(contexts[0])}"
    )
    growth = _growth(result, kind) if result["size"] != "quick" else None
    grows = kind == "softmax"
    part = (
        "softmax's cost grows with the context"
        if grows
        else "linear generates at a constant cost"
        if kind == "linear"
        else "recurrent networks generate at a constant cost"
        if kind in _RECURRENT
        else "convolutions generate at a constant cost"
    )
    if grows:
        return Criterion.at_least(
            name, growth, _GROWS, "x", part=part, opposite=growth is not None and growth < 1
        )
    return Criterion.at_most(
        name, growth, _FLAT, "x", part=part, opposite=growth is not None and growth > _GROWS
    )


def _sequential(result: JsonDict, kind: str) -> Criterion:
    """Compares an update of one long row with one of as many tokens in many rows: within one
    row a recurrent network can compute nothing in parallel."""
    batch, seq_len = result["measured"]["many_rows"]
    recurrent = kind in _RECURRENT
    name = (
        f"{_NAMES[kind]}: an update of one row of {number(batch * seq_len)} tokens over one "
        f"of {batch} rows of {seq_len}"
    )
    part = (
        "recurrent networks train one position after the other"
        if recurrent
        else "linear trains all positions at once"
    )
    found = [one for one in result["measured"]["updates"] if one["kind"] == kind]
    ratio = None
    if found and result["size"] != "quick":
        ratio = found[0]["one_row_ms"] / found[0]["many_rows_ms"]
    if recurrent:
        return Criterion.at_least(
            name, ratio, _SEQUENTIAL, "x", part=part, opposite=ratio is not None and ratio < 1
        )
    return Criterion.at_most(
        name, ratio, _FLAT, "x", part=part, opposite=ratio is not None and ratio > _GROWS
    )


def _equal(result: JsonDict) -> Criterion:
    """The other comparisons assume models of comparable size."""
    counts = [run["parameters"] for run in result["measured"]["runs"]]
    name = "largest over smallest number of parameters"
    ratio = max(counts) / min(counts) if len(_kinds(result)) > 1 else None
    if ratio is None:
        return Criterion.at_most(name, None, 1.1, "x", goal=True)
    return Criterion.at_most(
        name, ratio if result["size"] != "quick" else None, 1.1, "x", goal=True
    )


def criteria(result: JsonDict) -> list[Criterion]:
    transformers = ("linear", "softmax")
    return [
        *(_cost(result, kind) for kind in _RECURRENT),
        _reported(_cost(result, "cnn")),
        *(_sequential(result, kind) for kind in _RECURRENT),
        _better(
            result,
            transformers,
            _RECURRENT,
            _UPDATES,
            "transformers learn more from an update than recurrent networks",
        ),
        _better(
            result,
            transformers,
            _RECURRENT,
            _TIME,
            "transformers learn more in a time than recurrent networks",
        ),
        _reported(
            _better(
                result,
                transformers,
                ("cnn",),
                _TIME,
                "transformers learn more in a time than convolutions",
            )
        ),
        _cost(result, "softmax"),
        _parity(result),
        _cost(result, "linear"),
        _sequential(result, "linear"),
        _equal(result),
    ]


# --- The page -----------------------------------------------------------------


def _curves(result: JsonDict, x: str) -> list[Series]:
    """A line a kind: the median of its seeds, and their range around it."""
    lines = []
    for kind in _kinds(result):
        points, band = [], []
        for row in zip(*(run["held_out"] for run in _runs(result, kind))):
            place = statistics.median(one[x] for one in row)
            bits = [one["bits"] for one in row]
            points.append((place, statistics.median(bits)))
            band.append((place, min(bits), max(bits)))
        lines.append(Series(_NAMES[kind], points, _COLOURS[kind], band=band))
    trivial = best(result, "earlier/text")
    return lines + (trivial.line(lines) if trivial else [])


def _learning(result: JsonDict, figures: Figures) -> Picture:
    panels = [
        Panel(
            _curves(result, "step"), "updates", "held-out bits per byte", "By updates", log_x=True
        ),
        Panel(_curves(result, "elapsed_s"), "seconds", "", "By time", log_x=True),
    ]
    return figures.lines(
        "learning",
        panels,
        "Held-out bits per byte of five models over updates and over seconds",
        "Medians of the seeds and their range. Rates are constant after warm-up, so that each "
        "point of a curve is the end of a shorter run."
        + (CAPTION if best(result, "earlier/text") else ""),
    )


def _generating(result: JsonDict, figures: Figures) -> Picture:
    lines = []
    for kind in _kinds(result):
        rows = sorted(
            (row for row in result["measured"]["tokens"] if row["kind"] == kind),
            key=lambda row: row["context"],
        )
        lines.append(
            Series(
                _NAMES[kind],
                [(row["context"], row["us"]) for row in rows],
                _COLOURS[kind],
                marker=True,
                band=[(row["context"], row["least_us"], row["most_us"]) for row in rows],
            )
        )
    contexts = sorted({row["context"] for row in result["measured"]["tokens"]})
    return figures.lines(
        "token",
        Panel(
            lines,
            "tokens of context",
            "microseconds per token",
            log_x=True,
            log_y=True,
            x_ticks=contexts,
        ),
        "Time of one more token by length of the context",
        "One sequence, with random weights of the same shapes, which do not affect the time; "
        "medians over the rounds and their range.",
    )


def _table(result: JsonDict) -> Table:
    rows = []
    times = {one["kind"]: one for one in result["measured"]["updates"]}
    for kind in _kinds(result):
        runs = _runs(result, kind)
        bits = _bits(result, kind)
        spread = f"{min(bits):.3f} to {max(bits):.3f}" if len(bits) > 1 else None
        medians = [_median(result, kind, clock) for clock in (_UPDATES, _TIME)]
        rows.append(
            [
                _NAMES[kind],
                f"{runs[0]['parameters']:,}",
                f"{result['measured']['rates'][kind]:g}",
                number(times[kind]["ms"]),
                number(times[kind]["many_rows_ms"]),
                number(times[kind]["one_row_ms"]),
                f"{runs[0]['updates']:,}",
                *(None if one is None else f"{one:.3f}" for one in medians),
                spread,
                _spread_of([run["seconds"] for run in runs]),
                number(statistics.median(run["cpu_seconds"] for run in runs)),
            ]
        )
    trivial = best(result, "earlier/text")
    if trivial:
        bits = f"{trivial.value:.3f}"
        rows.append([trivial.title, *[None] * 6, bits, bits, None, trivial.time, None])
    batch, seq_len = result["measured"]["rows"]
    many = result["measured"]["many_rows"]
    return Table(
        [
            "model",
            "parameters",
            "rate",
            "ms per update",
            "many rows",
            "one row",
            "updates",
            f"bits after {_place(result, _UPDATES)}",
            f"bits after {_place(result, _TIME)}",
            "seeds",
            "seconds",
            "CPU seconds",
        ],
        rows,
        f"An update reads {batch} rows of {seq_len} characters. Many rows and one row: ms per "
        f"update of {many[0]} rows of {many[1]}, and of one row with as many characters. Bits "
        "per byte of held-out text are medians over the seeds after the updates and the "
        "seconds that all runs reached, interpolated linearly between two evaluations. Seconds "
        "are measured by the trainer and include evaluations: median and range of the seeds.",
    )


def _spread_of(values: Sequence[float]) -> str:
    """Median and range."""
    text = number(statistics.median(values))
    return text if len(values) < 2 else f"{text} ({number(min(values))} to {number(max(values))})"


def _token_table(result: JsonDict) -> Table:
    contexts = sorted({row["context"] for row in result["measured"]["tokens"]})
    times = {(row["kind"], row["context"]): row["us"] for row in result["measured"]["tokens"]}
    rows = []
    for kind in _kinds(result):
        growth = _growth(result, kind)
        rows.append(
            [
                _NAMES[kind],
                *(number(times[kind, one]) for one in contexts),
                None if growth is None else f"{growth:.2f}x",
            ]
        )
    return Table(
        ["model", *(f"after {number(one)}" for one in contexts), "growth"],
        rows,
        "Microseconds per token.",
    )


def _agrees(result: JsonDict) -> str:
    if result["size"] == "quick":
        return "This size is too short to say."
    text = (
        f"Held-out bits per byte after {_place(result, _TIME)}, from the best: "
        + ", ".join(
            f"{_NAMES[kind]} {value:.3f}"
            for kind, value in _medians(result, _kinds(result)).items()
        )
        + ". "
    )
    growths = {kind: _growth(result, kind) for kind in _kinds(result)}
    text += (
        "Time of a token after the longest context over that after the shortest: "
        + ", ".join(
            f"{_NAMES[kind]} {growth:.2f}x"
            for kind, growth in growths.items()
            if growth is not None
        )
        + "."
    )
    undecided = dict.fromkeys(one.part for one in criteria(result) if why(one))
    if undecided:
        text += f" These runs do not decide whether {'; whether '.join(undecided)}."
    return text


def _figure_of(result: JsonDict) -> str:
    medians, trivial = _medians(result, _kinds(result)), best(result, "earlier/text")
    told = [
        f"{_NAMES[kind]} {medians[kind]:.3f}"
        for kind in ("linear", "softmax", "lstm")
        if kind in medians
    ]
    told += [f"{trivial.name} {trivial.value:.3f}"] if trivial else []
    return f"bits per byte: {', '.join(told)}"


def _headline(result: JsonDict) -> str:
    medians = _medians(result, _kinds(result))
    if not medians:
        return "no time that all runs reached"
    text = f"{_NAMES[next(iter(medians))]} has the lowest loss after {_place(result, _TIME)}"
    told = [
        f"{_NAMES[kind]} {medians[kind]:.3f}"
        for kind in ("linear", "softmax", "lstm")
        if kind in medians
    ]
    return f"{text}; bits per byte: {', '.join(told)}" if told else text


def _shortest_and_longest(result: JsonDict) -> str:
    taken = [run["seconds"] for run in result["measured"]["runs"]]
    low, high = number(min(taken)), number(max(taken))
    return f"{low} seconds" if low == high else f"{low} to {high} seconds"


def page(result: JsonDict, figures: Figures) -> Page:
    picture = _learning(result, figures)
    batch, seq_len = result["measured"]["rows"]
    models = result["measured"]["models"]
    shapes = "; ".join(
        f"{_NAMES[kind]}: {keys['n_layers']} layer{'s' if keys['n_layers'] > 1 else ''}, "
        f"D {keys['d_model']}"
        + (f", {keys['n_heads']} heads" if "n_heads" in keys else "")
        + (f", {keys['kernel_size']} tokens wide" if "kernel_size" in keys else "")
        for kind, keys in models.items()
    )
    seen = {
        kind: 1 + keys["n_layers"] * (keys["kernel_size"] - 1)
        for kind, keys in models.items()
        if "kernel_size" in keys
    }
    about = [
        f"Characters of Shakespeare's plays, in rows of {seq_len}, batch {batch}, AdamW. "
        f"{shapes}. Each model is given the number of updates that should fit into "
        f"{number(result['measured']['seconds'])} seconds, estimated from the time of an "
        f"update. The runs took {_shortest_and_longest(result)} and are compared at the last "
        "point that all of them reached. Rates were chosen for each model in short runs "
        "beforehand, sizes only by the number of parameters. Recurrent networks are torch's; "
        "their state begins at zero in every row.",
        picture,
        _table(result),
    ]
    token = [
        "Time of one more token of one sequence with the Python package. Recurrent "
        "networks and linear attention carry a state of fixed size; softmax attention "
        "keeps all keys and values. Both transformers have sinusoidal positions here and "
        "rotary positions in training"
        + (
            f"; the convolutions see {seen['cnn']} tokens and recompute them, because the "
            "package keeps no state for them"
            if seen
            else ""
        )
        + ".",
        _generating(result, figures),
        _token_table(result),
    ]
    tried = "no further attempt was made beyond the choice of rates described above."
    return Page(
        short="Linear trains as well as softmax and generates at the cost of an RNN",
        figure=_figure_of(result),
        scale=trainings(result["measured"]["runs"]),
        headline=_headline(result),
        agrees=_agrees(result),
        picture=picture,
        theirs="none",
        differences=[
            "the paper trains no language model and compares with a recurrent network only in "
            "speech",
            f"rows of {seq_len} characters: earlier text is not used, which favours models "
            "with a short memory and a short-range mixer",
            "a CPU has few cores, so sequential steps leave less of it idle than of a GPU",
            "a constant rate, and no dropout",
        ],
        sections=[Section("Training", about), Section("Generating", token)],
        tried={one.name: tried for one in criteria(result)},
    )
