"""The scaling experiment: its formulas, one small point, and its page."""

import contextlib
import json
import math
import pathlib
import subprocess
import sys

import pytest

from experiments import scaling
from experiments.core import Figures
from experiments.core.report import verdict
from experiments.core.settings import Settings
from experiments.core.types import SIZES

ROOT = pathlib.Path(__file__).resolve().parents[2]


def ask(*requests):
    """Answers of one program to several requests."""
    lines = "".join(json.dumps(one) + "\n" for one in requests)
    done = subprocess.run(
        [sys.executable, "-B", "-m", "experiments.scaling_point"],
        cwd=ROOT,
        input=lines,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def request(form, seq_len=300, **changes):
    return {
        "kind": "point",
        "form": form,
        "batch": 2,
        "seq_len": seq_len,
        "heads": 2,
        "width": 32,
        "dtype": "float32",
        "threads": 1,
        "repeats": 3,
        "seconds": 30.0,
        "longest_twice": 30.0,
        "seed": 0,
        **changes,
    }


def test_slope_is_the_exponent():
    points = [(2**p, 3.0 * 2 ** (1.7 * p)) for p in range(9, 17)]
    assert scaling.slope(points) == pytest.approx(1.7)
    bent = [(n, t * (9 if n < 4096 else 1)) for n, t in points]  # short ones do not count
    assert scaling.slope(bent) == pytest.approx(1.7)
    assert scaling.slope(points[:5]) is None  # two points from 2^12 up
    noisy = [(4096, 1.0), (8192, 2.2), (16384, 3.9)]
    want = (math.log(3.9) - math.log(1.0)) / (2 * math.log(2))  # the middle has no weight
    assert scaling.slope(noisy) == pytest.approx(want)


def test_long_calls_run_on_fewer_heads():
    assert scaling.heads_of("softmax", 1 << 12, 64, 2) == 8
    assert scaling.heads_of("softmax", 1 << 16, 64, 2) == 2  # no fewer than threads
    assert scaling.heads_of("reformer", 1 << 16, 64, 2) == 2
    assert scaling.heads_of("naive", 1 << 14, 64, 2) == 2
    assert scaling.heads_of("linear", 1 << 20, 64, 2) == 8
    heads = scaling.heads_of("softmax", 1 << 14, 64, 1)
    assert heads == 2
    assert scaling.planned_s("softmax", 1 << 14, 64, heads) <= scaling.LONGEST_CALL_S


class Planned:
    """A progress that keeps what it is told of time."""

    def __init__(self):
        self.seconds = {}
        self.measured = []

    def plan(self, seconds):
        self.seconds = dict(seconds)

    @contextlib.contextmanager
    def part(self, name):
        self.measured.append(name)
        yield


class Answers:
    """Points that need what planned_bytes() tells."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def ask(self, request):
        if request["kind"] == "crossover":
            row = {
                "seq_len": 16,
                "linear_s": 1.0,
                "softmax_over_linear": 1.0,
                "naive_over_linear": 1.0,
            }
            return {"rows": [row], "crossover_softmax": None, "crossover_naive": None}
        sample = scaling.planned_bytes(
            *(request[key] for key in ("form", "seq_len", "width", "dtype"))
        )
        return {
            "wall_s": 1.0,
            "cpu_s": 1.0,
            "repeats": 1,
            "buffers_reused": True,
            "peak_bytes": sample * request["batch"] * request["heads"] / scaling.HEADS,
        }


@pytest.mark.parametrize("half", [2e9, 12e9, 60e9])
def test_plan_is_what_is_measured_and_fits_the_time(tmp_path, monkeypatch, half):
    monkeypatch.setattr(scaling, "half_of_memory", lambda: half)
    monkeypatch.setattr(scaling, "Points", Answers)
    for size in SIZES:
        told = Planned()
        settings = Settings(scaling.EXPERIMENT, size, tmp_path / f"{size}", threads=2)
        scaling.run(settings, told)
        assert sorted(told.measured) == sorted(told.seconds)
        # More memory holds more of naive softmax: a tenth beyond.
        assert sum(told.seconds.values()) <= 66 * scaling.EXPERIMENT.minutes[size]


def test_smoke_size_is_few_points(tmp_path):
    settings = Settings(scaling.EXPERIMENT, "quick", tmp_path, threads=2)
    told = Planned()
    scaling.Run(settings, told, Answers()).plan()
    assert len(told.seconds) <= 10  # each is a process: some tenths of a second


def test_points_time_and_memory():
    linear, long, naive = ask(
        request("linear", 2048), request("linear", 8192), request("naive", 2048)
    )
    for answer in (linear, long, naive):
        assert answer["wall_s"] > 0 and answer["repeats"] == 3 and answer["buffers_reused"]
    least = 2 * scaling.least_bytes(8192, 32) * 2 / scaling.HEADS  # batch 2, 2 of 8 heads
    assert 0.9 * least < long["peak_bytes"] < 1.5 * least
    assert 2 < long["peak_bytes"] / linear["peak_bytes"] < 6
    scores = 2 * 2 * 2048 * 2048 * 4  # bytes of one T x T array
    assert 2 * scores < naive["peak_bytes"] < 6 * scores


def test_every_form_runs_and_a_failure_is_told():
    answers = ask(
        request("softmax"),
        request("reformer"),
        request("linear", dtype="bfloat16"),
        request("linear", seq_len=-1),
        request("linear"),
    )
    assert ["error" in one for one in answers] == [False, False, False, True, False]


def test_a_first_call_that_is_long_is_the_measurement():
    (answer,) = ask(request("softmax", longest_twice=0.0))
    assert answer["repeats"] == 1 and not answer["buffers_reused"]


def test_the_crossover_is_where_the_ratio_passes_one():
    (answer,) = ask(
        {
            "kind": "crossover",
            "width": 32,
            "heads": 2,
            "lengths": [16, 512],
            "tokens": 1024,
            "threads": 1,
            "repeats": 3,
            "seed": 0,
        }
    )
    assert [row["seq_len"] for row in answer["rows"]] == [16, 512]
    assert all(row["naive_over_linear"] > 0 for row in answer["rows"])
    assert answer["crossover_naive"] is None or 16 <= answer["crossover_naive"] <= 512


def _result(slopes=(1.0, 2.0), memory=(1.0, 1.0, 2.0)):
    """As run() returns it, with times (linear, blocked softmax) and memory (linear,
    blocked, naive) of exact powers."""
    grows = dict(zip(("linear", "softmax", "naive"), memory))
    rows = []
    for form, power, largest in (
        ("linear", slopes[0], 16),
        ("softmax", slopes[1], 16),
        ("naive", 2.0, 13),
        ("reformer", 1.0, 16),
    ):
        for p in range(9, 17):
            n = 2**p
            row = {"form": form, "width": 32, "dtype": "float32", "seq_len": n}
            if p > largest:
                rows.append(row | {"fits": False, "needed_bytes": 1e11})
                continue
            least = scaling.least_bytes(n, 32)
            rows.append(
                row
                | {
                    "fits": True,
                    "batch": 1,
                    "heads": 8,
                    "repeats": 3,
                    "buffers_reused": True,
                    "sample_s": 1e-6 * n**power,
                    "sample_cpu_s": 1e-6 * n**power,
                    "sample_bytes": 1.01
                    * scaling.least_bytes(512, 32)
                    * (n / 512) ** grows.get(form, 1.0),
                    "least_bytes": least,
                }
            )
    crossed = {
        "rows": [
            {
                "seq_len": 64,
                "batch": 1,
                "linear_s": 1e-5,
                "softmax_s": 1e-5,
                "naive_s": 2e-5,
                "softmax_over_linear": 1.0,
                "naive_over_linear": 2.0,
            }
        ],
        "crossover_softmax": 64,
        "crossover_naive": 64,
    }
    return {
        "size": "cpu",
        "measured": {
            "rows": rows,
            "slopes": scaling.slopes(rows),
            "crossover": {"32": crossed},
            "heads": 8,
            "tokens": scaling.TOKENS,
            "half_of_memory": 8e9,
            "repeats": 5,
            "longest_twice": {"linear": 21.0, "softmax": 4.0, "naive": 7.0, "reformer": 1.5},
        },
    }


def held(result):
    return [one.holds for one in scaling.criteria(result)]


def test_criteria_hold_where_the_slopes_are_right():
    """Time and memory of linear, time of blocked and naive softmax, memory of
    naive softmax; memory of blocked softmax and the crossover are reported."""
    assert held(_result()) == [True] * 7
    # Time 1.2 (linear) and 1.7 (blocked) instead of 1 and 2.
    assert held(_result((1.2, 1.7))) == [False, True, False, True, True, True, True]
    assert held(_result(memory=(1.0, 1.7, 2.0))) == [True] * 7
    assert held(_result(memory=(1.0, 1.0, 1.0))) == [True] * 4 + [False, True, True]
    short = _result()
    short["measured"]["slopes"], short["measured"]["crossover"] = [], {}
    for row in short["measured"]["rows"]:
        row["fits"] = row["fits"] and row["seq_len"] <= 1024
    assert held(short) == [None] * 7


def test_memory_of_blocked_softmax_never_counts():
    for memory in (1.0, 1.7, 2.0):
        found = scaling.criteria(_result(memory=(1.0, memory, 2.0)))
        assert verdict(found) == "**shown** (5 of 5)"
        (one,) = [one for one in found if one.reported and "memory" in one.name]
        assert (one.wanted, one.got) == ("reported", f"{memory:g}")


@pytest.mark.parametrize("power, holds", [(1.7, False), (2.4, True), (3.0, False)])
def test_time_of_naive_softmax_has_two_bounds(power, holds):
    result = _result()
    for row in result["measured"]["rows"]:
        if row["form"] == "naive" and row["fits"]:
            row["sample_s"] = 1e-6 * row["seq_len"] ** power
    (one,) = [one for one in scaling.criteria(result) if "naive softmax's time" in one.part]
    assert one.holds is holds


def test_a_time_of_one_call_is_shown_and_not_fitted(tmp_path):
    """However slow it is."""
    result = _result()
    rows = [row for row in result["measured"]["rows"] if row["form"] == "naive" and row["fits"]]
    last = max(rows, key=lambda row: row["seq_len"])
    last["sample_s"] *= 20
    (slow,) = [one for one in scaling.criteria(result) if "naive softmax's time" in one.part]
    assert slow.holds is False
    last["repeats"] = 1
    (one,) = [one for one in scaling.criteria(result) if "naive softmax's time" in one.part]
    assert one.holds and one.got == "2"
    text = "\n".join(
        part if isinstance(part, str) else part.markdown()
        for section in scaling.page(result, Figures(tmp_path, "scaling")).sections
        for part in section.parts
    )
    assert "ms, one call |" in text and "Times of a single call are left out" in text
    for row in rows:
        row["repeats"] = 1
    (one,) = [one for one in scaling.criteria(result) if "naive softmax's time" in one.part]
    assert one.holds is None


def _crossed(ratios):
    """Short lengths with softmax's time over linear's, blocked and naive, by length."""
    return {
        "rows": [
            {
                "seq_len": n,
                "batch": 1,
                "linear_s": 1e-5,
                "softmax_s": 1e-5,
                "naive_s": 1e-5,
                "softmax_over_linear": blocked,
                "naive_over_linear": naive,
            }
            for n, (blocked, naive) in ratios.items()
        ],
        "crossover_softmax": 16,
        "crossover_naive": 16,
    }


@pytest.mark.parametrize(
    "naive, headline, agrees",
    [
        (
            {16: 2, 32: 2, 48: 2},
            "softmax is faster at no length measured.",
            "Linear attention is the",
        ),
        (
            {16: 0.6, 32: 0.9, 48: 2},
            "softmax is faster to N = 32.",
            "naive softmax at N = 16, 32 (32",
        ),
        ({16: 0.6, 32: 2, 48: 0.9}, "softmax is faster at N = 16, 48.", "at N = 16, 48 (32 wide)"),
    ],
)
def test_lengths_at_which_softmax_is_faster_are_named(naive, headline, agrees, tmp_path):
    result = _result()
    result["measured"]["crossover"]["32"] = _crossed({n: (2.0, one) for n, one in naive.items()})
    page = scaling.page(result, Figures(tmp_path, "scaling"))
    assert page.headline.endswith(headline) and agrees in page.agrees
    assert "short lengths" not in page.agrees and "all others" not in page.agrees


def test_page_tells_all_lengths(tmp_path):
    page = scaling.page(_result(), Figures(tmp_path, "scaling"))
    assert "N^1.00" in page.headline and "N^2.00" in page.headline
    assert (tmp_path / "scaling-width-32.svg").is_file()
    text = "\n".join(
        part if isinstance(part, str) else part.markdown()
        for section in page.sections
        for part in section.parts
    )
    assert text.count("| does not fit |") == 2 * 3  # naive's three lengths in two tables
    assert "65,536" in text and "1.01 times at 32 wide" in text
    assert "fastest at every length measured" in page.agrees and "As in the paper" in page.agrees
    short = _result()
    short["measured"]["crossover"]["32"]["rows"][0]["naive_over_linear"] = 0.9
    told = scaling.page(short, Figures(tmp_path, "scaling")).agrees
    assert "at some lengths: naive softmax at N = 64 (32 wide)" in told
    worse = scaling.page(_result((1.2, 2.0)), Figures(tmp_path, "scaling")).agrees
    assert "met in 4 of 5 criteria" in worse
    assert "linear, 32 wide: time grows as N to the power of 1.2, where 0.9 to 1.1" in worse


def test_page_of_one_kind_claims_nothing_of_the_others(tmp_path):
    result = _result()
    measured = result["measured"]
    measured["rows"] = [row for row in measured["rows"] if row["form"] == "linear"]
    measured["slopes"], measured["crossover"] = scaling.slopes(measured["rows"]), {}
    page = scaling.page(result, Figures(tmp_path, "scaling"))
    assert "no growth is fitted" in page.headline and "not fitted" in page.agrees
    assert "softmax needs" not in page.agrees and "fastest" not in page.agrees


def test_page_tells_what_was_measured_and_how(tmp_path):
    result = _result()
    page = scaling.page(result, Figures(tmp_path, "scaling"))
    text = "\n".join(
        part if isinstance(part, str) else part.markdown()
        for section in page.sections
        for part in section.parts
    )
    assert "up to 5 calls" in text and "linear 21, softmax, blocked 4" in text
    assert "no method" not in text
    assert "also needs memory in proportion to N (N^1.00)" in page.agrees
    for one in result["measured"]["slopes"]:
        one["memory"] = 1.4
    page = scaling.page(result, Figures(tmp_path, "scaling"))
    assert "memory grows as N^1.40" in page.agrees and "in proportion" not in page.agrees


def test_each_slope_that_is_missed_has_its_note(tmp_path):
    result = _result((1.2, 1.7))
    page = scaling.page(result, Figures(tmp_path, "scaling"))
    missed = [one.name for one in scaling.criteria(result) if one.holds is False]
    assert len(missed) == 2 and all(page.tried[name] for name in missed)


def test_crossover_only_needs_to_be_stated():
    result = _result()
    result["measured"]["crossover"]["32"]["crossover_naive"] = None
    (reported,) = [one for one in scaling.criteria(result) if one.reported and "faster" in one.name]
    assert reported.holds and "none against naive" in reported.got


def test_memory_of_reformer_is_not_scaled_from_fewer_heads(tmp_path, monkeypatch):
    monkeypatch.setattr(scaling, "half_of_memory", lambda: 12e9)
    monkeypatch.setattr(scaling, "Points", Answers)
    settings = Settings(scaling.EXPERIMENT, "cpu", tmp_path, threads=2)
    measured = scaling.run(settings, Planned())
    rows = [row for row in measured["rows"] if row["form"] == "reformer" and row["fits"]]
    assert {row["heads"] < 8 for row in rows} == {True, False}
    assert all((row["sample_bytes"] is None) == (row["heads"] < 8) for row in rows)
    page = scaling.page({"size": "cpu", "measured": measured}, Figures(tmp_path, "scaling"))
    memory = page.sections[0].parts[-1].markdown()
    assert memory.count("not measured") == sum(
        row["heads"] < 8 for row in rows if row["width"] == 32
    )
