"""Decode in the WebAssembly runtime under node against the native one on one thread: each
side a process, which take turns."""

import json
import os
import pathlib
import resource
import statistics
import subprocess
import time

import models
import native
import results
import runtime_api as runtime

PROGRAM = native.ROOT / "bench" / "wasm" / "steps.js"
WASM = "WebAssembly, node"
# SSE4 has vectors as wide as WebAssembly's.
TARGETS = ("SSE4", "AVX2")
# Of the native rate on SSE4.
LEAST = 0.7
LEAST_SHARE = 0.95  # of a core; below it other work took turns too
SECONDS = 0.5  # of a repeat, on the slower side


class Wasm:
    """The runtime under node, which takes steps when it is told to."""

    target = "WASM"

    def __init__(self, path, weights):
        build = pathlib.Path(os.environ["TARN_WASM"]).resolve()
        words = [PROGRAM, build, path, runtime.WEIGHTS[weights]]
        self._process = subprocess.Popen(
            ["node", *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.parameters = self._answer()["parameters"]

    def _answer(self):
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("bench/wasm/steps.js ended")
        return json.loads(line)

    def seconds(self, steps):
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()
        done = self._answer()
        self.cpu_per_wall = done["cpu_per_wall"]
        return done["seconds"]

    def close(self):
        self._process.stdin.close()
        self._process.wait()


def _children():
    """Processor time of the programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Native:
    """`tarn bench` on a SIMD target: the steps are warmed up and timed within it."""

    def __init__(self, path, weights, target):
        self.target = target
        program = pathlib.Path(os.environ.get("TARN_BUILD", native.ROOT / "build")) / "tarn"
        words = "-p 0 -t 1 --batch 0 -r 1 -o json --weights".split()
        self._command = [str(program), "bench", str(path), *words, weights]

    def seconds(self, steps):
        used, begin = _children(), time.perf_counter()
        done = subprocess.run(
            [*self._command, "-n", str(steps)],
            env=os.environ | {"TARN_FORCE_TARGET": self.target},
            capture_output=True,
            text=True,
            check=True,
        )
        # Of the whole program: opening takes one thread as well.
        self.cpu_per_wall = (_children() - used) / (time.perf_counter() - begin)
        return steps / json.loads(done.stdout)[0]["avg_ts"]

    def close(self):
        pass


SIZES = {
    "small": {"layers": 8, "width": 320, "heads": 5, "ff": 1280},
    "large": {"layers": 12, "width": 768, "heads": 12, "ff": 3072},
}
QUICK = {"layers": 1, "width": 32, "heads": 2, "ff": 64}


def measure(ctx):
    table = results.Table(
        "wasm",
        "WebAssembly under node",
        "Linear attention, drawn weights, one thread, batch 1. Each side is a process and they "
        "take turns, so many steps that a turn of the slowest takes half a second; medians of "
        "the repeats, and of the ratios turn by turn.",
    )
    for name, sizes in SIZES.items():
        path = models.model(
            "wasm-quick" if ctx.quick else f"wasm-{name}", **(QUICK if ctx.quick else sizes)
        )
        for weights in ("f32", "int8"):
            _decode(table, ctx, name, path, weights)
    return table


def _decode(table, ctx, size, path, weights):
    sides = {WASM: Wasm(path, weights)}
    sides |= {f"native, {target}": Native(path, weights, target) for target in TARGETS}
    taken, shares = {name: [] for name in sides}, {name: [] for name in sides}
    try:
        sides[WASM].seconds(64)  # the engine compiles what it then runs
        slowest = max(side.seconds(8) for side in sides.values()) / 8
        steps = ctx.size(max(16, round(SECONDS / slowest)), 8)
        for _ in range(max(5, min(ctx.rounds, 9))):
            for name, side in sides.items():
                taken[name].append(side.seconds(steps))
                shares[name].append(side.cpu_per_wall)
    finally:
        for side in sides.values():
            side.close()
    parameters = sides[WASM].parameters
    model = f"{size}, {parameters / 1e6:.0f} M, {weights}"
    for name, side in sides.items():
        median, share = statistics.median(taken[name]), statistics.median(shares[name])
        table.rows.append(
            {
                "side": name,
                "model": model,
                "parameters": parameters,
                "seq_len": steps,
                "threads": 1,
                "target": side.target,
                "tokens_per_s": steps / median,
                "median_ms": median * 1e3,
                "min_ms": min(taken[name]) * 1e3,
                "repeats": len(taken[name]),
                "cpu_per_wall": share,
                "contended": share < LEAST_SHARE,
                "valid": True,
            }
        )
    ours = taken[WASM]
    for name in list(sides)[1:]:
        ratio = statistics.median(n / w for n, w in zip(taken[name], ours))
        table.goal(
            f"{model}: WebAssembly, of the rate of {name}",
            results.at_least(LEAST) if "SSE4" in name else {},
            ratio,
            remark=f"{steps / statistics.median(ours):,.0f} tokens/s, "
            f"{steps / statistics.median(taken[name]):,.0f} native",
        )
