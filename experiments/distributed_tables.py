"""Tables and figures of the page of training on several machines: the trainer, and
what is predicted for clusters."""

from __future__ import annotations

from experiments.core import (
    Figures,
    JsonDict,
    Panel,
    Picture,
    Section,
    Series,
    Table,
    number,
    size,
)

_MODES = {"data": "data parallel", "sharded": "sharded optimiser", "sequence": "sequence parallel"}
_COLOURS = {"data": "linear", "sharded": "softmax", "sequence": "reformer"}
_SHOWN = ("1 B", "10 Gbit/s, 0.1 ms")  # the model and the cluster of the figure


def trained_section(result: JsonDict, figures: Figures) -> Section | None:
    """Updates of several ranks; None where no trainer ran."""
    del figures
    rows = [
        [
            _MODES[row["mode"]],
            row["network"],
            row["ranks"],
            f"{row['rows']} x {row['tokens']}",
            number(1e3 * row["step_s"]),
            number(1e3 * row["foretold_s"]) if "foretold_s" in row else None,
            number(1e3 * row["exchange_s"]),
            number(1e3 * row["foretold_exchange_s"]),
            size(row["sent"]) if row["sent"] else None,
            size(row["foretold_sent"]),
        ]
        for row in result["measured"]["trained"]
        if row["ranks"] > 1
    ]
    if not rows:
        return None
    parameters = next(
        row["parameters"] for row in result["measured"]["trained"] if row["ranks"] > 1
    )
    return Section(
        "The trainer",
        [
            f"`tarn train` with linear attention, {number(parameters)} parameters, one thread per "
            "rank; each rank is a separate node. The predicted time is the update of one rank with "
            "the same share of tokens, longer if ranks share a core, plus the whole exchange. "
            "Exchanges that overlap with computation are included in the predicted time of "
            "exchange but not in the measured time.",
            Table(
                [
                    "form",
                    "network",
                    "ranks",
                    "rows x tokens",
                    "update, ms",
                    "predicted, ms",
                    "waited for exchange, ms",
                    "predicted exchange, ms",
                    "sent by all",
                    "sent, predicted",
                ],
                rows,
            ),
        ],
    )


def memory_section(result: JsonDict, figures: Figures) -> Section | None:
    """What a rank holds of one long row; None where no trainer ran."""
    del figures
    held = result["measured"]["held"]
    if not held:
        return None
    alone = {row["tokens"]: row["peak_bytes"] for row in held if row["ranks"] == 1}
    rows = [
        [
            row["tokens"],
            row["ranks"],
            size(row["peak_bytes"]),
            f"{row['peak_bytes'] / alone[row['tokens']]:.3f}x",
            number(row["step_s"]),
        ]
        for row in held
    ]
    return Section(
        "One long row",
        [
            f"`tarn train` with linear attention, {number(held[0]['parameters'])} parameters, one "
            "row per update, split across the ranks. The table gives the peak resident memory of "
            "the rank that used most, including Python, torch and the text. Held-out rows of the "
            "same length, split in the same way, are evaluated during the run.",
            Table(
                ["tokens", "ranks", "memory of a rank", "relative to one rank", "update, s"],
                rows,
                "All ranks share this machine's cores and memory and use the loopback device.",
            ),
        ],
    )


def _of(result: JsonDict, **wanted: object) -> list[JsonDict]:
    return [
        one
        for one in result["measured"]["predictions"]
        if all(one[key] == value for key, value in wanted.items())
    ]


def clusters_section(result: JsonDict, figures: Figures) -> Section | None:
    """Where the network takes over; None without a time of computing."""
    measured = result["measured"]
    if not measured["predictions"]:
        return None
    clusters = list(dict.fromkeys(one["cluster"] for one in measured["predictions"]))
    speeds = list(dict.fromkeys(one["speed"] for one in measured["predictions"]))
    most = measured["most_nodes"]
    head = ["model", "form", "tokens per update", *clusters]
    parts: list[str | Table | Picture] = [
        "The predictions assume nodes like this machine, each with its own network card, and "
        "updates of the given number of tokens over all nodes, with sequence parallel in one "
        f"row. A node takes {number(1e12 * measured['token_parameter_s'])} ps per token and "
        "parameter. Communication is assumed not to overlap with computation: an update takes "
        "between the longer of the two and their sum. Each cell is the smallest number of "
        "nodes at which the network takes longer than the computation.",
        _picture(result, figures),
    ]
    for speed in speeds:
        kinds = list(
            dict.fromkeys(
                (one["model"], one["kind"], one["tokens"]) for one in _of(result, speed=speed)
            )
        )
        rows = [
            [
                model,
                _MODES[kind],
                tokens,
                *(_cell(result, cluster, speed, model, kind, tokens, most) for cluster in clusters),
            ]
            for model, kind, tokens in kinds
        ]
        whose = "nodes like this machine"
        if speed != 1:
            whose = f"nodes {number(speed)} times as fast"
        parts.append(Table(head, rows, f"For {whose}; networks by rate and one-way delay."))
    return Section("Clusters, predicted", parts)


def _cell(
    result: JsonDict, cluster: str, speed: float, model: str, kind: str, tokens: int, most: int
) -> str:
    found = _of(result, cluster=cluster, speed=speed, model=model, kind=kind, tokens=tokens)
    count = found[0]["takes_over"]
    return f"beyond {number(most)}" if count is None else number(count)


def _picture(result: JsonDict, figures: Figures) -> Picture:
    """Computing and exchange by nodes, of one model on one cluster."""
    lines, tokens = [], 0
    for kind in _MODES:
        own = _of(result, cluster=_SHOWN[1], model=_SHOWN[0], kind=kind, speed=1.0)
        if not own:
            continue
        one = own[0] if kind != "sequence" else min(own, key=lambda p: abs(p["tokens"] - tokens))
        if kind != "sequence":
            tokens = one["tokens"]
            if not lines:
                lines.append(
                    Series(
                        "computation", [(r["nodes"], r["compute_s"]) for r in one["rows"]], "bound"
                    )
                )
        lines.append(
            Series(
                _MODES[kind],
                [(r["nodes"], r["exchange_s"]) for r in one["rows"]],
                _COLOURS[kind],
                marker=True,
            )
        )
    return figures.lines(
        "clusters",
        Panel(
            lines,
            "nodes",
            "seconds of an update",
            f"{_SHOWN[0]} parameters, {_SHOWN[1]}",
            log_x=True,
            log_y=True,
            x_base=2,
        ),
        "Seconds of computation and of exchange by number of nodes",
        f"Predicted, {number(tokens)} tokens per update. The network becomes the bottleneck "
        "where a line crosses that of computation.",
    )


def passing_predicted_section(result: JsonDict, figures: Figures) -> Section | None:
    """States against keys and values on a cluster, by length."""
    del figures
    found = result["measured"]["passing_predicted"]
    if not found:
        return None
    rows = [
        [
            one["model"],
            one["length"],
            size(one["state_sent"]),
            size(one["key_value_sent"]),
            number(1e3 * one["state_s"]),
            number(1e3 * one["key_value_s"]),
        ]
        for one in found
    ]
    first = found[0]
    return Section(
        "States, and keys and values, predicted",
        [
            f"Bytes that a node sends for one layer and row, forward, over {first['nodes']} nodes "
            f"({first['cluster']}), and the time this takes.",
            Table(
                [
                    "model",
                    "tokens",
                    "states sent",
                    "keys and values sent",
                    "states, ms",
                    "keys and values, ms",
                ],
                rows,
            ),
        ],
    )
