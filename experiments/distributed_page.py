"""The page of training on several machines, from its stored result."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

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
from experiments.core.scale import parameters
from experiments.distributed_tables import (
    clusters_section,
    memory_section,
    passing_predicted_section,
    trained_section,
)

_OPS = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "broadcast": "broadcast",
}
_COLOURS = ("linear", "softmax", "reformer", "naive", "cached", "lstm", "bound")
_LEAST_COUNTED = 1 << 16  # bytes: of less, headers are a large part
_MEDIAN, _STEP_MEDIAN, _WIRE, _GROWS = 25.0, 35.0, 10.0, 1.05
_LEAST_MEMORY = 0.3  # of one rank's, on each of four: a quarter, and the program itself


def _measured(result: JsonDict) -> JsonDict:
    return result["measured"]


def _timed(result: JsonDict, value: float | None) -> float | None:
    """Times of a smoke run decide nothing."""
    return None if result["size"] == "quick" else value


# --- Criteria -----------------------------------------------------------------


def _passed(result: JsonDict, op: str, key: str, on: str, ranks: int) -> list[tuple[int, float]]:
    """(tokens, figure) of what was passed on, by length."""
    return sorted(
        (row["length"], row[key])
        for row in _measured(result)["passing"]
        if row["op"] == op
        and row["network"] == on
        and row["ranks"] == ranks
        and row[key] is not None
    )


def _series(result: JsonDict) -> list[tuple[str, int]]:
    """Networks and ranks over which something was passed on."""
    return list(
        dict.fromkeys((row["network"], row["ranks"]) for row in _measured(result)["passing"])
    )


def _growth(result: JsonDict) -> float | None:
    """Bytes of the states, longest length over shortest; the worst of all."""
    found = [
        points[-1][1] / points[0][1]
        for one in _series(result)
        if len(points := _passed(result, "all_gather", "sent", *one)) > 1
    ]
    return max(found, default=None)


def _exponents(result: JsonDict) -> list[float]:
    """The exponents of the bytes of keys and values over the length, one a network and ranks."""
    return [
        math.log(points[-1][1] / points[0][1]) / math.log(points[-1][0] / points[0][0])
        for one in _series(result)
        if len(points := _passed(result, "ring", "sent", *one)) > 1
    ]


def _keys_grow(result: JsonDict) -> Criterion:
    found = _exponents(result)
    worst = max(found, key=lambda one: abs(one - 1)) if found else None
    return Criterion.between(
        "ring attention: exponent of the bytes over the length",
        worst,
        0.95,
        1.05,
        part="keys and values grow with the length",
    )


def _longest(result: JsonDict) -> list[tuple[str, int, int, float, float]]:
    """Network, ranks, the longest length that both were measured at, seconds of states and of
    keys and values."""
    found = []
    for on, ranks in _series(result):
        states = dict(_passed(result, "all_gather", "seconds", on, ranks))
        pairs = dict(_passed(result, "ring", "seconds", on, ranks))
        both = sorted(set(states) & set(pairs))
        if both:
            found.append((on, ranks, both[-1], states[both[-1]], pairs[both[-1]]))
    return found


def _faster(result: JsonDict) -> Criterion:
    worst = max((states / pairs for *_, states, pairs in _longest(result)), default=None)
    found = _timed(result, worst)
    return Criterion.at_most(
        "time to exchange states over that for keys and values, longest length, worst network",
        found,
        1,
        part="states take less time",
        opposite=found is not None and found > 1,
    )


def _trainer_growth(result: JsonDict) -> Criterion:
    """How the bytes of a sequence parallel update grow with the row in the trainer itself."""
    ratios = []
    rows = [
        row for row in _measured(result)["trained"] if row["mode"] == "sequence" and row["sent"]
    ]
    for ranks in sorted({row["ranks"] for row in rows}):
        own = sorted((row["tokens"], row["sent"]) for row in rows if row["ranks"] == ranks)
        if len(own) > 1:
            ratios.append(own[-1][1] / own[0][1])
    found = max(ratios, default=None)
    return Criterion.at_most(
        "trainer: bytes of an update, sequence parallel, longest row over shortest",
        found,
        _GROWS,
        "x",
        part="bytes of the trainer do not grow with the length",
        opposite=found is not None and found > 2,
    )


def _memory(result: JsonDict) -> Criterion:
    """A rank's peak memory in the trainer, on the longest row. A smoke run tells nothing: its
    row takes less memory than the program."""
    held = {(row["tokens"], row["ranks"]): row["peak_bytes"] for row in _measured(result)["held"]}
    longest = max((tokens for tokens, _ in held), default=0)
    found = held[longest, 4] / held[longest, 1] if (longest, 4) in held else None
    return Criterion.at_most(
        "trainer: peak memory of a rank of four over that of one, longest row",
        found,
        _LEAST_MEMORY,
        "x",
        part="memory of a rank falls with the number of ranks",
        opposite=found is not None and found > 0.9,
    )


def _wire_errors(result: JsonDict) -> list[float]:
    """Per cent that counted bytes differ from those of the formulas, where there are enough."""
    from experiments.ranks import alpha_beta

    measured = _measured(result)
    rows = [*measured["rows"], *measured["passing"]]
    found = [
        abs(row["sent"] / alpha_beta.sent(row["op"], row["bytes"], row["ranks"]) - 1)
        for row in rows
        if row["sent"] and row["bytes"] >= _LEAST_COUNTED
    ]
    if result["size"] != "quick":  # whose updates are over before they can be told apart
        found += [
            abs(row["sent"] / row["foretold_sent"] - 1)
            for row in measured["trained"]
            if row["sent"] and "foretold_sent" in row
        ]
    return [100 * one for one in found]


def _checked(result: JsonDict) -> list[JsonDict]:
    """Points that nothing was fitted to, each with its error in per cent."""
    return [
        row | {"error": 100 * abs(row["foretold_s"] / row["seconds"] - 1)}
        for row in _measured(result)["rows"]
        if not row["fitted"]
    ]


def _steps(result: JsonDict) -> list[float]:
    """By how many per cent the steps of several ranks differ from the prediction."""
    return [
        100 * abs(row["foretold_s"] / row["step_s"] - 1)
        for row in _measured(result)["trained"]
        if "foretold_s" in row
    ]


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def criteria(result: JsonDict) -> list[Criterion]:
    growth = _growth(result)
    errors = [row["error"] for row in _checked(result)]
    worst = _timed(result, max(errors, default=None))
    return [
        Criterion.at_most(
            "states: bytes at the longest length over the shortest",
            growth,
            _GROWS,
            "x",
            part="bytes of states do not grow with the length",
            opposite=growth is not None and growth > 2,
        ),
        _trainer_growth(result),
        _memory(result),
        _keys_grow(result),
        _faster(result),
        Criterion.at_most(
            "largest difference between bytes on the wire and the formulas",
            max(_wire_errors(result), default=None),
            _WIRE,
            "%",
            part="the algorithms are those of the model",
        ),
        Criterion.at_most(
            "model: median error on points not used for the fit",
            _timed(result, _median(errors)),
            _MEDIAN,
            "%",
            part="the model predicts collectives",
        ),
        Criterion(
            "model: worst error on such a point",
            "reported",
            "not measured" if worst is None else f"{worst:.3g} %",
            None if worst is None else True,
            reported=True,
        ),
        Criterion.at_most(
            "trainer: median error of the predicted time of an update",
            _timed(result, _median(_steps(result))),
            _STEP_MEDIAN,
            "%",
            part="the model predicts updates",
        ),
    ]


# --- The page -----------------------------------------------------------------


def _panel(result: JsonDict, op: str, ranks: int) -> Panel:
    """Measured times as points, the model's as dotted lines of the same colour."""
    lines = []
    for index, on in enumerate(_measured(result)["networks"]):
        rows = [
            row
            for row in _measured(result)["rows"]
            if row["network"] == on["name"] and row["op"] == op and row["ranks"] == ranks
        ]
        colour = _COLOURS[index % len(_COLOURS)]
        lines.append(
            Series(
                on["name"], [(r["bytes"], 1e3 * r["seconds"]) for r in rows], colour, marker=True
            )
        )
        lines.append(
            Series(
                "", [(r["bytes"], 1e3 * r["foretold_s"]) for r in rows], colour, dash=2, faint=True
            )
        )
    return Panel(
        lines,
        "bytes",
        "ms",
        f"{_OPS[op].capitalize()}, {ranks} ranks",
        log_x=True,
        log_y=True,
        x_base=2,
    )


def _most(result: JsonDict) -> int:
    """The number of ranks that most points have, of the larger ones: 4 where it was measured."""
    known = sorted({row["ranks"] for row in _measured(result)["rows"]})
    return 4 if 4 in known else known[-1]


def _collectives_section(result: JsonDict, figures: Figures) -> Section:
    ranks = _most(result)
    pictures = [
        figures.lines(
            name,
            _panel(result, op, ranks),
            f"Time of {_OPS[op]} by bytes and network, {ranks} ranks",
            "Lines with points: measured. Dotted: the model, fitted to half of the sizes.",
        )
        for name, op in (("reduce", "all_reduce"), ("gather", "all_gather"))
    ]
    rows = []
    for op, word in _OPS.items():
        own = [row for row in _measured(result)["rows"] if row["op"] == op]
        checked = [row["error"] for row in _checked(result) if row["op"] == op]
        rows.append(
            [word, len(own), _percent(_median(checked)), _percent(max(checked, default=None))]
        )
    table = Table(
        ["collective", "points", "median error outside the fit, %", "worst error, %"], rows
    )
    return Section(
        "Collectives",
        [
            "torch's Gloo, float32, one process per rank. Times are medians of the repeats, from "
            "the start of the last rank to the end of the last one; all share one clock.",
            *pictures,
            table,
        ],
    )


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{value:.3g}"


def _reached(result: JsonDict, on: JsonDict) -> list[object]:
    """What a network was asked for and what two ranks saw of it."""
    rows = [
        row
        for row in _measured(result)["rows"]
        if row["network"] == on["name"]
        and row["ranks"] == min(r["ranks"] for r in _measured(result)["rows"])
        and row["op"] == "broadcast"
    ]
    first, last = min(rows, key=lambda r: r["bytes"]), max(rows, key=lambda r: r["bytes"])
    asked = [f"{1e3 * on['latency_s']:g}", f"{on['rate_bit_s'] / 1e9:g}"]
    return [
        on["name"],
        *(asked if on["simulated"] else [None, None]),
        number(1e3 * first["seconds"]),
        number(8e-9 * last["bytes"] / last["seconds"]),
    ]


def _network_section(result: JsonDict) -> Section:
    measured = _measured(result)
    rows = [_reached(result, on) for on in measured["networks"]]
    parts: list[str | Table | Picture] = [
        "A node is a network namespace with a TUN device; between nodes a program delays each "
        "packet and forwards it at the given rate. The ranks and this program share "
        f"{measured['cores']} cores, which limits the rate: the last column is the maximum.",
        Table(
            [
                "network",
                "given: ms one way",
                "given: Gbit/s",
                "broadcast, fewest bytes, ms",
                "broadcast, most bytes, Gbit/s",
            ],
            rows,
            "The last two columns are for two ranks.",
        ),
    ]
    if measured["refused"]:
        parts.append(
            f"There is no simulated network on this machine: {measured['refused']}. "
            "The following was measured only on the loopback device, whose bytes are "
            "not counted."
        )
    return Section("The network", parts)


def _model_section(result: JsonDict) -> Section:
    rows = [
        [
            kind,
            number(1e6 * fit["call_s"]),
            number(1e6 * fit["message_s"]),
            number(1e9 * fit["byte_s"]),
            fit["fitted"]["count"],
            _percent(_times(fit["fitted"]["median"], 100)),
            fit["checked"]["count"],
            _percent(_times(fit["checked"]["median"], 100)),
            _percent(_times(fit["checked"]["worst"], 100)),
        ]
        for kind, fit in _measured(result)["fits"].items()
    ]
    return Section(
        "The model",
        [
            "The model has three constants for each type of network: the time of a call, the time "
            "of a message in addition to the network's delay, and the processing time of a byte. "
            "Delay and rate are the given ones. Processes that share a core take turns. "
            "[docs/scaling.md](../scaling.md) has the formulas.",
            Table(
                [
                    "network",
                    "call, us",
                    "message, us",
                    "byte, ns",
                    "points in the fit",
                    "their median error, %",
                    "points checked",
                    "their median error, %",
                    "worst, %",
                ],
                rows,
            ),
        ],
    )


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _passing_section(result: JsonDict, figures: Figures) -> tuple[Section, Picture]:
    shape = _measured(result)["passed_shape"]
    panels = []
    for key, scale, word in (("sent", 1e-6, "MB of all ranks"), ("seconds", 1e3, "ms")):
        lines = []
        most = max(ranks for _, ranks in _series(result))
        for on in dict.fromkeys(on for on, _ in _series(result)):
            for op, kind, label in (
                ("all_gather", "linear", "states"),
                ("ring", "softmax", "keys, values"),
            ):
                points = [(x, scale * y) for x, y in _passed(result, op, key, on, most)]
                where = ", loopback" if on == "loopback" and key == "seconds" else ""
                lines.append(
                    Series(
                        label + where, points, kind, marker=True, dash=1 if on == "loopback" else 0
                    )
                )
        if any(line.points for line in lines):
            panels.append(
                Panel(
                    lines,
                    "tokens",
                    word,
                    "Bytes" if key == "sent" else "Time",
                    log_x=True,
                    log_y=True,
                    x_base=2,
                )
            )
    picture = figures.lines(
        "passing",
        panels,
        "Bytes and time to exchange states, and keys and values, by length",
        f"One layer, one row, forward, {max(ranks for _, ranks in _series(result))} ranks; "
        "dashed: over the loopback device.",
    )
    rows = [
        [on, ranks, length, number(1e3 * states), number(1e3 * pairs), f"{pairs / states:.3g}x"]
        for on, ranks, length, states, pairs in _longest(result)
    ]
    return Section(
        "States, and keys and values",
        [
            f"One layer of {shape['n_heads']} heads, {shape['d_head']} wide, over one row. Linear "
            f"attention: an all-gather of each rank's state, {size(shape['state_bytes'])}. Ring "
            f"attention: each rank passes its keys and values, {size(shape['key_value_bytes'])} "
            "per token, to the next rank, once for each other rank; the computation in between is "
            "not measured here.",
            picture,
            Table(
                ["network", "ranks", "tokens", "states, ms", "keys and values, ms", "ratio"],
                rows,
                "At the longest length that was measured for both.",
            ),
        ],
    ), picture


def _agrees(result: JsonDict) -> str:
    if result["size"] == "quick":
        return "This size is too short to compare times."
    words: list[str] = []
    told: tuple[tuple[bool | None, str], ...] = (
        (True, "Shown: {}."),
        (False, "Not shown: {}."),
        (None, "Not measured: {}."),
    )
    for holds, text in told:
        parts = [one.part for one in criteria(result) if one.claims and one.holds is holds]
        if parts:
            words.append(text.format("; ".join(parts)))
    return " ".join(words)


def _headline(result: JsonDict) -> str:
    longest = _longest(result)
    if not longest:
        return "nothing was exchanged"
    on, ranks, length, states, pairs = longest[-1]
    return (
        f"{number(length)} tokens over {ranks} ranks ({on}): a layer's states take "
        f"{number(1e3 * states)} ms, its keys and values {number(1e3 * pairs)} ms"
    )


def page(result: JsonDict, figures: Figures) -> Page:
    collectives = _collectives_section(result, figures)
    passing, picture = _passing_section(result, figures)
    told: list[Callable[[JsonDict, Figures], Section | None]] = [
        trained_section,
        memory_section,
        clusters_section,
        passing_predicted_section,
    ]
    more = [section for one in told if (section := one(result, figures)) is not None]
    notes = ["predictions beyond the measured sizes come from the model only and were not run"]
    if _measured(result)["untrained"]:
        notes.append(f"the trainer was not run as ranks: {_measured(result)['untrained']}")
    counts = {one["parameters"] for one in _measured(result)["trained"]}
    most = max((one["ranks"] for one in _measured(result)["trained"]), default=0)
    return Page(
        short="One state per layer and head is exchanged, whatever the length",
        figure=_headline(result),
        scale=(f"{parameters(counts)}, up to {most} ranks, " if counts else "")
        + "all ranks on one machine, simulated networks",
        headline=_headline(result),
        agrees=_agrees(result),
        picture=picture,
        sections=[_network_section(result), collectives, _model_section(result), passing, *more],
        theirs="none: the paper trains on one device",
        differences=[
            "the paper trains on one device",
            "all ranks share the cores of one machine, and its network is simulated",
        ],
        notes=notes,
        tried={
            one.name: "no further attempt was made; docs/scaling.md says what the model leaves out."
            for one in criteria(result)
        },
    )
