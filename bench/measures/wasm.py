"""Decode in the WebAssembly runtime under node against the native one on one thread: each
side a process, which take turns."""

import json
import os
import pathlib
import statistics
import subprocess
import sys

import family_models
import models
import native
import results
import runtime_api as runtime

PROGRAMS = native.ROOT / "bench" / "wasm"
# By what each side is called. SSE4 has vectors as wide as WebAssembly's.
NATIVE = {"native, SSE4": "sse4", "native, AVX2": "avx2"}
WASM = "WebAssembly, node"
# Of the native rate on SSE4.
LEAST = 0.7
SECONDS = 0.5  # of a repeat, on the slower side


class Side:
    """A program that takes steps when it is told to."""

    def __init__(self, command, **environment):
        self._process = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )
        self.facts = self._answer()
        self.seconds, self.cpu = [], []

    def _answer(self):
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args}: it ended")
        return json.loads(line)

    def take(self, steps):
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self):
        self._process.stdin.close()
        self._process.wait()


def _sides(path, weights):
    build = pathlib.Path(os.environ["TARN_WASM"]).resolve()
    words = [PROGRAMS / "steps.js", build, path, runtime.WEIGHTS[weights]]
    sides = {WASM: Side(["node", *words])}
    for name, target in NATIVE.items():
        command = [sys.executable, PROGRAMS / "steps.py", path, weights]
        sides[name] = Side(command, TARN_FORCE_TARGET=target, OMP_NUM_THREADS="1")
    return sides


def _model(ctx, kind):
    if kind == "linear":
        sizes = {"layers": 8, "width": 320, "heads": 5, "ff": 1280}
        if ctx.quick:
            sizes = {"layers": 1, "width": 32, "heads": 2, "ff": 64}
        return models.model(f"wasm-{'quick' if ctx.quick else 'linear'}", **sizes)
    return family_models.folder(kind, ctx.quick)


def measure(ctx):
    table = results.Table(
        "wasm",
        "WebAssembly under node",
        "One thread, batch 1, drawn weights. Each side is a process and they take turns, step "
        "counts chosen so that a turn of the slowest takes half a second; medians of the repeats, "
        "and of the ratios turn by turn.",
    )
    for kind in ("linear", "gdn"):
        for weights in ("f32", "int8"):
            _decode(table, ctx, kind, weights)
    return table


def _decode(table, ctx, kind, weights):
    sides = _sides(_model(ctx, kind), weights)
    try:
        # The first turns also let the engine compile what it then runs.
        for side in sides.values():
            side.take(8)
        slowest = max(side.take(8)["seconds"] for side in sides.values()) / 8
        steps = ctx.size(max(16, round(SECONDS / slowest)), 8)
        for _ in range(max(5, min(ctx.rounds, 9))):
            for side in sides.values():
                done = side.take(steps)
                side.seconds.append(done["seconds"])
                side.cpu.append(done["cpu"])
    finally:
        for side in sides.values():
            side.close()
    parameters = sides[WASM].facts["parameters"]
    model = f"{kind}, {parameters / 1e6:.0f} M, {weights}"
    for name, side in sides.items():
        median = statistics.median(side.seconds)
        table.rows.append(
            {
                "side": name,
                "model": model,
                "parameters": parameters,
                "seq_len": steps,
                "threads": 1,
                "target": side.facts.get("target", "WASM"),
                "tokens_per_s": steps / median,
                "median_ms": median * 1e3,
                "min_ms": min(side.seconds) * 1e3,
                "repeats": len(side.seconds),
                "cpu_per_wall": sum(side.cpu) / sum(side.seconds),
                "contended": False,
                "valid": True,
            }
        )
    ours = sides[WASM].seconds
    for name, side in sides.items():
        if name == WASM:
            continue
        ratio = statistics.median(n / w for n, w in zip(side.seconds, ours))
        table.goal(
            f"{model}: WebAssembly, of the rate of {name}",
            results.at_least(LEAST) if "SSE4" in name else {},
            ratio,
            remark=f"{steps / statistics.median(ours):,.0f} tokens/s, "
            f"{steps / statistics.median(side.seconds):,.0f} native",
        )
