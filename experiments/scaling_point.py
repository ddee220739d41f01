"""One point of the scaling experiment, measured in a separate process: time
and peak memory of causal attention with its gradient.

    python -m experiments.scaling_point        requests on stdin, a JSON line each

The program loads its libraries, runs no operator itself, and measures each
request in a fork: every point starts from the same memory, without the seconds
that loading takes.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import tarn.ops
from experiments.core.machine import bench
from experiments.core.types import JsonDict

Form = Callable[[Tensor, Tensor, Tensor], Tensor]

WARM_UP_TOKENS = 64
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of mallopt(3)


def _reformer(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Reformer attention as in the paper's copy task: 4 rounds, chunks of 32, 64 buckets."""
    del keys  # queries are their own
    return tarn.ops.reformer_attention(
        queries, values, chunk_size=32, bits=32, rounds=4, masked=True, causal=True
    )


def _blocked(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    return tarn.ops.full_attention(queries, keys, values, causal=True)


def form(name: str) -> Form:
    """Causal attention [B, T, H, D] x 3 -> [B, T, H, D] by its name here."""
    forms: dict[str, Any] = {  # linear_attention may return its state too
        "linear": tarn.ops.linear_attention,
        "softmax": _blocked,
        "naive": bench("torch_forms").naive_softmax,
        "reformer": _reformer,
    }
    return forms[name]


class Call:
    """Forward and gradient of one form at one shape, on its own inputs."""

    def __init__(
        self,
        name: str,
        batch: int,
        seq_len: int,
        heads: int,
        width: int,
        dtype: str = "float32",
        seed: int = 0,
    ) -> None:
        random = torch.Generator().manual_seed(seed)
        shape = (batch, seq_len, heads, width)
        kind = getattr(torch, dtype)
        draw = lambda: torch.randn(shape, generator=random).to(kind)  # noqa: E731
        self.form = form(name)
        self.inputs = [draw().requires_grad_() for _ in range(3)]
        self.grad_out = draw()

    def __call__(self) -> None:
        used = [0, 2] if self.form is _reformer else [0, 1, 2]
        out = self.form(*self.inputs)
        torch.autograd.grad(out, [self.inputs[i] for i in used], self.grad_out)


def keep_buffers() -> bool:
    """From here on the allocator returns nothing to the system, so that repeats
    use the same buffers: pages of new ones would cost as much as the attention.
    False where the C library has no mallopt."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        return False
    return bool(libc.mallopt(_M_MMAP_MAX, 0)) and bool(libc.mallopt(_M_TRIM_THRESHOLD, -1))


def _timed(call: Call) -> tuple[float, float]:
    """Wall and processor seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu


def measure_point(request: JsonDict) -> JsonDict:
    """Peak memory of the first call over a process that has run a small one, the
    inputs counted; then, with buffers kept, one unmeasured call and the fastest of
    `repeats`, fewer when they pass `seconds` (at least 3 of short calls, 1 of
    long ones): what else runs on the machine only adds to a call. A first call
    longer than `longest_twice` is the measurement."""
    shape = {key: request[key] for key in ("batch", "seq_len", "heads", "width")}
    rest = {"dtype": request["dtype"], "seed": request["seed"]}
    Call(request["form"], 1, WARM_UP_TOKENS, shape["heads"], shape["width"], **rest)()
    made: list[Any] = []

    def first() -> None:
        made.append(Call(request["form"], *shape.values(), **rest))
        made.append(_timed(made[0]))

    peak = bench("memory").peak_bytes(first)
    call, times = made[0], [made[1]]
    reused = times[0][0] < request["longest_twice"] and keep_buffers()
    if reused:
        least = 3 if _timed(call)[0] < request["seconds"] / 3 else 1
        times = []
        began = time.perf_counter()
        while len(times) < request["repeats"] and (
            len(times) < least or time.perf_counter() - began < request["seconds"]
        ):
            times.append(_timed(call))
    return {
        "peak_bytes": peak,
        "wall_s": min(t[0] for t in times),
        "cpu_s": min(t[1] for t in times),
        "repeats": len(times),
        "buffers_reused": reused,
    }


def measure_crossover(request: JsonDict) -> JsonDict:
    """Where linear attention becomes the faster one: the forms in turn, repeat by
    repeat, in one process; ratios pair by pair."""
    harness = bench("harness")
    keep_buffers()
    rows = []
    for seq_len in request["lengths"]:
        batch = max(1, request["tokens"] // seq_len)
        calls = {
            name: Call(
                name, batch, seq_len, request["heads"], request["width"], seed=request["seed"]
            )
            for name in ("linear", "softmax", "naive")
        }
        sides = [harness.of_call(name, call, request["threads"]) for name, call in calls.items()]
        samples = harness.interleave(sides, request["repeats"], budget=10.0)
        rows.append(
            {"seq_len": seq_len, "batch": batch}
            | {
                f"{name}_over_linear": harness.ratio(samples[name], samples["linear"])
                for name in ("softmax", "naive")
            }
            | {f"{name}_s": samples[name].median / batch for name in calls}
        )
    return {"rows": rows} | {
        f"crossover_{name}": harness.crossing(
            [(row["seq_len"], row[f"{name}_over_linear"]) for row in rows]
        )
        for name in ("softmax", "naive")
    }


def _answer(request: JsonDict) -> JsonDict:
    torch.set_num_threads(request["threads"])
    return {"point": measure_point, "crossover": measure_crossover}[request["kind"]](request)


def _child(request: JsonDict, out: int) -> None:
    """Writes the answer and ends the process, whatever happens."""
    try:
        answer = _answer(request)
    except BaseException as error:  # noqa: BLE001 the parent tells the user
        traceback.print_exc()
        answer = {"error": f"{type(error).__name__}: {error}"}
    os.write(out, (json.dumps(answer) + "\n").encode())
    os._exit(0)


def serve() -> None:
    """Answers requests until stdin ends; a fork that was killed (memory) answers
    with an error."""
    for line in sys.stdin:
        request = json.loads(line)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            _child(request, writer)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            answer = pipe.read()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(answer.strip() or json.dumps({"error": f"ended with {status}"}), flush=True)


if __name__ == "__main__":
    serve()
