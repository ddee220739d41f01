"""What the scaling experiment tells: criteria and page."""

from __future__ import annotations

import math
import statistics

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
    size,
)

NAMES = {
    "linear": "linear",
    "softmax": "softmax, blocked",
    "naive": "softmax, naive",
    "reformer": "reformer",
}
_PROSE = {"softmax": "blocked softmax", "naive": "naive softmax", "reformer": "reformer"}
# Growth is fitted from here up. Naive softmax fits the memory for few lengths only: its time is
# fitted from the shortest one, its memory from where the fixed part of a process no longer weighs.
_FROM = 4096
_NAIVE_TIME_FROM, _NAIVE_MEMORY_FROM = 512, 1024
_LEAST_CALLS = 2  # a time of one call, without warm-up, is shown and not fitted


def _slope(result: JsonDict, form: str, width: int, what: str) -> float | None:
    for one in result["measured"]["slopes"]:
        if (one["form"], one["width"], one["dtype"]) == (form, width, "float32"):
            return one[what]
    return None


def _time_growth(
    result: JsonDict, form: str, width: int, key: str = "sample_s", dtype: str = "float32"
) -> float | None:
    """Exponent of time, over the lengths that were timed more than once."""
    rows = [row for row in _rows(result, form, width, dtype) if row["repeats"] >= _LEAST_CALLS]
    return _growth(rows, key, _NAIVE_TIME_FROM if form == "naive" else _FROM)


def _widths(result: JsonDict) -> list[int]:
    return sorted({row["width"] for row in result["measured"]["rows"]})


def _rows(result: JsonDict, form: str, width: int, dtype: str = "float32") -> list[JsonDict]:
    """Measured rows, by length."""
    return [
        row
        for row in result["measured"]["rows"]
        if row["fits"] and (row["form"], row["width"], row["dtype"]) == (form, width, dtype)
    ]


def _forms(result: JsonDict) -> list[str]:
    """The forms that were measured, in the order of the page."""
    there = {row["form"] for row in result["measured"]["rows"]}
    return [form for form in NAMES if form in there]


def criteria(result: JsonDict) -> list[Criterion]:
    """Growth of time and memory of linear attention and of both softmax forms,
    and where the crossover is. The paper's softmax keeps its scores, which is
    what grows as N^2 in memory; in blocks it does not, and that is only reported."""
    found = []
    for width in _widths(result):
        grows = lambda form, what: f"{NAMES[form]}, {width} wide: {what} grows as N to the power of"
        naive_memory = _growth(_rows(result, "naive", width), "sample_bytes")
        found += [
            Criterion.between(
                grows("linear", "time"),
                _time_growth(result, "linear", width),
                0.9,
                1.1,
                part="linear attention's time in proportion to N",
            ),
            Criterion.between(
                grows("linear", "memory"),
                _slope(result, "linear", width, "memory"),
                0.9,
                1.1,
                part="linear attention's memory in proportion to N",
            ),
            Criterion.between(
                grows("softmax", "time"),
                _time_growth(result, "softmax", width),
                1.8,
                2.2,
                part="blocked softmax's time as N^2",
            ),
            # Naive softmax's scores outgrow the caches on the way, which adds to N^2 but is
            # far from N^3.
            Criterion.between(
                grows("naive", "time"),
                _time_growth(result, "naive", width),
                1.8,
                2.5,
                part="naive softmax's time as N^2",
            ),
            Criterion.between(
                grows("naive", "memory"),
                naive_memory,
                1.8,
                2.2,
                part="naive softmax's memory as N^2",
            ),
            _reported(grows("softmax", "memory"), _slope(result, "softmax", width, "memory")),
            _crossover(result, width),
        ]
    return found


def _reported(name: str, value: float | None) -> Criterion:
    """A number that counts neither for the claim nor against it."""
    if value is None:
        return Criterion(name, "reported", "not measured", None, reported=True)
    return Criterion(name, "reported", f"{value:.4g}", True, reported=True)


def _growth(rows: list[JsonDict], key: str, least: int = _NAIVE_MEMORY_FROM) -> float | None:
    """Exponent p of N^p by least squares of the logarithms, over the lengths from
    `least` up; None of fewer than three."""
    points = [
        (math.log(row["seq_len"]), math.log(row[key]))
        for row in rows
        if row["seq_len"] >= least and row[key]
    ]
    if len(points) < 3:
        return None
    x, y = (statistics.fmean(axis) for axis in zip(*points))
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)


def _crossover(result: JsonDict, width: int) -> Criterion:
    name = f"{width} wide: length from which linear is faster"
    crossed = result["measured"]["crossover"].get(str(width))
    if crossed is None:
        return Criterion(name, "reported", "not measured", None, reported=True)
    at = [crossed["crossover_softmax"], crossed["crossover_naive"]]
    shortest = crossed["rows"][0]["seq_len"]
    texts = [
        "none" if x is None else f"N = {number(x)}" if x > shortest else f"every N from {shortest}"
        for x in at
    ]
    return Criterion(
        name,
        "reported",
        f"{texts[0]} against blocked softmax, {texts[1]} against naive",
        True,
        reported=True,
    )


def _ratio(result: JsonDict, other: str, width: int) -> tuple[int, float] | None:
    """(N, other's time over linear's) at the largest N that both have."""
    times = {row["seq_len"]: row["sample_s"] for row in _rows(result, "linear", width)}
    shared = [row for row in _rows(result, other, width) if row["seq_len"] in times]
    if not shared:
        return None
    last = max(shared, key=lambda row: row["seq_len"])
    return last["seq_len"], last["sample_s"] / times[last["seq_len"]]


def _figure(result: JsonDict, figures: Figures, width: int) -> Picture:
    def panel(key: str, scale: float, title: str, y: str) -> Panel:
        lines = [
            Series(
                NAMES[form],
                [
                    (row["seq_len"], row[key] * scale)
                    for row in _rows(result, form, width)
                    if row[key] is not None
                ],
                kind=form,
                marker=True,
            )
            for form in _forms(result)
        ]
        return Panel(lines, "sequence length N", y, title, log_x=True, log_y=True, x_base=2)

    return figures.lines(
        f"width-{width}",
        [
            panel("sample_s", 1e3, "Time of a sequence", "ms"),
            panel("sample_bytes", 1e-6, "Peak memory of a sequence", "MB"),
        ],
        f"Time and memory of one sequence against the sequence length, {width} wide",
        f"Causal attention with its gradient, 8 heads, {width} wide. Both axes are logarithmic: "
        "a straight line of slope 1 is linear growth, of slope 2 quadratic growth. A line ends "
        "where the next length does not fit into half of the memory or is not measured.",
    )


def _table(result: JsonDict, width: int, what: str) -> Table:
    """One row a length, one column a form."""
    rows = result["measured"]["rows"]
    forms, dtypes = _forms(result), list(dict.fromkeys(row["dtype"] for row in rows))
    columns = [
        (form, dtype)
        for dtype in dtypes
        for form in forms
        if any((r["form"], r["dtype"]) == (form, dtype) for r in rows)
    ]
    cells = {(r["form"], r["dtype"], r["seq_len"]): r for r in rows if r["width"] == width}
    head = ["N"] + [
        NAMES[form] + ("" if dtype == "float32" else f" ({dtype})") for form, dtype in columns
    ]
    body = [
        [number(n)] + [_cell(cells.get((form, dtype, n)), what) for form, dtype in columns]
        for n in sorted({row["seq_len"] for row in rows})
    ]
    return Table(head, body, _note(result, what))


def _cell(row: JsonDict | None, what: str) -> str:
    if row is None or row["fits"] is None:
        return "not measured"
    if not row["fits"]:
        return "does not fit"
    if what == "memory":
        if row["sample_bytes"] is None:
            return "not measured"
        return f"{size(row['sample_bytes'])}{_scaled(row)}"
    once = "" if row["repeats"] >= _LEAST_CALLS else ", one call"
    return f"{number(row['sample_s'] * 1e3)} ms{_scaled(row)}{once}"


def _scaled(row: JsonDict) -> str:
    """The mark of a point that was not measured on all heads."""
    return "" if row["heads"] == 8 else f" ({row['heads']} heads x {8 // row['heads']})"


def _note(result: JsonDict, what: str) -> str:
    half = size(result["measured"]["half_of_memory"])
    if what == "memory":
        return (
            "Peak resident memory above that of a process that has run 64 tokens, "
            "including inputs and gradients, measured on the first call of a fresh process "
            "and divided by the batch. Reformer's scratch memory does not scale with the "
            'heads: its memory is given only if all 8 ran. "does not fit": would exceed '
            f"half of the memory, {half}, extrapolated from the previous length."
        )
    measured = result["measured"]
    longest = ", ".join(
        f"{NAMES[form]} {number(seconds)}"
        for form, seconds in measured["longest_twice"].items()
        if form in _forms(result)
    )
    return (
        f"Fastest of up to {measured['repeats']} calls after two warm-up calls, divided by "
        f"the batch. Calls longer than these limits (in seconds) are timed once, without "
        f"warm-up: {longest}. Times of one call are marked and not used for fits of "
        "growth. Heads are independent: if a call takes long, only some of the 8 heads are "
        "measured, and time and memory are scaled, as marked."
    )


def _slopes(result: JsonDict) -> Table:
    rows = []
    for one in result["measured"]["slopes"]:
        of = (result, one["form"], one["width"])
        times = [_time_growth(*of, key, one["dtype"]) for key in ("sample_s", "sample_cpu_s")]
        memory = one["memory"]
        if one["form"] == "naive":
            memory = _growth(_rows(*of, one["dtype"]), "sample_bytes")
        if times[0] is not None:
            rows.append(
                [
                    NAMES[one["form"]],
                    one["width"],
                    one["dtype"],
                    *(number(value) for value in (*times, memory)),
                ]
            )
    return Table(
        ["attention", "width", "numbers", "time", "processor time", "memory"],
        rows,
        f"Exponent p of N^p: least squares of the logarithms over lengths of at least "
        f"{_FROM:,}, for naive softmax of at least {_NAIVE_TIME_FROM} (time) and "
        f"{_NAIVE_MEMORY_FROM:,} (memory). Times of a single call are left out. "
        "Processor "
        "time separates growth from other work on the machine.",
    )


def _least(result: JsonDict) -> str:
    parts = []
    for width in _widths(result):
        rows = _rows(result, "linear", width)
        if rows:
            last = rows[-1]
            parts.append(f"{last['sample_bytes'] / last['least_bytes']:.2f} times at {width} wide")
    return (
        "Queries, keys, values, the result, the gradients of all four and this form's one "
        "denominator per row take 8 N (8 D b + 4) bytes for 8 heads, D wide, with b bytes "
        f"per number. Linear attention takes {', '.join(parts)} as much at the longest N: "
        "its state does not depend on N."
        if parts
        else "Linear attention was not run."
    )


def _crossings(result: JsonDict) -> Table:
    rows = []
    for width, found in result["measured"]["crossover"].items():
        for row in found["rows"]:
            rows.append(
                [
                    int(width),
                    number(row["seq_len"]),
                    number(row["linear_s"] * 1e6),
                    f"{number(row['softmax_over_linear'])}x",
                    f"{number(row['naive_over_linear'])}x",
                ]
            )
    return Table(
        [
            "width",
            "N",
            "linear, us a sequence",
            "blocked softmax over linear",
            "naive softmax over linear",
        ],
        rows,
        "The three run in turn in one process, with the same number of tokens per "
        "call (4,096 except at the quick size); ratios are medians over pairs. The "
        "crossover is the length above which the ratio stays above 1, interpolated "
        "between two lengths on a logarithmic scale.",
    )


def _headline(result: JsonDict) -> str:
    slopes = [
        _time_growth(result, form, width)
        for form in ("linear", "softmax")
        for width in _widths(result)
    ]
    if not slopes or any(one is None for one in slopes):
        return "Lengths of at least 4,096 were not measured for both; no growth is fitted."
    half = len(slopes) // 2
    low, high = (
        " and ".join(dict.fromkeys(f"{s:.2f}" for s in part if s is not None))
        for part in (slopes[:half], slopes[half:])
    )
    ratios = [r for w in _widths(result) if (r := _ratio(result, "softmax", w))]
    faster = " and ".join(f"{number(r[1])}x" for r in ratios)
    return (
        f"Time grows as N^{low} (linear) and N^{high} (blocked softmax); "
        f"linear is {faster} faster at N = {ratios[0][0]:,}; softmax is faster "
        f"{_softmax_faster(result)}."
    )


def _figure_of(result: JsonDict) -> str:
    found = [one for width in _widths(result) if (one := _ratio(result, "softmax", width))]
    times = " and ".join(f"{number(ratio)}x" for _, ratio in found)
    return f"{times} as fast as blocked softmax at N = {found[0][0]:,}" if found else ""


def _softmax_faster(result: JsonDict) -> str:
    """The lengths at which either form of softmax is faster than linear: "to N =
    48" where these are the shortest ones measured, else each; by width where the
    widths differ."""
    faster, lengths = _faster(result), _lengths(result)
    told = {}
    for width in _widths(result):
        found = sorted({n for form in ("softmax", "naive") for n in faster.get((form, width), [])})
        told[width] = (
            "at no length measured"
            if not found
            else f"to N = {number(found[-1])}"
            if found == lengths[width][: len(found)]
            else f"at N = {_listed(found)}"
        )
    if len(set(told.values())) == 1:
        return next(iter(told.values()))
    return ", ".join(f"{text} ({width} wide)" for width, text in told.items())


def _lengths(result: JsonDict) -> dict[int, list[int]]:
    """The lengths at which linear attention is timed, short and long, by width."""
    crossed = result["measured"]["crossover"]
    return {
        width: sorted(
            {
                row["seq_len"]
                for rows in (
                    crossed.get(str(width), {"rows": []})["rows"],
                    _rows(result, "linear", width),
                )
                for row in rows
            }
        )
        for width in _widths(result)
    }


def _agrees(result: JsonDict) -> str:
    claims = [one for one in criteria(result) if one.claims]
    missed = [one for one in claims if one.holds is False]
    if any(one.holds is None for one in claims):
        text = "Growth is not fitted: that needs lengths of at least 4,096 for linear and softmax. "
    elif not missed:
        text = (
            "As in the paper, linear attention grows in proportion to N in time and "
            "memory. Softmax grows as N^2 in time, and also in memory if it stores its "
            "scores. "
        )
    else:
        found = "; ".join(f"{one.name} {one.got}, where {one.wanted} is required" for one in missed)
        text = (
            f"The paper's growth is met in {len(claims) - len(missed)} of {len(claims)} "
            f"criteria. The others are not: {found}. "
        )
    if not _rows(result, "linear", _widths(result)[0]):
        return text
    return text + _fastest(result) + _memory_of_softmax(result)


def _faster(result: JsonDict) -> dict[tuple[str, int], list[int]]:
    """The lengths at which a form is faster than linear attention, by form and width:
    among the short lengths, which are timed in turn, and among the long ones."""
    faster: dict[tuple[str, int], list[int]] = {}
    for width, crossed in result["measured"]["crossover"].items():
        for row in crossed["rows"]:
            for form in ("softmax", "naive"):
                if row[f"{form}_over_linear"] < 1:
                    faster.setdefault((form, int(width)), []).append(row["seq_len"])
    for width in _widths(result):
        linear = {row["seq_len"]: row["sample_s"] for row in _rows(result, "linear", width)}
        for form in ("softmax", "naive", "reformer"):
            for row in _rows(result, form, width):
                if row["sample_s"] < linear.get(row["seq_len"], 0.0):
                    faster.setdefault((form, width), []).append(row["seq_len"])
    return {key: sorted(set(lengths)) for key, lengths in sorted(faster.items())}


def _fastest(result: JsonDict) -> str:
    """Which form is faster than linear attention, and at which lengths."""
    if set(_forms(result)) == {"linear"}:
        return ""
    faster = _faster(result)
    if not faster:
        return "Linear attention is the fastest at every length measured. "
    parts = "; ".join(
        f"{_PROSE[form]} at N = {_listed(lengths)} ({width} wide)"
        for (form, width), lengths in faster.items()
    )
    return f"Another form is faster than linear attention at some lengths: {parts}. "


def _listed(lengths: list[int]) -> str:
    return ", ".join(number(one) for one in lengths)


def _memory_of_softmax(result: JsonDict) -> str:
    """How the blocked form's memory grows, as measured; nothing where it is not."""
    grown = [
        one
        for width in _widths(result)
        if (one := _slope(result, "softmax", width, "memory")) is not None
    ]
    if not grown:
        return ""
    powers = " and ".join(dict.fromkeys(f"N^{one:.2f}" for one in grown))
    if max(grown) > 1.1:
        return f"The blocked form's memory grows as {powers}."
    return (
        f"Softmax in blocks, as FlashAttention computes it, also needs memory in "
        f"proportion to N ({powers}): compared with it, the difference is only in time."
    )


def _tried(result: JsonDict) -> dict[str, str]:
    """What was done for each criterion, printed where it is missed."""
    told = {}
    for one in criteria(result):
        if "memory" in one.name:
            told[one.name] = (
                "The gradient rebuilds the state in two sweeps over time, so no state is "
                "stored per token; results and scratch memory come from a cache of blocks that "
                "keeps at most a quarter more than the peak."
            )
        elif "linear" in one.name:
            told[one.name] = (
                "Buffers are reused between repeats (new pages would cost as much as the "
                "attention), results and scratch memory use huge pages, and batches bring "
                "short lengths to the same number of tokens."
            )
        else:
            told[one.name] = (
                "Batches bring short lengths to the same number of tokens, and a long call is "
                "measured on as many heads as there are threads, one each."
            )
    return told


def page(result: JsonDict, figures: Figures) -> Page:
    widths, tokens = _widths(result), result["measured"]["tokens"]
    pictures = {width: _figure(result, figures, width) for width in widths}
    sections = []
    for width in widths:
        sections.append(
            Section(
                f"{width} wide",
                [
                    pictures[width],
                    "Time of a sequence:",
                    _table(result, width, "time"),
                    "Peak memory of a sequence:",
                    _table(result, width, "memory"),
                ],
            )
        )
    growth = [_slopes(result)] if _slopes(result).rows else []
    sections.append(Section("Growth", [*growth, _least(result)]))
    if result["measured"]["crossover"]:
        sections.append(Section("Crossover", [_crossings(result)]))
    longest = max(row["seq_len"] for row in result["measured"]["rows"])
    return Page(
        short="Time and memory grow with N, softmax's with N^2",
        figure=_figure_of(result),
        scale=f"attention alone, {result['measured']['heads']} heads, "
        f"{' and '.join(map(str, widths))} wide, N up to {longest:,}, random inputs",
        headline=_headline(result),
        agrees=_agrees(result),
        theirs="Curves without numbers: linear and LSH attention grow linearly, softmax "
        "quadratically; in 11 GB softmax fits up to N = 4,096 and LSH up to 16,384; "
        "linear is faster and smaller at every length.",
        differences=(
            "A CPU instead of a GTX 1080 Ti with 11 GB.",
            "The paper does not give heads and widths; here there are 8 heads, "
            f"{' and '.join(map(str, widths))} wide.",
            f"Batch times N is {number(tokens['linear'])} tokens (linear), "
            f"{number(tokens['softmax'])} (softmax) or {number(tokens['reformer'])} (reformer), "
            "and one sequence beyond that.",
            "Softmax has two forms: naive (stores the N x N scores, as in the paper) and "
            "blocked (never has all scores in memory, as in FlashAttention).",
            "Reformer has 4 rounds, chunks of 32 and 64 buckets, as in the paper's copy task, "
            "and no reversible layers, as in the paper.",
            "Inputs are random; attention is measured alone, without projections.",
        ),
        sections=sections,
        picture=pictures[widths[-1]] if widths else None,
        tried=_tried(result),
    )
