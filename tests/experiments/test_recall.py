"""Criteria and page of the experiment recall, from results made up here."""

import pytest

from experiments import recall_runs
from experiments.core import Figures
from experiments.core.report import verdict
from experiments.core.settings import Settings
from experiments.recall import EXPERIMENT

PAIRS, WIDTHS = (4, 8, 16, 32, 64), (16, 32, 64)
UNMEASURED = {"beyond d_key 64 recall falls"}  # there are no more pairs


def as_columns(d_key, pairs):
    """Recall by the theory's line: d_key pairs and no others."""
    return min(1.0, d_key / pairs)


def run_of(kind, d_key, pairs, seed, accuracy, early=None):
    early = accuracy if early is None else early
    held_out = [
        {"step": 250 * (i + 1), "accuracy": early if i < 3 else accuracy, "loss": 1.0}
        for i in range(4)
    ]
    return {
        "kind": kind,
        "d_key": d_key,
        "pairs": pairs,
        "seed": seed,
        "updates": 1000,
        "seconds": 9.0,
        "cpu_seconds": 15.0,
        "held_out": held_out,
    }


def result(
    size="cpu",
    linear=as_columns,
    softmax=1.0,
    seeds=(0, 1, 2),
    early=None,
    kinds=("linear", "softmax"),
    spread=0.0,
):
    runs = []
    for seed in seeds:
        if "linear" in kinds:
            runs += [
                run_of("linear", d, n, seed, linear(d, n) - spread * seed, early)
                for d in WIDTHS
                for n in PAIRS
            ]
        if "softmax" in kinds:
            runs += [run_of("softmax", 32, n, seed, softmax) for n in PAIRS]
    alone = [run_of(kind, 32, 64, 0, 0.02) for kind in kinds]
    return {
        "size": size,
        "measured": {
            "seeds": list(seeds),
            "runs": runs,
            "d_value": 64,
            "key_symbols": 65,
            "from_the_start": alone,
        },
    }


def held(of):
    return {one.part: one.holds for one in EXPERIMENT.criteria(of)}


def missed(of):
    return {part for part, holds in held(of).items() if holds is False}


def opposite(of):
    return {one.part for one in EXPERIMENT.criteria(of) if one.opposite}


def test_every_criterion_can_hold_and_fail():
    assert not missed(result())
    assert {part for part, holds in held(result()).items() if holds is None} == UNMEASURED
    assert missed(result(softmax=0.98)) == {"softmax recalls every size"}
    assert "d_key 16 holds 16 pairs" in missed(result(linear=lambda d, n: 0.9 * as_columns(d, n)))
    assert "at rest where the schedule ends" in missed(result(early=0.5))
    # All widths alike: no more columns recall more, and no falling beyond them.
    flat = missed(result(linear=lambda d, n: 0.97))
    assert {
        "more columns recall more",
        "beyond d_key 16 recall falls",
        "d_key 16 holds no more",
    } <= flat


def test_a_width_without_more_pairs_is_named_as_not_measured():
    text = verdict(EXPERIMENT.criteria(result()))
    assert text.startswith("**in part**") and text.endswith(
        "not shown: beyond d_key 64 recall falls (not measured)"
    )


def test_the_opposite_is_named():
    assert not opposite(result())
    narrow = result(linear=lambda d, n: 0.99 - d / 100)
    assert "more columns recall more" in opposite(narrow)
    assert "d_key 16 holds no more" in opposite(result(linear=lambda d, n: 0.97))
    # More than columns in every seed is the opposite; in some seeds it is not shown.
    more = result(linear=lambda d, n: min(1.0, 1.9 * d / n))
    assert "d_key 16 holds no more" in opposite(more)
    some = result(linear=lambda d, n: min(1.0, 1.4 * d / n), spread=0.03)
    assert "d_key 16 holds no more" in missed(some) - opposite(some)
    rising = result(linear=lambda d, n: 0.2 + n / 128)
    assert "beyond d_key 16 recall falls" in opposite(rising)


def test_seeds_that_overlap_show_nothing():
    close = result(linear=lambda d, n: 0.5 + d / 1000, spread=0.1)
    assert "more columns recall more" in missed(close) - opposite(close)


def test_what_was_not_measured_is_not_passed():
    assert set(held(result("quick")).values()) == {None}
    assert held(result(kinds=("linear",)))["softmax recalls every size"] is None
    alone = held(result(kinds=("softmax",)))
    assert alone["softmax recalls every size"] is True
    assert alone["more columns recall more"] is None


@pytest.mark.parametrize("kinds", [("linear", "softmax"), ("linear",), ("softmax",)])
def test_page_of_one_kind_and_of_both(tmp_path, kinds):
    of = result(kinds=kinds)
    page = EXPERIMENT.page(of, Figures(tmp_path, "recall"))
    assert (tmp_path / "recall-capacity.svg").is_file()
    assert ("linear 25 % with d_key 16" in page.headline) == ("linear" in kinds)
    assert page.tried.keys() == {one.name for one in EXPERIMENT.criteria(of)}
    last = str(page.sections[-1].parts[-1])
    assert "from the start" in last and ("Neither has begun" in last) == (len(kinds) == 2)


@pytest.mark.parametrize(
    "linear, count, told",
    [
        (as_columns, "16.0", "recall falls when"),
        (lambda d, n: min(1.0, 2 * d / n), "32.0", "recall falls when"),
        (lambda d, n: 0.97, "62.1", "recall does not fall when"),
        (lambda d, n: 0.2 + n / 128, "44.8", "recall rises when"),
    ],
)
def test_page_says_how_many_pairs_are_recalled(tmp_path, linear, count, told):
    page = EXPERIMENT.page(result(linear=linear), Figures(tmp_path, "recall"))
    assert f"that is {count} pairs: {told}" in page.agrees
    assert ("only has to score highest" in page.agrees) == (count != "16.0")
    assert "More pairs than the 64 columns of d_key 64 were not measured." in page.agrees
    assert "each on one thread" in page.sections[1].parts[-1].note


def test_a_start_is_named_by_its_weights(tmp_path):
    """A run depends on its flags: another model before it is another flag."""

    class Before:
        model = tmp_path / "before"

    Before.model.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (Before.model / name).write_text("{}")
    settings, starts = Settings(EXPERIMENT, "quick", tmp_path), []
    for weights in (b"one", b"two", b"one"):
        (Before.model / "model.safetensors").write_bytes(weights)
        starts.append(recall_runs.started_from(settings, Before))
    assert starts[0] == starts[2] != starts[1]
    assert {one.name for one in starts[0].iterdir()} == set(recall_runs.KEPT)


class Planned(Exception):
    """Ends a run when it has told its plan."""

    def plan(self, seconds):
        self.seconds = sum(seconds.values())
        raise self


@pytest.mark.parametrize("size", ["quick", "cpu", "full"])
def test_the_plan_is_within_the_time(tmp_path, size):
    with pytest.raises(Planned) as told:
        EXPERIMENT.run(Settings(EXPERIMENT, size, tmp_path, threads=2), Planned())
    assert 0 < told.value.seconds <= 60 * EXPERIMENT.minutes[size]
