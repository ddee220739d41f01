"""Figure 1: time and memory of causal attention with its gradient against the
sequence length."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from experiments.core import (
    Criterion,
    Experiment,
    ExperimentError,
    Figures,
    JsonDict,
    Page,
    Progress,
    Settings,
    measure,
)
from experiments.core.data import ROOT

HEADS = 8
# Tokens of a call: batch * N, where N leaves room for more than one sample.
TOKENS = {"linear": 1 << 14, "softmax": 1 << 12, "naive": 1 << 12, "reformer": 1 << 11}
FORMS = {"linear": ("linear",), "softmax": ("softmax", "naive"), "reformer": ("reformer",)}
SLOPE_FROM = 1 << 12
# Multiply-adds counting 2 a second, as planned on two AVX-512 cores.
RATES = {"linear": 60e9, "softmax": 70e9, "naive": 22e9}
REFORMER_S = 1e-5  # the same, for a token and a column of 8 heads
# A call that is planned to take longer is measured on fewer of the heads, which
# are independent of each other, and scaled.
LONGEST_CALL_S = 5.0
# What was seen to be held: score arrays of 4 N^2 bytes a head by naive softmax
# and its gradient, and multiples of least_bytes() by the others.
NAIVE_ARRAYS = 3.2
HOLDS = {"linear": 1.05, "softmax": 1.05, "reformer": 8.0}
CROSSOVER_LENGTHS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)


class Points:
    """The program experiments.scaling_point, started when it is needed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Points:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.communicate()  # closes its input: it ends

    def ask(self, request: JsonDict) -> JsonDict:
        """The measuring process's answer; ExperimentError where it has none."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-B", "-m", "experiments.scaling_point"],
                cwd=ROOT,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline() or '{"error": "it ended"}')
        if "error" in answer:
            raise ExperimentError(f"scaling_point: {request}: {answer['error']}")
        return answer


def flop(form: str, seq_len: int, width: int, heads: int = HEADS) -> float:
    """Floating-point operations of a sample, forward and gradient (2.5 times the forward):
    the forward of a head takes 2 N^2 (E + M) / 2 with causal softmax, 4 N E M with linear."""
    if form == "linear":
        return 3.5 * 4.0 * seq_len * width * width * heads
    return 3.5 * float(seq_len) ** 2 * 2 * width * heads


def least_bytes(seq_len: int, width: int, item: int = 4) -> int:
    """The bytes of a sample that any form must hold, and all that linear attention
    holds: queries, keys, values, result, the gradients of all four, and a denominator
    a row."""
    return HEADS * seq_len * (8 * width * item + 4)


def planned_s(form: str, seq_len: int, width: int, heads: int = HEADS) -> float:
    """Seconds of a sample on two AVX2 cores, forward and gradient."""
    if form == "reformer":
        return REFORMER_S * seq_len * width * heads / HEADS
    return flop(form, seq_len, width, heads) / RATES[form]


def planned_bytes(form: str, seq_len: int, width: int, dtype: str = "float32") -> float:
    """Peak memory of a sample."""
    if form == "naive":
        return NAIVE_ARRAYS * HEADS * 4 * seq_len**2
    return HOLDS[form] * least_bytes(seq_len, width, 4 if dtype == "float32" else 2)


def heads_of(form: str, seq_len: int, width: int, threads: int) -> int:
    """Heads that are measured, a power of two; no fewer than threads. Linear
    attention, whose memory is compared with the least, always has all."""
    heads = HEADS
    while (
        form != "linear"
        and heads // 2 >= threads
        and heads > 1
        and (planned_s(form, seq_len, width, heads) > LONGEST_CALL_S)
    ):
        heads //= 2
    return heads


def slope(points: Sequence[tuple[float, float]], least: float = SLOPE_FROM) -> float | None:
    """Exponent of y ~ x^slope: least squares of the logarithms, over x from
    `least` up; None for fewer than three points."""
    logs = [(math.log(x), math.log(y)) for x, y in points if x >= least and y > 0]
    if len(logs) < 3:
        return None
    mean_x = sum(x for x, _ in logs) / len(logs)
    mean_y = sum(y for _, y in logs) / len(logs)
    return sum((x - mean_x) * (y - mean_y) for x, y in logs) / sum(
        (x - mean_x) ** 2 for x, _ in logs
    )


def half_of_memory() -> int:
    """Half of the machine's memory in bytes, or of the control group's limit where that is
    lower."""
    limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="utf-8") as file:
            limit = min(limit, int(file.read()))
    except (OSError, ValueError):
        pass  # no control group, or no limit ("max")
    return limit // 2


class Run:
    """One run: asks for point after point and keeps what they say."""

    def __init__(self, settings: Settings, progress: Progress, points: Points) -> None:
        self.settings, self.progress, self.points = settings, progress, points
        self.half = half_of_memory()
        # The smoke size has two lengths and one width: most of a point's time is that of
        # its process, and no growth is fitted below 2^12 anyway.
        self.lengths = [1 << p for p in range(9, 1 + settings.pick(quick=10, cpu=16, full=20))]
        self.widths = settings.pick(quick=(32,), cpu=(32, 64), full=(32, 64))
        self.dtypes = settings.pick(
            quick=("float32",), cpu=("float32",), full=("float32", "bfloat16")
        )
        self.tokens = {
            form: settings.pick(quick=min(n, 1 << 10), cpu=n, full=n) for form, n in TOKENS.items()
        }
        self.repeats = settings.pick(quick=3, cpu=15, full=15)
        self.seconds = settings.pick(quick=0.05, cpu=2.0, full=10.0)
        # New pages weigh nothing in a long call of the blocked form.
        self.longest_twice = {
            "softmax": self.seconds,
            "linear": 6 * self.seconds,
            "naive": settings.pick(quick=0.0, cpu=6.0, full=40.0),
            "reformer": settings.pick(quick=0.0, cpu=1.0, full=40.0),
        }
        # Blocked softmax takes four times as long at each length.
        self.longest_softmax = settings.pick(quick=1 << 10, cpu=1 << 16, full=1 << 18)

    def series(self) -> list[tuple[str, int, str]]:
        """(form, width, dtype); only tarn's kernels are run in bfloat16."""
        forms = [form for kind in self.settings.attentions for form in FORMS[kind]]
        return [
            (form, width, dtype)
            for dtype in self.dtypes
            for width in self.widths
            for form in forms
            if dtype == "float32" or form in ("linear", "softmax")
        ]

    def plan(self) -> None:
        """Tells the progress all points but those that will not be measured."""
        seconds = {}
        for form, width, dtype in self.series():
            for seq_len in self.lengths:
                if form == "softmax" and seq_len > self.longest_softmax:
                    continue
                if planned_bytes(form, seq_len, width, dtype) > self.half:
                    continue
                heads = heads_of(form, seq_len, width, self.settings.threads)
                call = planned_s(form, seq_len, width, heads) * max(1, self.tokens[form] // seq_len)
                seconds[part(form, width, seq_len, dtype)] = 0.3 + self._calls_s(form, call)
        if self.crosses():
            for width in self.widths:
                seconds[f"crossover, {width} wide"] = self.settings.pick(quick=1, cpu=8, full=8)
        self.progress.plan(seconds)

    def _calls_s(self, form: str, call: float) -> float:
        """Seconds of all calls of a point when one takes `call`: see
        scaling_point.measure_point."""
        if call >= self.longest_twice[form]:
            return call
        least = 3 if call < self.seconds / 3 else 1
        counted = min(self.repeats, max(least, math.ceil(self.seconds / call)))
        return (2 + counted) * call

    def crosses(self) -> bool:
        return {"linear", "softmax"} <= set(self.settings.attentions)

    def point(
        self, form: str, width: int, dtype: str, seq_len: int, before: JsonDict | None
    ) -> JsonDict:
        """One row. `before` is the row of half the length: it tells what this
        one will take."""
        row: JsonDict = {"form": form, "width": width, "dtype": dtype, "seq_len": seq_len}
        if form == "softmax" and seq_len > self.longest_softmax:
            return row | {"fits": None}
        if before is not None:
            grows = 4 if form == "naive" else 2
            needed = grows * (before.get("sample_bytes") or before["needed_bytes"])
            if not before["fits"] or needed > self.half:
                return row | {"fits": False, "needed_bytes": needed}
        threads = self.settings.threads
        heads = heads_of(form, seq_len, width, threads)
        batch = max(1, self.tokens[form] // seq_len)
        request = {
            "kind": "point",
            "form": form,
            "batch": batch,
            "seq_len": seq_len,
            "heads": heads,
            "width": width,
            "dtype": dtype,
            "threads": threads,
            "repeats": self.repeats,
            "seconds": self.seconds,
            "longest_twice": self.longest_twice[form],
            "seed": self.settings.seed,
        }
        found = measure(
            self.settings,
            self.progress,
            part(form, width, seq_len, dtype),
            request,
            lambda: self.points.ask(request),
        )
        samples = batch * heads / HEADS
        return row | {
            "fits": True,
            "batch": batch,
            "heads": heads,
            "repeats": found["repeats"],
            "buffers_reused": found["buffers_reused"],
            "sample_s": found["wall_s"] / samples,
            "sample_cpu_s": found["cpu_s"] / samples,
            # Reformer's scratch does not go with the heads: not to be scaled.
            "sample_bytes": (
                None if form == "reformer" and heads < HEADS else found["peak_bytes"] / samples
            ),
            "needed_bytes": planned_bytes(form, seq_len, width, dtype),
            "least_bytes": least_bytes(seq_len, width, 4 if dtype == "float32" else 2),
        }

    def rows(self) -> list[JsonDict]:
        rows = []
        for form, width, dtype in self.series():
            before: JsonDict | None = None
            for seq_len in self.lengths:
                before = self.point(form, width, dtype, seq_len, before)
                rows.append(before)
        return rows

    def crossovers(self) -> dict[str, JsonDict]:
        if not self.crosses():
            return {}
        lengths = self.settings.pick(quick=(16, 256), cpu=CROSSOVER_LENGTHS, full=CROSSOVER_LENGTHS)
        found = {}
        for width in self.widths:
            request = {
                "kind": "crossover",
                "width": width,
                "heads": HEADS,
                "lengths": list(lengths),
                "tokens": self.settings.pick(quick=1 << 10, cpu=1 << 12, full=1 << 12),
                "threads": self.settings.threads,
                "seed": self.settings.seed,
                "repeats": self.settings.pick(quick=3, cpu=9, full=9),
            }
            found[str(width)] = measure(
                self.settings,
                self.progress,
                f"crossover, {width} wide",
                request,
                lambda asked=request: self.points.ask(asked),
            )
        return found


def part(form: str, width: int, seq_len: int, dtype: str) -> str:
    """A point's name in progress and files."""
    kind = "" if dtype == "float32" else f", {dtype}"
    return f"{form}, {width} wide, N = {seq_len}{kind}"


def slopes(rows: Sequence[JsonDict]) -> list[JsonDict]:
    """The exponents of time, processor time and memory a sample, series by series, over
    lengths from 2^12 up."""
    series: dict[tuple[str, int, str], list[JsonDict]] = {}
    for row in rows:
        if row["fits"]:
            series.setdefault((row["form"], row["width"], row["dtype"]), []).append(row)
    return [
        {
            "form": form,
            "width": width,
            "dtype": dtype,
            "time": slope([(r["seq_len"], r["sample_s"]) for r in found]),
            "cpu": slope([(r["seq_len"], r["sample_cpu_s"]) for r in found]),
            "memory": slope(
                [(r["seq_len"], r["sample_bytes"]) for r in found if r["sample_bytes"] is not None]
            ),
        }
        for (form, width, dtype), found in series.items()
    ]


def run(settings: Settings, progress: Progress) -> JsonDict:
    """Measures all points; the result holds a row each."""
    with Points() as points:
        work = Run(settings, progress, points)
        work.plan()
        rows = work.rows()
        return {
            "seeds": [settings.seed],
            "rows": rows,
            "slopes": slopes(rows),
            "crossover": work.crossovers(),
            "heads": HEADS,
            "tokens": work.tokens,
            "repeats": work.repeats,
            "longest_twice": work.longest_twice,
            "half_of_memory": work.half,
        }


def criteria(result: JsonDict) -> list[Criterion]:
    from experiments import scaling_page

    return scaling_page.criteria(result)


def page(result: JsonDict, figures: Figures) -> Page:
    from experiments import scaling_page

    return scaling_page.page(result, figures)


SOURCES: tuple[Any, ...] = (
    "experiments/scaling.py",
    "experiments/scaling_point.py",
    "experiments/core/machine.py",
    "bench/memory.py",
    "bench/harness.py",
    "bench/torch_forms.py",
    "python/tarn/ops",
    "src/config",
    "src/core",
    "src/kernels",
    "src/torch_nn",
    "src/torch_ops",
)

EXPERIMENT = Experiment(
    name="scaling",
    title="Time and memory against the sequence length",
    paper="Figure 1",
    claim="Linear attention takes time and memory proportional to the sequence length; softmax "
    "attention takes time proportional to its square, and also memory if it stores its "
    "scores.",
    sources=SOURCES,
    attention=("linear", "softmax", "reformer"),
    devices=("cpu",),  # it plans with the rates and the memory of the CPU's kernels
    minutes={"quick": 0.3, "cpu": 5.1, "full": 110},
    run=run,
    criteria=criteria,
    page=page,
)
