"""What the machine can do, measured in the same process before and after each
group of rows: multiply-adds in registers, copy and read bandwidth, torch's
sgemm. Rows whose limits moved by more than 5 % are invalid."""

import functools

import harness
import native
import torch

MOST_CHANGE = 0.05
LEAST_CPU_SHARE = 0.95
SGEMM_SIZE = 1024
# Bandwidth is measured on a buffer of the rows' size, up to this many bytes.
MOST_FOOTPRINT = 1 << 30
# Numbers of runs of which a limit is the best, and rounds of the multiply-add loop.
SGEMM_RUNS, FMA_RUNS, COPY_RUNS = 12, 8, 5
FMA_ROUNDS = 1_000_000
# The most times that a group is measured when its limits move.
ATTEMPTS = 2


def be_quick():
    """Makes limits fast and meaningless, for the tests of the benchmark itself,
    which would spend most of their time on them."""
    global SGEMM_SIZE, MOST_FOOTPRINT, SGEMM_RUNS, FMA_RUNS, COPY_RUNS
    global FMA_ROUNDS, ATTEMPTS, MOST_CHANGE
    SGEMM_SIZE, MOST_FOOTPRINT = 64, 1 << 20
    SGEMM_RUNS = FMA_RUNS = COPY_RUNS = ATTEMPTS = 1
    FMA_ROUNDS = 1_000
    MOST_CHANGE = float("inf")


def sgemm_side(threads, size=None, name="sgemm"):
    """torch's float32 product [size, size] x [size, size] (SGEMM_SIZE), with the
    result written in place."""
    size = size or SGEMM_SIZE
    a, b = torch.randn(size, size), torch.randn(size, size)
    out = torch.empty(size, size)
    flop = 2.0 * size**3
    return harness.of_call(
        name,
        lambda: torch.mm(a, b, out=out),
        threads,
        useful_flop=flop,
        executed_flop=flop,
    )


# Buffers of a limit are kept, since 1 GiB takes longer to fill than to copy, but
# only as many as a small machine can hold: the least recently used go first.
MOST_HELD = 4 << 30
_held = {}


def _case(name, threads, **params):
    key = (name, threads, *sorted(params.items()))
    case = _held.pop(key, None)
    if case is None:
        weight = lambda k: 2 * dict(k[2:]).get("bytes", 0)
        while _held and sum(map(weight, _held)) + weight(key) > MOST_HELD:
            _held.pop(next(iter(_held))).close()
        case = native.Case(name, threads, **params)
    _held[key] = case  # last: the most recently used
    return case


def best_rate(side, repeats):
    """Largest FLOP/s (or bytes/s) of several runs: a limit, not a mean."""
    harness.settle()
    side.run(1)
    amount = side.useful_flop or side.bytes
    return max(amount / side.run(1)[0] for _ in range(repeats))


@functools.lru_cache(maxsize=4)
def _sgemm(threads):
    return sgemm_side(threads)


def measure(threads, footprint):
    """Limits now: FLOP/s and, on a buffer of `footprint` bytes, bytes/s."""
    footprint = min(max(int(footprint), 1 << 16), MOST_FOOTPRINT)
    step = 1 << max(0, footprint.bit_length() - 3)  # few different buffers
    footprint = -(-footprint // step) * step
    side = lambda name, **params: harness.of_case(_case(name, threads, **params))
    return {
        "sgemm_gflops": best_rate(_sgemm(threads), SGEMM_RUNS) / 1e9,
        "fma_gflops": best_rate(side("limit_fma", rounds=FMA_ROUNDS), FMA_RUNS) / 1e9,
        "copy_gbs": best_rate(side("limit_copy", bytes=footprint), COPY_RUNS) / 1e9,
        "read_gbs": best_rate(side("limit_read", bytes=footprint), COPY_RUNS) / 1e9,
        "footprint": footprint,
    }


def better(one, other):
    """The larger of two measurements of each limit, which is the most that was seen."""
    return {key: max(one[key], other[key]) for key in one}


def change(before, after):
    """Largest relative change of the two compute limits."""
    keys = ("sgemm_gflops", "fma_gflops")
    return max(abs(after[k] / before[k] - 1) for k in keys)


def group(sides, repeats, footprint, threads, attempts=None, budget=60.0):
    """interleave() with the limits before and after: each is the better of two
    measurements, and of two more where they moved, since a passing disturbance only
    lowers them. If they still differ, everything is measured again; the steadiest
    attempt is kept. Returns (samples, limits): limits with `change`, `valid`."""
    look = lambda: measure(threads, footprint)
    tried = []
    for _ in range(attempts or ATTEMPTS):
        before = better(look(), look())
        samples = harness.interleave(sides, repeats, budget)
        after = look()
        for _ in range(3):
            if change(before, after) > MOST_CHANGE:
                after = better(after, look())
        limits = better(before, after)
        limits["change"] = change(before, after)
        limits["valid"] = limits["change"] <= MOST_CHANGE
        tried.append((samples, limits))
        if limits["valid"]:
            break
    samples, limits = min(tried, key=lambda one: one[1]["change"])
    limits["attempts"] = len(tried)
    return samples, limits


def row(side, samples, limits, sgemm=None):
    """One line of a table: times, work, and the percentage of the limit, which is
    the longer of the least times that FLOP and bytes need. The share of sgemm is
    taken pair by pair where sgemm ran in turn (`sgemm`, Samples)."""
    flop_s = side.useful_flop / (limits["fma_gflops"] * 1e9)
    byte_s = side.bytes / (limits["copy_gbs"] * 1e9)
    gflops = side.useful_flop / samples.median / 1e9
    line = {
        "side": side.name,
        "threads": side.threads,
        "target": native.simd_target(),
        "median_ms": samples.median * 1e3,
        "min_ms": samples.minimum * 1e3,
        "repeats": len(samples.wall),
        "cpu_per_wall": samples.cpu_per_wall,
        "contended": samples.cpu_per_wall < LEAST_CPU_SHARE * side.threads,
        "valid": limits["valid"],
        "limits": {k: v for k, v in limits.items() if k != "valid"},
        **side.facts,
    }
    if side.useful_flop or side.bytes:
        line |= {
            "useful_flop": side.useful_flop,
            "executed_flop": side.executed_flop,
            "bytes": side.bytes,
            "useful_gflops": gflops,
            "gbs": side.bytes / samples.median / 1e9,
            "limit_ms": max(flop_s, byte_s) * 1e3,
            "bound": "flop" if flop_s >= byte_s else "bytes",
            "percent_of_limit": 100 * max(flop_s, byte_s) / samples.median,
        }
    if side.useful_flop and sgemm is not None:
        one = 2.0 * SGEMM_SIZE**3
        pairs = sorted((side.useful_flop / w) / (one / s) for w, s in zip(samples.wall, sgemm.wall))
        line["share_of_sgemm"] = pairs[len(pairs) // 2]
    return line
