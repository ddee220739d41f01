"""The rule that decides whether a criterion counts: what is not reached, what is not
distinguishable, and the words of a verdict."""

import dataclasses
import re

import pytest

from experiments.core import report
from experiments.core.types import Criterion, Evidence, Learner
from experiments.core.verdict import Outcome, interval, late_gain, mark, outcome, reasons, verdict

CLEAR = (0.9, 1.0, 1.1)  # margins of three seeds


def curve(*values):
    """Held out, after each tenth of the updates and the last three."""
    return [(10 * (i + 1), value) for i, value in enumerate(values)]


FLAT = [curve(3.0, 2.0, 1.001, 1.0)] * 3


def learner(name="linear", value=1.0, baseline: float | None = 2.0, curves=FLAT, **more):
    return Learner(name, value, baseline, curves, **more)


def line(holds=True, better=None, worse=None, margins=CLEAR, **more):
    """A criterion on one comparison: by default all that speaks for it is there."""
    evidence = Evidence(
        [better or learner()],
        [worse or learner("softmax", 1.9)],
        margins,
        **{key: more.pop(key) for key in ("seeds", "unit", "need", "slack") if key in more},
    )
    return Criterion("x", "", "", holds, evidence=[evidence], **more)


def test_what_is_clear_counts():
    against = tuple(-one for one in CLEAR)
    assert outcome(line()) is Outcome.HOLDS
    assert outcome(line(False, margins=against)) is Outcome.FAILS
    assert outcome(line(False, margins=against, opposite=True)) is Outcome.OPPOSITE
    assert outcome(dataclasses.replace(line(), holds=None)) is Outcome.NOT_MEASURED
    assert mark(line()) == "yes" and mark(line(False, margins=against)) == "**no**"


def test_what_is_ahead_must_beat_its_baseline():
    """Where the claim holds, what it says is better; where it does not, the others. The
    worse side may be as bad as it likes."""
    below = learner("linear", 2.1)
    assert mark(line(better=below)) == (
        "**not reached**: linear 2.1 does not beat the trivial baseline's 2"
    )
    assert outcome(line(worse=learner("softmax", 2.5))) is Outcome.HOLDS
    against = (-1.0, -1.1, -1.2)
    assert outcome(line(False, worse=below, margins=against, opposite=True)) is Outcome.NOT_REACHED
    assert outcome(line(False, better=learner(value=5.0), margins=against)) is Outcome.FAILS
    assert outcome(line(better=learner(value=2.1, baseline=None))) is Outcome.HOLDS


def test_accuracies_beat_a_baseline_from_above():
    for value, want in (
        (0.4, Outcome.HOLDS),
        (0.2, Outcome.NOT_REACHED),
        (0.25, Outcome.NOT_REACHED),
    ):
        one = learner("linear", value, 0.25, [], higher=True)
        assert outcome(line(better=one)) is want


def test_what_is_held_against_a_bound_must_beat_its_baseline_too():
    for holds in (True, False):
        alone = Criterion(
            "x",
            "",
            "",
            holds,
            evidence=[
                Evidence(
                    [learner(value=2.1)], [], tuple((1 if holds else -1) * one for one in CLEAR)
                )
            ],
        )
        assert outcome(alone) is Outcome.NOT_REACHED


def test_the_worse_side_must_not_be_about_to_catch_up():
    """Its last quarter of updates, eight times over, against what is needed."""
    falling = learner("softmax", 1.5, curves=[curve(3.0, 2.0, 1.6, 1.5)] * 3)
    assert late_gain(falling) == pytest.approx(0.1)
    assert outcome(line(worse=falling, need=0.81)) is Outcome.HOLDS
    assert outcome(line(worse=falling, need=0.79)) is Outcome.NOT_REACHED
    assert "softmax is still falling, by 0.1 in the last quarter" in mark(
        line(worse=falling, need=0.7)
    )
    # what the interval measures is needed where nothing else is said
    assert outcome(line(worse=falling, margins=(0.69, 0.7, 0.71))) is Outcome.NOT_REACHED
    assert outcome(line(worse=falling)) is Outcome.HOLDS
    # one that is ahead only gets further
    assert outcome(line(better=falling, need=0.1)) is Outcome.HOLDS
    against = tuple(-one for one in CLEAR)
    assert outcome(line(False, better=falling, need=0.1, margins=against)) is Outcome.NOT_REACHED
    assert outcome(line(False, worse=falling, need=0.1, margins=against)) is Outcome.FAILS


def test_a_hundredth_of_the_baseline_is_flat():
    """However little is needed; of accuracies one point."""
    for gain, want in ((0.019, Outcome.HOLDS), (0.021, Outcome.NOT_REACHED)):
        near = learner("softmax", curves=[curve(3.0, 2.0, 1 + gain, 1.0)] * 3)
        assert outcome(line(worse=near, need=0.001)) is want
    for gain, want in ((0.009, Outcome.HOLDS), (0.011, Outcome.NOT_REACHED)):
        near = Learner("softmax", 0.5, 0.1, [curve(0.1, 0.2, 0.5 - gain, 0.5)] * 3, higher=True)
        one = line(worse=near, need=0.001)
        assert outcome(one) is want
        assert want is Outcome.HOLDS or "still rising" in mark(one)


def test_fewer_than_three_replicates():
    assert outcome(line(margins=(1.0, 1.001))) is Outcome.NOT_DISTINGUISHABLE
    assert mark(line(margins=(), seeds=1)) == "**not distinguishable**: 1 seed"
    assert mark(line(margins=(1.0, 1.0), unit="speaker")) == ("**not distinguishable**: 2 speakers")
    assert mark(line(margins=CLEAR, unit="speaker", seeds=2)) == "**not distinguishable**: 2 seeds"
    assert outcome(line(margins=(), seeds=3)) is Outcome.HOLDS


def test_what_can_be_done_takes_one_training():
    """No seeds are named: it must beat its baseline, and no more."""
    for value, want in ((1.0, Outcome.HOLDS), (2.1, Outcome.NOT_REACHED)):
        alone = Criterion("x", "", "", True, evidence=[Evidence([learner(value=value)])])
        assert outcome(alone) is want


def test_an_interval_around_zero():
    wide = (-0.2, 0.1, 1.0)
    for holds in (True, False):
        assert outcome(line(holds, margins=wide)) is Outcome.NOT_DISTINGUISHABLE
    assert "95 % interval of the margin by seed" in mark(line(margins=wide))


def test_a_tolerance_helps_no_claim_that_fails():
    """What it allows for is in the margins of one that holds; of one that does not, the
    difference itself is in question."""
    assert outcome(line(margins=(-0.1, -0.2, -0.3), holds=False, slack=0.4)) is Outcome.FAILS
    assert outcome(line(margins=(-0.05, -0.2, -0.4), holds=False)) is Outcome.NOT_DISTINGUISHABLE
    assert outcome(line(margins=(0.1, 0.2, 0.3), slack=0.4)) is Outcome.NOT_DISTINGUISHABLE
    assert outcome(line(margins=(0.2, 0.21, 0.22), slack=0.4)) is Outcome.HOLDS


def test_interval_is_students():
    """Mean 2, standard deviation 1, n = 3: 4.303 / sqrt 3."""
    low, high = interval((1.0, 2.0, 3.0)) or (0, 0)
    assert (low, high) == pytest.approx((2 - 2.4843, 2 + 2.4843), abs=1e-3)
    assert interval((1.0,)) is None and interval((2.0, 2.0)) == (2.0, 2.0)
    many = interval([0.0, 1.0] * 250) or (0, 0)
    assert many[1] - many[0] == pytest.approx(2 * 1.98 * 0.5005 / 500**0.5, rel=1e-3)


def test_each_comparison_counts():
    """All of them where the criterion holds; one clear miss is enough for one that does not."""
    clear, wide = (
        Evidence([learner()], [learner(value=1.9)], CLEAR),
        Evidence([learner()], [learner(value=1.9)], (-0.2, 0.1, 1.0)),
    )
    missed = dataclasses.replace(clear, margins=tuple(-one for one in CLEAR))
    assert outcome(Criterion("x", "", "", True, evidence=[clear, wide])) is (
        Outcome.NOT_DISTINGUISHABLE
    )
    assert outcome(Criterion("x", "", "", False, evidence=[missed, wide])) is Outcome.FAILS
    assert outcome(Criterion("x", "", "", False, evidence=[clear, wide])) is (
        Outcome.NOT_DISTINGUISHABLE
    )


def test_not_reached_comes_first_and_both_are_told():
    both = line(better=learner(value=2.1), margins=(1.0,))
    assert list(reasons(both)) == [Outcome.NOT_REACHED, Outcome.NOT_DISTINGUISHABLE]
    assert mark(both).endswith("trivial baseline's 2; 1 seed")


def test_goals_and_what_is_reported_have_no_preconditions():
    for more in ({"goal": True}, {"reported": True}):
        assert outcome(line(margins=(1.0,), **more)) is Outcome.HOLDS


def parts(*criteria):
    return verdict([dataclasses.replace(one, part=part) for part, one in zip("abcde", criteria)])


def test_verdicts_name_them():
    lost, few = line(better=learner(value=2.1)), line(margins=(1.0, 1.0))
    no, opposite = Criterion("n", "", "", False), Criterion("o", "", "", False, opposite=True)
    yes = Criterion("y", "", "", True)
    assert parts(lost) == "**not reached** (0 of 1): a"
    assert parts(few) == "**not distinguishable** (0 of 1): a"
    assert parts(no, few) == "**not distinguishable** (0 of 2): b; not shown: a"
    assert parts(lost, few, no) == (
        "**not reached** (0 of 3): a; not shown: c; not distinguishable: b"
    )
    assert parts(lost, few, no, opposite) == (
        "**contradicted here** (0 of 4): d; not shown: c; not distinguishable: b; not reached: a"
    )
    assert parts(lost, few, no, opposite, yes) == (
        "**in part** (1 of 5); not shown: c; not distinguishable: b; not reached: a; "
        "contradicted here: d"
    )


def test_every_word_of_a_verdict_is_explained():
    lines = [
        Criterion("a", "", "", True),
        Criterion("b", "", "", False),
        Criterion("c", "", "", False, opposite=True),
        line(better=learner(value=2.1)),
        line(margins=(1.0,)),
    ]
    words = {
        word
        for n in range(1, 32)
        for word in re.findall(
            r"\*\*(.+?)\*\*", verdict([one for i, one in enumerate(lines) if n >> i & 1])
        )
    }
    assert words == {
        "shown",
        "in part",
        "not shown",
        "contradicted here",
        "not reached",
        "not distinguishable",
    }
    for word in words:
        assert f"**{word.capitalize()}**" in report._VERDICTS
