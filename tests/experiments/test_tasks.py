"""Criteria and pages of copy and long, on results written by hand."""

import copy as copies
import pathlib

import pytest

from experiments.copying import EXPERIMENT as COPY
from experiments.core import Figures
from experiments.long import EXPERIMENT as LONG


def run_of(kind, seed, accuracy, loss):
    looks = [{"step": 250 * i, "elapsed_s": 20.0 * i, "loss": loss * 4 / i,
              "accuracy": accuracy * i / 4} for i in range(1, 5)]
    return {"kind": kind, "seed": seed, "updates": 1000, "seconds": 80.0, "cpu_seconds": 150.0,
            "curve": [{k: v for k, v in look.items()} for look in looks], "held_out": looks}


def copy_result(linear=(0.999, 0.004), softmax=(1.0, 0.001), size="cpu"):
    runs = [run_of("linear", seed, *linear) for seed in range(3)]
    runs += [run_of("softmax", seed, *softmax) for seed in range(3)]
    return {"size": size, "machine": {}, "measured": {"seeds": [0, 1, 2], "runs": runs}}


def holds(experiment, result):
    return [one.holds for one in experiment.criteria(result)]


@pytest.mark.parametrize("result, want", [
    (copy_result(), [True, True, True]),  # both losses below 0.02
    (copy_result(linear=(0.999, 0.03), softmax=(1.0, 0.016)), [True, True, True]),  # at most twice
    (copy_result(linear=(0.999, 0.03), softmax=(1.0, 0.014)), [True, True, False]),
    (copy_result(linear=(0.98, 0.004)), [False, True, True]),
    (copy_result(size="quick"), [None, None, None]),
])
def test_copy_criteria(result, want):
    assert holds(COPY, result) == want


def test_two_seeds_are_not_three():
    result = copy_result()
    result["measured"]["runs"] = [run for run in result["measured"]["runs"]
                                  if run["kind"] == "linear" and run["seed"] < 2]
    assert holds(COPY, result) == [False, None, None]


def bucket(begin, end, bits):
    return {"begin": begin, "end": end, "tokens": end - begin, "bits_per_token": bits,
            "standard_error": 0.01}


def long_result(tokens=1_000_000, ratio=1.01, state=33792, resident=11_000_000):
    place = {"state_bytes": 33792, "resident_bytes": 10_700_000}
    steps = {"count": 10_000, "ratio": ratio,
             "near": {"begin": 1050, "end": 11050, "median_us": 27.0},
             "far": {"begin": tokens, "end": tokens + 10_000, "median_us": 27.0 * ratio}}
    figures = {
        "tokens": tokens, "tokens_per_second": 45e3, "steps": steps,
        "ratios": [0.99, ratio, ratio],
        "buckets": [bucket(1, 2, 2.2), bucket(20, 50, 1.98), bucket(100, 200, 1.97),
                    bucket(500_000, 1_000_000, 1.99)],
        "memory": {"near": {"position": 1000, **place},
                   "far": {"position": tokens, "state_bytes": state, "resident_bytes": resident}}}
    rest = {"curve": [], "seconds": 30.0, "cpu_seconds": 55.0}
    recall = [{"kind": kind, "pairs": pairs, "held_out": [[350, share / 2], [700, share]], **rest}
              for pairs in (4, 8) for kind, share in (("linear", 1 / pairs), ("softmax", 1.0))]
    listops = [{"kind": kind, "held_out": [[1500, 0.35]], **rest} for kind in ("linear", "softmax")]
    stream = {"learned_letters": 3_900_000, "seq_len": 256, "held_out": 1.975,
              "training_seconds": 180.0, "figures": figures}
    return {"size": "cpu", "machine": {}, "measured": {
        "seeds": [0], "stream": stream, "recall": recall, "listops": listops,
        "listops_data": {"examples": 2000, "majority": 0.17}}}


@pytest.mark.parametrize("result, want", [
    (long_result(), [True, True]),
    (long_result(ratio=1.03), [False, True]),
    (long_result(state=33793), [True, False]),
    (long_result(resident=12_000_000), [True, False]),
    (long_result(tokens=20_000), [None, None]),
])
def test_long_criteria(result, want):
    assert holds(LONG, result) == want


def test_pages_tell_where_linear_is_worse(tmp_path):
    page = LONG.page(long_result(), Figures(pathlib.Path(tmp_path), "long"))
    assert "linear 25 % against softmax's 100 % with 4 pairs, 12 % against" in page.agrees
    assert "ListOps: linear 35.0 %, softmax 35.0 %, within what chance allows level." in page.agrees
    # A result of softmax alone has no stream.
    alone = copies.deepcopy(long_result())
    del alone["measured"]["stream"]
    alone["measured"]["recall"] = alone["measured"]["recall"][1::2]
    alone["measured"]["listops"] = alone["measured"]["listops"][1:]
    page = LONG.page(alone, Figures(pathlib.Path(tmp_path), "alone"))
    assert page.headline == "the stream was not read" and page.agrees == ""
    page = COPY.page(copy_result(), Figures(pathlib.Path(tmp_path), "copy"))
    assert page.agrees.startswith("Agrees") and "times softmax's updates" in page.agrees
    assert "every 250" in page.agrees
    assert page.tried.keys() == {one.name for one in COPY.criteria(copy_result())}
    few = copy_result()
    few["measured"]["runs"] = few["measured"]["runs"][3:]
    assert "not run" in COPY.page(few, Figures(pathlib.Path(tmp_path), "few")).headline
