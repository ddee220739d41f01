"""Fair timing of several sides in one process.

Sides run in turn, repeat by repeat, so that a change of the machine's speed
meets all of them; ratios are taken pair by pair. Before each turn the process
waits until it is idle: worker threads of another side that still spin would take a core.
"""

import dataclasses
import math
import statistics
import time
from collections.abc import Callable

# A sample is at least this long, so that clocks and wake-ups do not matter.
SAMPLE_SECONDS = 4e-3
# Each shorter sample follows an unmeasured run, which wakes threads and warms caches.
WARM_BELOW_SECONDS = 50e-3
# The longest wait for threads that still spin.
MOST_SETTLE_SECONDS = 0.3


def be_quick():
    """Makes samples short and meaningless, for the tests of the benchmark itself."""
    global SAMPLE_SECONDS, WARM_BELOW_SECONDS, MOST_SETTLE_SECONDS
    SAMPLE_SECONDS, WARM_BELOW_SECONDS, MOST_SETTLE_SECONDS = 1e-6, 0, 0


@dataclasses.dataclass
class Side:
    """Something to time. run(inner) does the work `inner` times and returns
    (wall seconds, processor seconds)."""

    name: str
    run: Callable
    threads: int
    useful_flop: float = 0.0
    executed_flop: float = 0.0
    bytes: float = 0.0
    facts: dict = dataclasses.field(default_factory=dict)


def of_case(case, name="tarn", **facts):
    """A side of a native.Case."""
    facts = {"case": case.name, **case.params, **facts}
    return Side(
        name,
        case.run,
        case.threads,
        case.useful_flop,
        case.executed_flop,
        case.bytes,
        facts,
    )


def of_call(name, call, threads, **keywords):
    """A side of a Python callable without arguments; torch's thread count is
    set outside the clock."""
    import torch

    def run(inner):
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        cpu, wall = time.process_time_ns(), time.perf_counter_ns()
        for _ in range(inner):
            call()
        wall = time.perf_counter_ns() - wall
        cpu = time.process_time_ns() - cpu
        return wall * 1e-9, cpu * 1e-9

    return Side(name, run, threads, **keywords)


@dataclasses.dataclass
class Samples:
    """Seconds of single runs; the samples i of all sides belong together."""

    wall: list
    cpu: list
    inner: int

    @property
    def median(self):
        return statistics.median(self.wall)

    @property
    def minimum(self):
        return min(self.wall)

    @property
    def cpu_per_wall(self):
        return statistics.median(c / w for c, w in zip(self.cpu, self.wall))


def settle():
    """Waits until no thread of this process spins any more."""
    deadline = time.perf_counter() + MOST_SETTLE_SECONDS
    while time.perf_counter() < deadline:
        before = time.process_time()
        time.sleep(2e-3)
        if time.process_time() - before < 0.2e-3:
            return


def _calibrate(side):
    """The number of runs that makes a sample long enough to time, and its seconds."""
    wall, _ = side.run(1)
    if wall < WARM_BELOW_SECONDS:
        wall, _ = side.run(1)
    count = max(1, round(SAMPLE_SECONDS / max(wall, 1e-9)))
    if count > 1:  # a single short run says little: measure again
        wall = side.run(count)[0] / count
        count = max(1, round(SAMPLE_SECONDS / max(wall, 1e-9)))
    return count, wall * count


# A median of fewer says little.
LEAST_REPEATS = 5


def interleave(sides, repeats, budget=60.0):
    """{name: Samples}; fewer repeats, at least LEAST_REPEATS, when `budget` seconds pass."""
    plan, results = {}, {}
    for side in sides:
        settle()
        plan[side.name] = _calibrate(side)
        results[side.name] = Samples([], [], plan[side.name][0])
    start = time.perf_counter()
    for repeat in range(repeats):
        if repeat >= LEAST_REPEATS and time.perf_counter() - start > budget:
            break
        for side in sides:
            count, seconds = plan[side.name]
            settle()
            if seconds < WARM_BELOW_SECONDS:
                side.run(count)
            wall, cpu = side.run(count)
            results[side.name].wall.append(wall / count)
            results[side.name].cpu.append(cpu / count)
    return results


def ratio(slower, faster):
    """Median over the pairs of how many times as long `slower` takes."""
    return statistics.median(a / b for a, b in zip(slower.wall, faster.wall))


def bandwidth_share(side, samples, limit):
    """Median over the pairs of the bytes a second of a side over those of another."""
    return statistics.median(
        (side.bytes / a) / (limit.bytes / b)
        for a, b in zip(samples[side.name].wall, samples[limit.name].wall)
    )


def crossing(points):
    """x from which the ratio of points (x, ratio) stays at 1 or above, between
    measured points on a log scale; the first x if that holds from the beginning,
    None if it never does."""
    above = None
    for i in reversed(range(len(points))):
        if points[i][1] < 1:
            break
        above = i
    if above is None or above == 0:
        return None if above is None else points[0][0]
    (n0, r0), (n1, r1) = points[above - 1], points[above]
    share = -math.log(r0) / (math.log(r1) - math.log(r0))
    return n0 * (n1 / n0) ** share
