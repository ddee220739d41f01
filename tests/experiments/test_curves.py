"""Curves read where others of them are, and how many updates fit into a time."""

import statistics

import pytest

from experiments.core import update_time, value_at

CURVE = [
    {"step": 10 * (i + 1), "elapsed_s": s, "cpu_s": 2 * s, "bits": y}
    for i, (s, y) in enumerate(((1, 6.0), (2, 4.0), (4, 3.0)))
]


@pytest.mark.parametrize(
    "place, clock, wanted",
    [
        (1, "elapsed_s", 6.0),
        (1.5, "elapsed_s", 5.0),
        (3, "elapsed_s", 3.5),
        (8, "cpu_s", 3.0),
        (25, "step", 3.5),
        (0.5, "elapsed_s", None),
        (4.5, "elapsed_s", None),
    ],
)
def test_a_curve_is_read_between_its_evaluations(place, clock, wanted):
    assert value_at(CURVE, place, clock, "bits") == wanted


def test_a_curve_without_the_clock_is_not_read():
    assert value_at([], 1, "elapsed_s", "bits") is None
    assert value_at([{**row, "cpu_s": None} for row in CURVE], 4, "cpu_s", "bits") is None


def log(*seconds):
    """A log whose updates took these seconds."""
    return [{"step": i + 1, "elapsed_s": sum(seconds[: i + 1])} for i in range(len(seconds))]


def test_the_first_updates_and_the_evaluation_are_left_out():
    found = update_time(log(9.0, 1.0, 2.0, 1.0, 5.0))
    assert found.update == 1.0 and found.evaluation == pytest.approx(4.0)
    settled = update_time(log(9.0, 8.0, 1.0, 4.0, 5.0), 2, statistics.fmean)
    assert settled.update == pytest.approx(2.5) and settled.evaluation == pytest.approx(2.5)


def test_few_updates_give_what_they_have():
    assert update_time(log(3.0)).update == 3.0 and update_time(log(3.0)).evaluation == 0.0
    assert update_time(log(3.0, 7.0)).update == 3.0 and update_time(log(3.0, 7.0)).evaluation == 4.0


def test_as_many_updates_as_fit_with_the_evaluations():
    found = update_time(log(9.0, 2.0, 2.0, 5.0))
    assert found.updates_in(20.0) == 10 and found.updates_in(20.0, 2) == 7
    assert found.updates_in(1.0, 5, least=3) == 3
