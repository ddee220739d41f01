"""What decides the claim of families, from its stored result; and what page and
criteria both read from that."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

from experiments.core import (
    Criterion,
    Evidence,
    JsonDict,
    Learner,
    learner,
    number,
    paired,
    value_at,
)
from experiments.core.baselines import best

NAMES = {
    "linear": "linear",
    "retnet": "RetNet",
    "mamba2": "Mamba-2",
    "gla": "GLA",
    "gdn": "Gated DeltaNet",
    "kda": "KDA",
    "rwkv7": "RWKV-7",
    "softmax": "softmax",
    "hybrid": "hybrid",
}
DELTA = ("gdn", "kda", "rwkv7")
GATED = ("mamba2", "gla", *DELTA)  # whose decay depends on the token
ATTENDING = ("softmax", "hybrid")
UPDATES, TIME = "updates", "time"  # at equal ...
TITLES = {"copy": "copy", "text": "text", "dna": "DNA"}

SOLVED = 0.99
_FELL = 0.05  # of recall, from the fewest pairs to the most
_PARITY = 0.02  # bits per byte
_EQUAL = 1.03  # the largest over the smallest number of parameters
_WHEN = {UPDATES: "after as many updates", TIME: "after the same time"}


def kinds(result: JsonDict) -> list[str]:
    """The kinds that were run, in the order of the tables."""
    there = {run["kind"] for run in result["measured"]["runs"]}
    return [kind for kind in NAMES if kind in there]


def quick(result: JsonDict) -> bool:
    return result["size"] == "quick"


# --- Recall -------------------------------------------------------------------


def pairs(result: JsonDict) -> list[int]:
    return sorted({run["pairs"] for run in result["measured"]["recall"]})


def widths(result: JsonDict, kind: str) -> list[int]:
    """d_key of a kind's models."""
    return sorted({run["d_key"] for run in result["measured"]["recall"] if run["kind"] == kind})


def accuracies(result: JsonDict, kind: str, d_key: int, n: int) -> list[float]:
    """The held-out accuracy of each seed after the last update with n pairs."""
    return [
        float(run["held_out"][-1]["accuracy"])
        for run in result["measured"]["recall"]
        if (run["kind"], run["d_key"], run["pairs"]) == (kind, d_key, n)
    ]


def recalled(result: JsonDict, kind: str, d_key: int, n: int = 0) -> float:
    """The median of the seeds' accuracies with n pairs; 0 means the most pairs."""
    return statistics.median(accuracies(result, kind, d_key, n or pairs(result)[-1]))


def _recall_runs(result: JsonDict, kind: str, d_key: int, n: int) -> list[JsonDict]:
    return [
        run
        for run in result["measured"]["recall"]
        if (run["kind"], run["d_key"], run["pairs"]) == (kind, d_key, n)
    ]


def _recaller(result: JsonDict, kind: str, d_key: int, n: int) -> Learner:
    trivial = best(result, "families/recall", n)
    return learner(
        f"{NAMES[kind]}, d_key {d_key}, {n} pairs",
        _recall_runs(result, kind, d_key, n),
        "accuracy",
        trivial.accuracy if trivial else None,
        higher=True,
    )


def _recalls(
    kind: str, d_key: int, n: int, than: tuple[str, int, int], result: JsonDict, bound: float = 0.0
) -> Evidence:
    """What one recalls more than another, seed by seed."""
    one, other = (kind, d_key, n), than
    return Evidence(
        [_recaller(result, *one)],
        [_recaller(result, *other)],
        paired(
            _recall_runs(result, *one),
            _recall_runs(result, *other),
            lambda a, b: a["held_out"][-1]["accuracy"] - b["held_out"][-1]["accuracy"] - bound,
        ),
    )


def _unmeasured(name: str, wanted: str, part: str) -> Criterion:
    return Criterion(name, wanted, "not measured", None, part=part)


def _solved(result: JsonDict, kind: str) -> Criterion:
    part = (
        "softmax recalls every size"
        if kind == "softmax"
        else "a hybrid with one softmax layer also recalls every size"
    )
    found = [
        one
        for d_key in widths(result, kind)
        for n in pairs(result)
        for one in accuracies(result, kind, d_key, n)
    ]
    least = 100 * min(found) if found and not quick(result) else None
    evidence = [
        Evidence(
            [_recaller(result, kind, d_key, n)],
            need=SOLVED - min(found),
            seeds=len(accuracies(result, kind, d_key, n)),
        )
        for d_key in widths(result, kind)
        for n in pairs(result)
    ]
    return Criterion.at_least(
        f"{NAMES[kind]}: the lowest accuracy of recall, all numbers of pairs and seeds",
        least,
        100 * SOLVED,
        "%",
        part=part,
        evidence=evidence,
    )


def _limited(result: JsonDict) -> Criterion:
    """What the narrowest state of linear attention loses, from few pairs to many."""
    part, found = "the state of linear attention limits its recall", widths(result, "linear")
    first, most = pairs(result)[0], pairs(result)[-1]
    lost, evidence = None, []
    if found and not quick(result):
        evidence = [_recalls("linear", found[0], first, ("linear", found[0], most), result, _FELL)]
        lost = 100 * (
            recalled(result, "linear", found[0], first) - recalled(result, "linear", found[0])
        )
    width = f", d_key {found[0]}" if found else ""
    return Criterion.at_least(
        f"linear{width}: accuracy of recall lost from {first} pairs to {most}",
        lost,
        100 * _FELL,
        "points",
        part=part,
        evidence=evidence,
        opposite=lost is not None and lost < -100 * _FELL,
    )


def _recalls_more(result: JsonDict, kind: str, than: str, part: str) -> Criterion:
    """The kind must recall more with every width of the keys, and so with every size of
    the state. A width at which both solve the task is left out: neither can recall more."""
    most = pairs(result)[-1]
    name = f"recall of {most} pairs, by d_key: {NAMES[kind]} against {NAMES[than]}"
    wanted = "higher in all seeds, for every d_key that not both solve"
    common = [one for one in widths(result, kind) if one in widths(result, than)]
    if quick(result) or not common:
        return _unmeasured(name, wanted, part)
    both = [
        (accuracies(result, kind, one, most), accuracies(result, than, one, most)) for one in common
    ]
    got = "; ".join(
        f"{one}: {100 * statistics.median(a):.1f} against {100 * statistics.median(b):.1f} %"
        for one, (a, b) in zip(common, both)
    )
    open_to = [(a, b) for a, b in both if min(*a, *b) < SOLVED]
    evidence = [
        _recalls(kind, one, most, (than, one, most), result)
        for one, (a, b) in zip(common, both)
        if min(*a, *b) < SOLVED
    ]
    if not open_to:
        return Criterion(name, wanted, f"{got}: both solve all", None, part=part)
    return Criterion(
        name,
        wanted,
        got,
        all(min(a) > max(b) for a, b in open_to),
        part=part,
        opposite=all(max(a) < min(b) for a, b in open_to),
        evidence=evidence,
    )


# --- Copy, text and DNA -------------------------------------------------------


def ms(result: JsonDict, task: str, kind: str) -> float | None:
    """Milliseconds of an update that was timed with no other run at the same time."""
    return next(
        (
            one["ms"]
            for one in result["measured"]["times"]
            if (one["task"], one["kind"]) == (task, kind)
        ),
        None,
    )


def updates(result: JsonDict, task: str) -> int:
    """The number of updates that every run of the task reached."""
    return min(
        (run["updates"] for run in result["measured"]["runs"] if run["task"] == task), default=0
    )


def seconds(result: JsonDict, task: str) -> float:
    """Seconds in which the fastest kind makes all its updates, by the time of one."""
    times = [one["ms"] for one in result["measured"]["times"] if one["task"] == task]
    return updates(result, task) * min(times) / 1000


def place(result: JsonDict, task: str, kind: str, at: str) -> float:
    """The update at which a kind is compared: the same for all kinds, or after the same time."""
    each = ms(result, task, kind)
    if at == UPDATES or not each:
        return updates(result, task)
    return min(updates(result, task), 1000 * seconds(result, task) / each)


def losses(result: JsonDict, task: str, kind: str, at: str) -> list[float]:
    """The seeds' held-out losses at that place; none where a run was first evaluated later."""
    there = place(result, task, kind, at)
    found = [
        value_at(run["held_out"], there, "step", "loss")
        for run in result["measured"]["runs"]
        if (run["task"], run["kind"]) == (task, kind)
    ]
    return [] if None in found else [one for one in found if one is not None]


def loss(result: JsonDict, task: str, kind: str, at: str) -> float | None:
    found = losses(result, task, kind, at)
    return statistics.median(found) if found else None


def _task_learner(result: JsonDict, task: str, kind: str, at: str) -> Learner:
    trivial = best(result, f"families/{task}")
    runs = [run for run in result["measured"]["runs"] if (run["task"], run["kind"]) == (task, kind)]
    return learner(
        NAMES[kind],
        runs,
        "loss",
        trivial.value if trivial else None,
        value=loss(result, task, kind, at),
    )


def _lower(
    result: JsonDict, task: str, kind: str, than: str, at: str, slack: float = 0.0
) -> Evidence:
    """How far a kind is below another, seed by seed."""
    ours, theirs = (losses(result, task, one, at) for one in (kind, than))
    margins = [high - low + slack for low, high in zip(ours, theirs)]
    return Evidence(
        [_task_learner(result, task, kind, at)],
        [_task_learner(result, task, than, at)],
        margins,
        slack,
    )


def _better(result: JsonDict, task: str, some: Sequence[str], at: str, part: str) -> Criterion:
    """Each of these kinds must be below linear attention, by all seeds."""
    unit = "nats" if task == "copy" else "bits per letter"
    name = (
        f"{TITLES[task]}, held-out {unit} {_WHEN[at]}: "
        f"{', '.join(NAMES[one] for one in some)} against linear"
    )
    wanted = "each lower, all seeds"
    own = {one: losses(result, task, one, at) for one in some}
    linear = losses(result, task, "linear", at)
    if quick(result) or not linear or not all(own.values()):
        return _unmeasured(name, wanted, part)
    got = (
        ", ".join(f"{statistics.median(found):.4g}" for found in own.values())
        + f" against {statistics.median(linear):.4g}"
    )
    return Criterion(
        name,
        wanted,
        got,
        all(max(found) < min(linear) for found in own.values()),
        part=part,
        opposite=all(min(found) > max(linear) for found in own.values()),
        evidence=[_lower(result, task, one, "linear", at) for one in some],
    )


def _parity(result: JsonDict) -> Criterion:
    name = f"text: the hybrid's bits per letter minus softmax's, {_WHEN[UPDATES]}"
    part = "a hybrid models text as well as softmax"
    hybrid, softmax = (losses(result, "text", one, UPDATES) for one in ("hybrid", "softmax"))
    more, evidence = None, []
    if hybrid and softmax and not quick(result):
        evidence = [_lower(result, "text", "hybrid", "softmax", UPDATES, _PARITY)]
        more = statistics.median(hybrid) - statistics.median(softmax)
    return Criterion.at_most(
        name,
        more,
        _PARITY,
        "bits",
        part=part,
        evidence=evidence,
        opposite=(more is not None and more > 2 * _PARITY and min(hybrid) > max(softmax)),
    )


def _equal(result: JsonDict) -> Criterion:
    """The other comparisons assume models of equal size; the worst task is judged."""
    ratios = []
    for task in ("recall", *TITLES):
        counts = [one["parameters"] for one in result["measured"]["models"] if one["task"] == task]
        ratios += [max(counts) / min(counts)] if counts else []
    worst = max(ratios) if len(kinds(result)) > 1 and not quick(result) else None
    return Criterion.at_most(
        "largest over smallest number of parameters, the worst task", worst, _EQUAL, "x", goal=True
    )


def _reported(one: Criterion) -> Criterion:
    """Shown for reference only; it does not affect the claim."""
    return dataclasses.replace(
        one,
        wanted="reported",
        holds=None if one.holds is None else True,
        opposite=False,
        reported=True,
    )


def better_part(task: str, at: str) -> str:
    if task == "copy":
        return f"the delta rule copies better {_WHEN[at]}"
    return f"gated architectures model {TITLES[task]} better {_WHEN[at]}"


def more_part(kind: str) -> str:
    return f"{NAMES[kind]} recalls more than linear attention"


DELTA_PART = "the delta rule recalls more than decay alone"


def criteria(result: JsonDict) -> list[Criterion]:
    return [
        _solved(result, "softmax"),
        _solved(result, "hybrid"),
        _limited(result),
        *(_recalls_more(result, kind, "linear", more_part(kind)) for kind in DELTA),
        # The same gate and the same convolution: Mamba-2 with the delta rule.
        _recalls_more(result, "gdn", "mamba2", DELTA_PART),
        *(
            _reported(_recalls_more(result, kind, "linear", more_part(kind)))
            for kind in ("retnet", "mamba2", "gla")
        ),
        *(
            _better(result, task, GATED, at, better_part(task, at))
            for task in ("text", "dna")
            for at in (UPDATES, TIME)
        ),
        *(_better(result, "copy", DELTA, at, better_part("copy", at)) for at in (UPDATES, TIME)),
        _parity(result),
        _equal(result),
    ]


def time_text(result: JsonDict, task: str) -> str:
    return f"{number(seconds(result, task))} s"
