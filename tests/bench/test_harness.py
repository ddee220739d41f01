"""Interleaving, ratios, limits and rows, on sides whose times are known."""

import harness
import limits
import pytest


def clock_side(name, seconds, log):
    """A side that reports a duration without taking that long."""

    def run(inner):
        log.append(name)
        return inner * next(seconds), inner * 2e-3

    return harness.Side(name, run, threads=2, useful_flop=2e9, bytes=1e6)


def constant(value):
    while True:
        yield value


def test_sides_take_turns_and_ratios_are_taken_in_pairs():
    log = []
    drift = iter([1.0] + [1.0, 2.0, 4.0, 8.0, 16.0])  # the machine slows down
    other = iter([0.5] + [0.5, 1.0, 2.0, 4.0, 8.0])
    sides = [clock_side("a", drift, log), clock_side("b", other, log)]
    samples = harness.interleave(sides, repeats=5)
    assert log == ["a", "b"] * 6
    assert harness.ratio(samples["a"], samples["b"]) == 2.0
    assert samples["a"].median == 4.0
    assert samples["a"].minimum == 1.0


def test_short_runs_are_repeated_within_a_sample():
    side = clock_side("short", constant(1e-4), [])
    samples = harness.interleave([side], repeats=3)["short"]
    assert samples.inner == round(harness.SAMPLE_SECONDS / 1e-4)
    assert samples.median == pytest.approx(1e-4)


def test_a_row_names_the_larger_limit():
    limit = {
        "fma_gflops": 200.0,
        "copy_gbs": 10.0,
        "change": 0.01,
        "valid": True,
    }
    samples = harness.Samples([0.02, 0.04, 0.02], [0.04, 0.04, 0.04], 1)
    side = harness.Side("x", None, 2, useful_flop=2e9, executed_flop=3e9, bytes=1e6)
    row = limits.row(side, samples, limit)
    assert row["bound"] == "flop"
    assert row["percent_of_limit"] == pytest.approx(50.0)  # 10 of 20 ms
    assert row["useful_gflops"] == pytest.approx(100.0)
    assert not row["contended"]
    side.bytes = 4e8
    row = limits.row(side, samples, limit)
    assert row["bound"] == "bytes"
    assert row["percent_of_limit"] == pytest.approx(200.0)


def test_a_row_without_its_processors_is_marked():
    limit = {"fma_gflops": 1.0, "copy_gbs": 1.0, "change": 0.0, "valid": True}
    side = harness.Side("x", None, 2)
    samples = harness.Samples([1.0] * 3, [1.8] * 3, 1)
    assert limits.row(side, samples, limit)["contended"]


def test_a_share_of_sgemm_is_taken_pair_by_pair():
    limit = {"fma_gflops": 1e3, "copy_gbs": 1e3, "change": 0.0, "valid": True}
    flop = 2.0 * limits.SGEMM_SIZE**3
    side = harness.Side("x", None, 1, useful_flop=flop)
    mine = harness.Samples([2.0, 4.0, 8.0], [2.0, 4.0, 8.0], 1)
    sgemm = harness.Samples([1.0, 2.0, 4.0], [1.0, 2.0, 4.0], 1)
    assert limits.row(side, mine, limit, sgemm)["share_of_sgemm"] == 0.5


@pytest.mark.parametrize("after, moved", [(96.0, False), (94.0, True), (106.0, True)])
def test_limits_that_moved(after, moved):
    before = {"sgemm_gflops": 100.0, "fma_gflops": 100.0}
    change = limits.change(before, before | {"sgemm_gflops": after})
    assert (change > limits.MOST_CHANGE) == moved


def test_moved_limits_make_a_row_invalid(monkeypatch):
    looks = [100.0, 90.0, 50.0, 50.0, 50.0, 50.0]  # measurements: two before, four after
    speeds = iter(looks * 2)

    def measure(threads, footprint):
        speed = next(speeds)
        keys = ("sgemm_gflops", "fma_gflops", "copy_gbs", "read_gbs", "footprint")
        return dict.fromkeys(keys, speed)

    monkeypatch.setattr(limits, "measure", measure)
    side = clock_side("x", constant(0.1), [])
    samples, limit = limits.group([side], 3, 1 << 20, 2)
    assert not limit["valid"]
    assert limit["attempts"] == 2
    assert not limits.row(side, samples["x"], limit)["valid"]
