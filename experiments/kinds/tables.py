"""The tables of the page of families, from its stored result."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from experiments.core import JsonDict, Table, number
from experiments.core.baselines import best
from experiments.kinds.criteria import (
    NAMES,
    TIME,
    TITLES,
    UPDATES,
    accuracies,
    kinds,
    losses,
    ms,
    pairs,
    place,
    seconds,
    updates,
    widths,
)

_RULES = {
    "linear": "sums everything; elu + 1, divided by the sum of weights (Katharopoulos et al. 2020)",
    "retnet": "decays by a fixed factor per head (Sun et al. 2023)",
    "mamba2": "decays by a factor per head that depends on the token (Dao and Gu 2024)",
    "gla": "decays by a factor per channel that depends on the token (Yang et al. 2023)",
    "gdn": "as Mamba-2, and replaces the value stored at a key: the delta rule (Yang et al. 2024)",
    "kda": "the same with a factor per channel (Kimi Team 2025)",
    "rwkv7": "a factor per channel, and a delta rule with a rate per channel (Peng et al. 2025)",
    "softmax": "keeps every key and value (Vaswani et al. 2017)",
    "hybrid": "Gated DeltaNet, and softmax in the last layer",
}


def models_of(result: JsonDict, task: str, kind: str) -> list[JsonDict]:
    return [
        one for one in result["measured"]["models"] if (one["task"], one["kind"]) == (task, kind)
    ]


def numbers_of(result: JsonDict, kind: str, d_key: int) -> int | None:
    """How many numbers the recurrent state of a recall model holds; None where it was not run."""
    return next(
        (
            one["state"]["recurrence"]
            for one in models_of(result, "recall", kind)
            if one["d_key"] == d_key
        ),
        None,
    )


def models_table(result: JsonDict) -> Table:
    rows = []
    for kind in kinds(result):
        counts = [
            next((f"{one['parameters']:,}" for one in models_of(result, task, kind)), None)
            for task in ("recall", "copy", "text")
        ]
        found = models_of(result, "text", kind)
        state = found[0]["state"] if found else None
        rows.append(
            [
                NAMES[kind],
                _RULES[kind],
                *counts,
                found[0]["d_ff"] if found else None,
                found[0].get("positions") if found else None,
                None if state is None else number(state["recurrence"]),
                None if state is None else number(state["beside"]),
                None if state is None else number(state["per_token"]),
            ]
        )
    return Table(
        [
            "mixer",
            "rule of the state",
            "parameters, recall",
            "copy",
            "text and DNA",
            "d_ff of text",
            "positions",
            "size of its states, text",
            "in addition",
            "per token",
        ],
        rows,
        "Parameters are counted in the weight files, for recall with the narrowest keys; DNA's "
        "models are those of text with fewer letters. Sizes of states are numbers of all "
        "layers, computed from the configuration; in addition: windows of convolutions and, in "
        "RWKV-7, the previous token; per token: keys and values that softmax keeps.",
    )


def _percent(found: Sequence[float]) -> str | None:
    if not found:
        return None
    text = f"{100 * statistics.median(found):.1f}"
    return (
        text if len(found) < 2 else (f"{text} ({100 * min(found):.1f} to {100 * max(found):.1f})")
    )


def recall_table(result: JsonDict) -> Table:
    rows = []
    for kind in kinds(result):
        for d_key in widths(result, kind):
            runs = [
                run
                for run in result["measured"]["recall"]
                if (run["kind"], run["d_key"]) == (kind, d_key)
            ]
            size = numbers_of(result, kind, d_key)
            rows.append(
                [
                    NAMES[kind],
                    str(d_key),
                    number(size) if size else "grows",
                    *(_percent(accuracies(result, kind, d_key, n)) for n in pairs(result)),
                    number(
                        sum(run["seconds"] for run in runs) / len({run["seed"] for run in runs})
                    ),
                ]
            )
    trivial = [best(result, "families/recall", n) for n in pairs(result)]
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
            "mixer",
            "d_key",
            "size of the state",
            *(f"{n} pairs, %" for n in pairs(result)),
            "seconds",
        ],
        rows,
        f"Held-out accuracy, {_middle(result)} and their range. Seconds: all numbers of pairs "
        "of one seed; two runs train at a time, each on one thread, so the times are not a "
        "benchmark.",
    )


def _middle(result: JsonDict) -> str:
    """What a median is of so many seeds."""
    count = len({run["seed"] for run in result["measured"]["recall"]})
    return "means of the two seeds" if count == 2 else "medians of the seeds"


def _spread(found: Sequence[float]) -> str | None:
    if not found:
        return None
    text = f"{statistics.median(found):.4g}"
    return text if len(found) < 2 else f"{text} ({min(found):.4g} to {max(found):.4g})"


def task_table(result: JsonDict, task: str) -> Table:
    rows = []
    for kind in kinds(result):
        each = ms(result, task, kind)
        rows.append(
            [
                NAMES[kind],
                None if each is None else number(each),
                _spread(losses(result, task, kind, UPDATES)),
                number(round(place(result, task, kind, TIME))),
                _spread(losses(result, task, kind, TIME)),
            ]
        )
    trivial = best(result, f"families/{task}")
    if trivial:
        value = f"{trivial.value:.4g}"
        rows.append([trivial.title, None, value, None, value])
    count, unit = number(updates(result, task)), "nats" if task == "copy" else "bits"
    return Table(
        [
            "mixer",
            "ms per update",
            f"{unit} after {count} updates",
            f"updates in {number(seconds(result, task))} s",
            f"{unit} after that time",
        ],
        rows,
        "Medians of the seeds and their range. The time is that in which the fastest model "
        "makes all its updates; the time of an update is the median of one short run alone, on "
        "all threads." + _noise(result),
    )


def _noise(result: JsonDict) -> str:
    """Two kinds whose times stand in another order than their work: the noise of the times."""
    both = {task: (ms(result, task, "gdn"), ms(result, task, "kda")) for task in TITLES}
    odd = [
        f"{TITLES[task]} ({number(gdn)} against {number(kda)} ms)"
        for task, (gdn, kda) in both.items()
        if gdn and kda and gdn > kda
    ]
    if not odd:
        return ""
    return (
        " Times were measured once and include the noise of the machine: Gated DeltaNet "
        f"does less work per update than KDA but took longer on {' and '.join(odd)}. Orders "
        "after the same time that depend on such differences are not evidence."
    )
