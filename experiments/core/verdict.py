"""What criteria say about a claim. One rule for all pages: a comparison of trained models
counts only where they beat their trivial baselines, where longer runs would not turn it,
and where at least three replicates agree."""

from __future__ import annotations

import enum
import itertools
import math
import statistics
from collections.abc import Sequence

from experiments.core.types import Criterion, Evidence, Learner
from plotting import number


class Outcome(enum.Enum):
    """Of one criterion."""

    HOLDS = "yes"
    FAILS = "**no**"
    OPPOSITE = "**no: the opposite**"
    NOT_REACHED = "**not reached**"
    NOT_DISTINGUISHABLE = "**not distinguishable**"
    NOT_MEASURED = "not measured"


# What is said of the parts that do not hold, in this order. Where none holds, the last of
# those that apply comes first.
_WORDS = {
    Outcome.FAILS: "not shown",
    Outcome.NOT_DISTINGUISHABLE: "not distinguishable",
    Outcome.NOT_REACHED: "not reached",
    Outcome.OPPOSITE: "contradicted here",
}

_LEAST = 3  # replicates
_FLAT = 0.01  # of the baseline's score (accuracies: of 1) in the last quarter of the updates
_LONGER = 2  # times the run's updates again, at the pace of its last quarter

# Two-sided 95 % quantiles of Student's t by degrees of freedom; between two rows the smaller
# number of degrees counts, which gives the wider interval.
_T = {
    1: 12.706,
    2: 4.303,
    3: 3.182,
    4: 2.776,
    5: 2.571,
    6: 2.447,
    7: 2.365,
    8: 2.306,
    9: 2.262,
    10: 2.228,
    15: 2.131,
    20: 2.086,
    30: 2.042,
    60: 2.000,
    120: 1.980,
}


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of their mean, by Student's t; None for fewer than two."""
    if len(values) < 2:
        return None
    degrees = max(one for one in _T if one < len(values))
    half = _T[degrees] * statistics.stdev(values) / math.sqrt(len(values))
    mean = statistics.fmean(values)
    return mean - half, mean + half


def late_gain(learner: Learner) -> float:
    """By how much it got better in the last quarter of its updates, the median of the
    seeds; 0 without curves."""
    gains = []
    for curve in learner.curves:
        early = [value for step, value in curve if step <= 0.75 * curve[-1][0]]
        if early:
            gains.append(curve[-1][1] - early[-1] if learner.higher else early[-1] - curve[-1][1])
    return statistics.median(gains) if gains else 0.0


def beats(learner: Learner) -> bool:
    """Whether it is better than its trivial baseline, where there is one."""
    if learner.baseline is None:
        return True
    return learner.value > learner.baseline if learner.higher else learner.value < learner.baseline


def _scale(learner: Learner) -> float:
    """What a gain is measured by."""
    if learner.higher:
        return 1.0
    if learner.baseline is not None:
        return abs(learner.baseline)
    return max((abs(curve[0][1]) for curve in learner.curves), default=0.0)


def turns(learner: Learner, need: float) -> bool:
    """Whether its curve is still on its way and would come as far as `need` in a longer run."""
    gain = late_gain(learner)
    return gain > _FLAT * _scale(learner) and 4 * _LONGER * gain >= need


def _sides(criterion: Criterion, one: Evidence) -> tuple[Sequence[Learner], Sequence[Learner]]:
    """The models that are ahead and behind; what is held against a bound is on one side."""
    return (one.better, one.worse) if criterion.holds else (one.worse, one.better)


def _no_baseline_beaten(criterion: Criterion) -> list[str]:
    """Of what is ahead, the models that do not beat their baselines."""
    found: dict[float, dict[str, None]] = {}
    for one in criterion.evidence:
        ahead, behind = _sides(criterion, one)
        for learner in ahead or behind:
            if learner.baseline is not None and not beats(learner):
                names = found.setdefault(learner.baseline, {})
                names[f"{learner.name} {number(learner.value, 4)}"] = None
    return [
        f"{', '.join(names)} {'does' if len(names) == 1 else 'do'} not beat the trivial "
        f"baseline's {number(baseline, 4)}"
        for baseline, names in found.items()
    ]


def _still_learning(criterion: Criterion, one: Evidence) -> list[str]:
    """The models of the worse side that a longer run could bring ahead."""
    reasons = []
    need = one.need
    if need is None:
        need = abs(statistics.median(one.margins)) if one.margins else math.inf
    for learner in _sides(criterion, one)[1]:
        if turns(learner, need):
            way = "rising" if learner.higher else "falling"
            reasons.append(
                f"{learner.name} is still {way}, by {number(late_gain(learner))} in the "
                "last quarter of its updates"
            )
    return reasons


def _not_distinguishable(criterion: Criterion) -> list[str]:
    """Too few replicates, or an interval around zero. A criterion that holds needs each of
    its comparisons clear; of one that does not, one suffices."""
    few, open_to, clear = [], [], 0
    for one in criterion.evidence:
        counts = {one.unit: len(one.margins)} if one.margins else {}
        counts |= {"seed": one.seeds} if one.seeds is not None else {}
        few += [
            f"{count} {unit}{'s' * (count != 1)}"
            for unit, count in counts.items()
            if count < _LEAST
        ]
        slack = 0.0 if criterion.holds else one.slack
        found = interval([margin - slack for margin in one.margins])
        if found is not None and found[0] < 0 < found[1]:
            open_to.append(
                f"95 % interval of the margin by {one.unit} {number(found[0])} to "
                f"{number(found[1])}"
            )
        elif found is not None and (found[0] > 0) is bool(criterion.holds):
            clear += 1
    if not criterion.holds and clear:
        open_to = []
    return [*few, *open_to]


def reasons(criterion: Criterion) -> dict[Outcome, list[str]]:
    """Why a measured criterion of the claim decides nothing; empty where it decides."""
    if criterion.holds is None or not criterion.claims:
        return {}
    found = {
        Outcome.NOT_REACHED: [
            *_no_baseline_beaten(criterion),
            *itertools.chain.from_iterable(
                _still_learning(criterion, one) for one in criterion.evidence
            ),
        ],
        Outcome.NOT_DISTINGUISHABLE: _not_distinguishable(criterion),
    }
    return {outcome: list(dict.fromkeys(texts)) for outcome, texts in found.items() if texts}


def outcome(criterion: Criterion) -> Outcome:
    """Of one criterion, its preconditions first."""
    if criterion.holds is None:
        return Outcome.NOT_MEASURED
    undecided = next(iter(reasons(criterion)), None)
    if undecided is not None:
        return undecided
    if criterion.holds:
        return Outcome.HOLDS
    return Outcome.OPPOSITE if criterion.opposite else Outcome.FAILS


def why(criterion: Criterion) -> str:
    """All reasons for which a criterion decides nothing; empty where it decides."""
    return "; ".join(text for some in reasons(criterion).values() for text in some)


def mark(criterion: Criterion) -> str:
    """The cell of a table: the outcome, and why a criterion decides nothing."""
    if criterion.reported and criterion.holds is not None:
        return "reported"
    return ": ".join(text for text in (outcome(criterion).value, why(criterion)) if text)


def verdict(criteria: Sequence[Criterion]) -> str:
    """What the criteria of a claim say together, in the words of a referee:

    shown                every one holds
    in part              some hold; what does not is named
    contradicted here    none holds and for at least one the opposite is measured
    not reached          none is decided, and for at least one a model does not beat its
                         trivial baseline, or longer runs could turn it
    not distinguishable  none is decided, for want of replicates or inside their interval
    not shown            none holds, and none of the above

    What was not measured is not shown. What is only reported, and goals of tarn's
    own, do not count."""
    claims = [one for one in criteria if one.claims]
    if all(one.holds is None for one in claims):
        return "not measured"
    by = {kind: [one for one in claims if outcome(one) is kind] for kind in Outcome}
    held = len(by[Outcome.HOLDS])
    counted = f"({held} of {len(claims)})"
    if held == len(claims):
        return f"**shown** {counted}"
    by[Outcome.FAILS] += by[Outcome.NOT_MEASURED]
    texts = {words: f"{words}: {_parts(by[kind])}" for kind, words in _WORDS.items() if by[kind]}
    if held:
        return "; ".join([f"**in part** {counted}", *texts.values()])
    head = next(words for words in reversed(_WORDS.values()) if words in texts)
    first = texts.pop(head).replace(head, f"**{head}** {counted}", 1)
    return "; ".join([first, *texts.values()])


def _parts(criteria: Sequence[Criterion]) -> str:
    """Each part of a claim once, with a mark where it was not measured."""
    return ", ".join(
        dict.fromkeys(
            (one.part or one.name) + (" (not measured)" if one.holds is None else "")
            for one in criteria
        )
    )
