"""Times of torch's collectives over Gloo, measured by ranks that this program forks.

    python -m experiments.ranks.collectives        requests on stdin, a JSON line each

A request: {"ranks": P, "network": null or {"latency_s", "rate_bit_s"}, "cases": [{"op",
"bytes"}], "repeats": most, "seconds": of a case, "timeout_s"}. The answer: {"rows": [{"op",
"bytes", "seconds", "sent"}]}, in the order of the cases, or {"error": ...}. `network` null is
the loopback device. `bytes` is the size of a tensor: the whole one that is reduced, gathered
or broadcast, and of "ring" what a rank passes on. `seconds` is the median over the repeats of
the time from when the last rank began to when the last one ended; `sent` are bytes of all
nodes together in one call, None on loopback. The program imports torch once, runs no operator
itself, and forks.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.synchronize import Barrier
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from experiments.core.types import JsonDict
from experiments.ranks.forwarder import DEVICE
from experiments.ranks.network import Network
from experiments.ranks.repeats import repeats_of

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG, _SIGKILL = 1, 9
OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "ring")
_MULTI = multiprocessing.get_context("fork")


def with_parent() -> None:
    """This process ends when the one that started it does."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, _SIGKILL)


def call_of(op: str, count: int, rank: int, ranks: int) -> Callable[[], Any]:
    """One call of a collective on `count` bytes of float32, ready to be repeated. ValueError
    for another op."""
    numbers = max(1, count // 4)
    own = torch.ones(max(1, numbers // ranks))
    whole = torch.ones(own.numel() * ranks)
    if op == "all_reduce":
        return lambda: dist.all_reduce(whole)
    if op == "all_gather":
        gather = _named("all_gather_single", "all_gather_into_tensor")
        return lambda: gather(whole, own)
    if op == "reduce_scatter":
        scatter = _named("reduce_scatter_single", "reduce_scatter_tensor")
        return lambda: scatter(own, whole)
    if op == "broadcast":
        return lambda: dist.broadcast(whole, 0)
    if op == "ring":
        held, coming = torch.ones(numbers), torch.empty(numbers)
        return lambda: _ring(held, coming, rank, ranks)
    raise ValueError(f"op: want one of {', '.join(OPS)}, got {op!r}")


def _named(new: str, old: str) -> Callable[..., Any]:
    """torch has renamed them."""
    return getattr(dist, new, None) or getattr(dist, old)


def _ring(held: Tensor, coming: Tensor, rank: int, ranks: int) -> None:
    """What ring attention sends: P - 1 times, to the next rank, what came from the one before."""
    for _ in range(ranks - 1):
        waits = [dist.isend(held, (rank + 1) % ranks), dist.irecv(coming, (rank - 1) % ranks)]
        for one in waits:
            if one is not None:  # None: a process outside the group
                one.wait()
        held, coming = coming, held


class Shared:
    """What parent and ranks share: barriers of all of them, and times on one clock."""

    def __init__(self, ranks: int, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.all: Barrier = _MULTI.Barrier(ranks + 1)  # the parent, too
        self.only_ranks: Barrier = _MULTI.Barrier(ranks)
        self.began = _MULTI.Array("d", ranks, lock=False)
        self.ended = _MULTI.Array("d", ranks, lock=False)
        self.repeats = _MULTI.Value("i", 0, lock=False)

    def wait(self) -> None:
        """Waits until the parent and all ranks are here."""
        self.all.wait(self.timeout_s)

    def time_of(self, rank: int, call: Callable[[], Any]) -> float:
        """Seconds of one call, the same on every rank."""
        self.only_ranks.wait(self.timeout_s)
        self.began[rank] = time.monotonic()
        call()
        self.ended[rank] = time.monotonic()
        self.only_ranks.wait(self.timeout_s)
        seconds = max(self.ended) - max(self.began)
        self.only_ranks.wait(self.timeout_s)
        return seconds


def _rank(
    rank: int, request: JsonDict, network: Network | None, store: str, shared: Shared, out: int
) -> None:
    """One rank, from its namespace to its last case."""
    ranks = request["ranks"]
    if network is not None:
        network.join(rank)
    os.environ["GLOO_SOCKET_IFNAME"] = DEVICE if network is not None else "lo"
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=request["timeout_s"]),
    )
    lines = []
    for case in request["cases"]:
        call = call_of(case["op"], case["bytes"], rank, ranks)
        call()  # connections, windows, pages
        first = shared.time_of(rank, call)
        if rank == 0:
            shared.repeats.value = repeats_of(first, request["seconds"], request["repeats"])
        shared.wait()  # the parent counts bytes
        shared.wait()
        times = [shared.time_of(rank, call) for _ in range(shared.repeats.value)]
        shared.wait()
        shared.wait()
        lines.append(statistics.median(times))
    if rank == 0:
        os.write(out, json.dumps(lines).encode())
    dist.destroy_process_group()


def _child(
    rank: int, request: JsonDict, network: Network | None, store: str, shared: Shared, out: int
) -> None:
    """The body of a forked rank; it ends the process, whatever happens."""
    with_parent()
    code = 0
    try:
        _rank(rank, request, network, store, shared, out)
    except BaseException:  # noqa: BLE001 the parent tells the user
        traceback.print_exc()
        shared.all.abort()  # so that no rank waits for this one
        shared.only_ranks.abort()
        code = 1
    os._exit(code)


def _counted(network: Network | None, shared: Shared, cases: int) -> list[int | None]:
    """Bytes of all nodes in one call, case by case, while the ranks run them."""
    sent: list[int | None] = []
    for _ in range(cases):
        shared.wait()
        before = sum(network.sent()) if network else 0
        shared.wait()
        shared.wait()
        time.sleep(0.02 if network else 0.0)  # the last acknowledgements
        after = sum(network.sent()) if network else 0
        sent.append((after - before) // shared.repeats.value if network else None)
        shared.wait()
    return sent


def measure_cases(request: JsonDict) -> JsonDict:
    """The answer to one request."""
    shared = Shared(request["ranks"], request["timeout_s"])
    asked = request["network"]
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(Network(request["ranks"], **asked)) if asked else None
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        reader, writer = os.pipe()
        children = []
        for rank in range(request["ranks"]):
            pid = os.fork()
            if pid == 0:
                _child(rank, request, network, f"{folder}/store", shared, writer)
            children.append(pid)
        os.close(writer)
        try:
            sent = _counted(network, shared, len(request["cases"]))
            with os.fdopen(reader) as pipe:
                seconds = json.loads(pipe.read())
        except BaseException:
            for pid in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
            raise
        finally:
            codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    if any(codes):
        raise RuntimeError(f"ranks ended with {codes}")
    return {"rows": rows_of(request, seconds, sent)}


def rows_of(
    request: JsonDict, seconds: Sequence[float], sent: Sequence[int | None]
) -> list[JsonDict]:
    """A row a case."""
    return [
        {"op": case["op"], "bytes": case["bytes"], "seconds": each, "sent": count}
        for case, each, count in zip(request["cases"], seconds, sent, strict=True)
    ]


def serve() -> None:
    """Answers requests until stdin ends; what Gloo has to say goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            answer = measure_cases(json.loads(line))
        except Exception as error:  # noqa: BLE001 the answer tells the user
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    serve()
