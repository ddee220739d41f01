"""Tables and figures of the page of training on several machines: the trainer, and
what is foretold of clusters."""

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
    rows = [[_MODES[row["mode"]], row["network"], row["ranks"], f"{row['rows']} x {row['tokens']}",
             number(1e3 * row["step_s"]), number(1e3 * row["foretold_s"]) if "foretold_s" in row
             else None, number(1e3 * row["exchange_s"]),
             number(1e3 * row["foretold_exchange_s"]),
             size(row["sent"]) if row["sent"] else None, size(row["foretold_sent"])]
            for row in result["measured"]["trained"] if row["ranks"] > 1]
    if not rows:
        return None
    parameters = next(row["parameters"] for row in result["measured"]["trained"]
                      if row["ranks"] > 1)
    return Section("The trainer", [
        f"`tarn train` with linear attention, {number(parameters)} parameters, a thread a rank; "
        "a rank is a separate node. Predicted: the update of one rank with the same share of "
        "tokens, longer where ranks share a core, then all of the exchange. What the trainer "
        "exchanges while it still computes, and does not wait for, is in the foretold seconds of "
        "exchange and not in the measured.",
        Table(["form", "network", "ranks", "rows x tokens", "update, ms", "foretold, ms",
               "waited for exchange, ms", "exchange foretold, ms", "sent by all", "sent, foretold"],
              rows)])


def memory_section(result: JsonDict, figures: Figures) -> Section | None:
    """What a rank holds of one long row; None where no trainer ran."""
    del figures
    held = result["measured"]["held"]
    if not held:
        return None
    alone = {row["tokens"]: row["peak_bytes"] for row in held if row["ranks"] == 1}
    rows = [[row["tokens"], row["ranks"], size(row["peak_bytes"]),
             f"{row['peak_bytes'] / alone[row['tokens']]:.3f}x", number(row["step_s"])]
            for row in held]
    return Section("One long row", [
        f"`tarn train` with linear attention, {number(held[0]['parameters'])} parameters, one row "
        "an update, cut over the ranks: resident memory, at most and of the rank that held most, "
        "with Python, torch and the text. Held-out rows of the same length are evaluated on the "
        "way, cut as well.",
        Table(["tokens", "ranks", "memory of a rank", "of one rank's", "update, s"], rows,
              "All ranks share this machine's cores and its memory; over the loopback device.")])


def _of(result: JsonDict, **wanted: object) -> list[JsonDict]:
    return [one for one in result["measured"]["predictions"]
            if all(one[key] == value for key, value in wanted.items())]


def clusters_section(result: JsonDict, figures: Figures) -> Section | None:
    """Where the network takes over; None without a time of computing."""
    measured = result["measured"]
    if not measured["predictions"]:
        return None
    clusters = list(dict.fromkeys(one["cluster"] for one in measured["predictions"]))
    speeds = list(dict.fromkeys(one["speed"] for one in measured["predictions"]))
    most = measured["most_nodes"]
    head = ["model", "form", "tokens an update", *clusters]
    parts: list[str | Table | Picture] = [
        "Nodes as this machine, each with its own network card; an update of so many tokens "
        "over all nodes, of sequence parallel in one row. A token and a parameter take "
        f"{number(1e12 * measured['token_parameter_s'])} ps of a node. Communication is not "
        "thought to overlap with computing: an update takes between the longer of the two and "
        "their sum. A cell is the number of nodes from which on the network takes longer than the "
        "computing.",
        _picture(result, figures)]
    for speed in speeds:
        kinds = list(dict.fromkeys((one["model"], one["kind"], one["tokens"])
                                   for one in _of(result, speed=speed)))
        rows = [[model, _MODES[kind], tokens, *(
            _cell(result, cluster, speed, model, kind, tokens, most) for cluster in clusters)]
            for model, kind, tokens in kinds]
        whose = "nodes as this machine" if speed == 1 else f"nodes {number(speed)} times as fast"
        parts.append(Table(head, rows, f"Of {whose}; networks by their rate and delay, one way."))
    return Section("Clusters, foretold", parts)


def _cell(result: JsonDict, cluster: str, speed: float, model: str, kind: str, tokens: int,
          most: int) -> str:
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
                lines.append(Series(
                    "computing", [(r["nodes"], r["compute_s"]) for r in one["rows"]], "bound"))
        lines.append(Series(_MODES[kind], [(r["nodes"], r["exchange_s"]) for r in one["rows"]],
                            _COLOURS[kind], marker=True))
    return figures.lines(
        "clusters", Panel(lines, "nodes", "seconds of an update",
                          f"{_SHOWN[0]} parameters, {_SHOWN[1]}", log_x=True, log_y=True, x_base=2),
        "Seconds of computing and of exchange by the number of nodes",
        f"Foretold; {number(tokens)} tokens an update. The network takes over where a line crosses "
        "that of computing.")


def passing_predicted_section(result: JsonDict, figures: Figures) -> Section | None:
    """States against keys and values on a cluster, by length."""
    del figures
    found = result["measured"]["passing_predicted"]
    if not found:
        return None
    rows = [[one["model"], one["length"], size(one["state_sent"]), size(one["key_value_sent"]),
             number(1e3 * one["state_s"]), number(1e3 * one["key_value_s"])] for one in found]
    first = found[0]
    return Section("States, and keys and values, foretold", [
        f"Of one layer and row, forward, over {first['nodes']} nodes ({first['cluster']}): what a "
        "node sends, and how long that takes.",
        Table(["model", "tokens", "states sent", "keys and values sent", "states, ms",
               "keys and values, ms"], rows)])
