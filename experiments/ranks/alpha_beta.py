"""What an exchange costs: messages times alpha plus bytes times beta, by the algorithms
that torch's Gloo runs, and the constants fitted to measured times.

Sizes n are bytes of the whole tensor, P is the number of ranks. As Gloo has it
(allreduce.cc, allgather.cc, broadcast.cc; torch's ProcessGroupGloo.cpp makes a
reduce-scatter of an all-reduce whose other parts it drops):

    all-reduce      a ring twice around, 2 (P - 1) / P n bytes from each rank
    all-gather      a ring once around, (P - 1) / P n bytes
    reduce-scatter  as all-reduce
    broadcast       a binomial tree, ceil(log2 P) rounds of n bytes
    ring            P - 1 rounds of n bytes: what ring attention passes on

A ring cuts a rank's part into at least two segments, of an all-reduce of at most 1 MiB, and keeps
two of them on their way. k segments of g bytes thus take

    max(k g beta + alpha, k / 2 (alpha + g beta)):

either the link is busy all the time, or it waits for the delay of each pair.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.core.types import JsonDict

SEGMENT = 1 << 20  # bytes: kMaxSegmentSize of Gloo's allreduce.h


@dataclass(frozen=True)
class Constants:
    """The fitted constants of one kind of network: seconds of a call, of a message beyond the
    network's delay, and of a byte in the processors of two nodes."""

    call_s: float
    message_s: float
    byte_s: float

    def link(self, latency_s: float = 0.0, rate_bit_s: float = 0.0, shared: float = 1.0) -> Link:
        """The link's costs on a network of this one-way delay and rate (0: no limit). `shared`:
        how many processes share a core. Processors copy while the link sends: the slower of
        both counts."""
        wire = 8 / rate_bit_s if rate_bit_s > 0 else 0.0
        return Link(
            shared * self.call_s,
            latency_s + shared * self.message_s,
            max(wire, shared * self.byte_s),
        )


@dataclass(frozen=True)
class Link:
    """Seconds of a call, of a message and of a byte."""

    call_s: float
    alpha_s: float
    beta_s: float


def _two_in_flight(count: float, size: float, link: Link) -> float:
    """Seconds of `count` segments of `size` bytes around a ring."""
    busy = count * size * link.beta_s + link.alpha_s
    return max(busy, count / 2 * (link.alpha_s + size * link.beta_s))


def seconds(op: str, size: float, ranks: int, link: Link) -> float:
    """Seconds of one call; 0 for one rank. ValueError for an op without a formula."""
    if ranks == 1:
        return 0.0
    steps = ranks - 1
    if op in ("all_reduce", "reduce_scatter"):
        parts = max(2, math.ceil(size / SEGMENT / ranks))  # segments of a rank
        return link.call_s + 2 * _two_in_flight(steps * parts, size / ranks / parts, link)
    if op == "all_gather":
        return link.call_s + _two_in_flight(2 * steps, size / ranks / 2, link)
    if op == "broadcast":
        return link.call_s + math.ceil(math.log2(ranks)) * (link.alpha_s + size * link.beta_s)
    if op == "ring":
        return link.call_s + steps * (link.alpha_s + size * link.beta_s)
    raise ValueError(
        f"op: want all_reduce, all_gather, reduce_scatter, broadcast or ring, got {op!r}"
    )


def sent(op: str, size: float, ranks: int) -> float:
    """Bytes that all ranks together send in one call, without headers."""
    each = {
        "all_reduce": 2.0,
        "reduce_scatter": 2.0,
        "all_gather": 1.0,
        "broadcast": 1.0,
        "ring": float(ranks),
    }[op]
    return each * (ranks - 1) * size


def shared_by(ranks: int, cores: int, forwarded: bool) -> float:
    """Processes a core: the ranks and, on a simulated network, what moves its packets."""
    return max(1.0, (ranks + (1 if forwarded else 0)) / cores)


def predicted_seconds(row: JsonDict, constants: Constants, cores: int) -> float:
    """Seconds of a measured row: {"op", "bytes", "ranks", "latency_s", "rate_bit_s",
    "simulated"}."""
    link = constants.link(
        row["latency_s"], row["rate_bit_s"], shared_by(row["ranks"], cores, row["simulated"])
    )
    return seconds(row["op"], row["bytes"], row["ranks"], link)


def fit(rows: Sequence[JsonDict], cores: int) -> Constants:
    """The constants for which the squared logarithms of predicted over measured seconds are
    least, by Levenberg and Marquardt's steps on their logarithms, from several beginnings.
    ValueError for fewer than four rows or a time that is none."""
    if len(rows) < 4:
        raise ValueError(f"fit: rows: want 4 or more, got {len(rows)}")
    if not all(row["seconds"] > 0 and math.isfinite(row["seconds"]) for row in rows):
        raise ValueError("fit: rows: want positive seconds, got others")
    measured = np.log([row["seconds"] for row in rows])

    def residuals(logs: np.ndarray) -> np.ndarray:
        constants = Constants(*np.exp(logs))
        return np.log([predicted_seconds(row, constants, cores) for row in rows]) - measured

    found = [
        _least(residuals, np.log(begin))
        for begin in ((1e-4, 1e-4, 1e-9), (1e-5, 1e-5, 1e-10), (1e-3, 1e-5, 1e-9))
    ]
    return Constants(*(float(one) for one in np.exp(min(found, key=lambda one: one[0])[1])))


def _least(
    residuals: Callable[[np.ndarray], np.ndarray], begin: np.ndarray
) -> tuple[float, np.ndarray]:
    """Sum of squares and where it is least, near `begin`, within e^-25 and e^5: a constant on
    which no row depends stays where it is."""
    at, damping = begin, 1e-2
    now = residuals(at)
    for _ in range(200):
        slope = np.stack([(residuals(at + 1e-4 * one) - now) / 1e-4 for one in np.eye(len(at))], 1)
        normal = slope.T @ slope
        step = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-6), -slope.T @ now)
        there = np.clip(at + np.clip(step, -2, 2), -25, 5)
        new = residuals(there)
        if float(new @ new) < float(now @ now):
            small = float(np.abs(there - at).max()) < 1e-7
            at, now, damping = there, new, max(1e-9, damping / 4)
            if small:
                break
        else:
            damping *= 4
            if damping > 1e9:
                break
    return float(now @ now), at


def errors(rows: Sequence[JsonDict], constants: Constants, cores: int) -> JsonDict:
    """{"count", "median", "worst"}: |predicted / measured - 1|; None for no rows."""
    if not rows:
        return {"count": 0, "median": None, "worst": None}
    each = [abs(predicted_seconds(row, constants, cores) / row["seconds"] - 1) for row in rows]
    return {"count": len(each), "median": statistics.median(each), "worst": max(each)}
