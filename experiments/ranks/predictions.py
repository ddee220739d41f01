"""What clusters that are not here would take: data parallel, sharded optimiser and
sequence parallel training, and where the network takes over.

Every node has one rank and its own network card. Compute is `token_parameter_s`, the
measured seconds of a token and a parameter in a training step of one node, divided by `speed`
for a faster one. Communication is not thought to overlap with it: a step takes between the
larger of the two and their sum. The network has taken over where communication takes more than
compute.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from experiments.core.types import JsonDict
from experiments.ranks.alpha_beta import Link, seconds, sent

BUCKET = 1 << 20  # bytes: kBucketBytes of src/train/distributed/group.cc
FLOAT = 4
KINDS = ("data", "sharded", "sequence", "ring")
NODES = tuple(1 << power for power in range(3, 11))  # 8 to 1,024


@dataclass(frozen=True)
class Shape:
    """A decoder with linear attention, d_ff = 4 d_model, over bytes."""

    name: str
    d_model: int
    n_layers: int
    n_heads: int
    vocab: int = 256

    def tensors(self) -> list[int]:
        """Numbers of each parameter, in order: the embedding, then of each layer four
        projections and two matrices, with their biases and norms, then the head."""
        d = self.d_model
        layer = [*([d * d, d] * 4), d, d, 4 * d * d, 4 * d, 4 * d * d, d, d, d]
        return [self.vocab * d, *(layer * self.n_layers), self.vocab * d]

    @functools.cached_property
    def parameters(self) -> int:
        return sum(self.tensors())

    @property
    def d_head(self) -> int:
        return self.d_model // self.n_heads

    def state_bytes(self) -> int:
        """Bytes of a layer's state for one row: S [H, C, V] and z [H, C] of a feature map as wide
        as its keys."""
        return FLOAT * self.n_heads * (self.d_head * self.d_head + self.d_head)

    def key_value_bytes(self, tokens: float) -> float:
        """Bytes of the keys and values that ring attention passes on for a layer and row."""
        return FLOAT * 2.0 * self.d_model * tokens


SHAPES = (
    Shape("10 M", 256, 12, 4),
    Shape("100 M", 768, 14, 12),
    Shape("1 B", 2048, 20, 16),
    Shape("7 B", 4096, 35, 32),
)


def buckets(tensors: Sequence[int], most: int = BUCKET) -> list[int]:
    """Bytes of each all-reduce of a data parallel step: parameters from the last to the first, as
    many at a time as fit; one that does not goes alone."""
    found: list[int] = []
    for numbers in reversed(tensors):
        size = FLOAT * numbers
        if not found or found[-1] + size > most:
            found.append(size)
        else:
            found[-1] += size
    return found


@functools.lru_cache(maxsize=64)
def _buckets_of(shape: Shape) -> tuple[tuple[int, int], ...]:
    """(bytes, how many) of the buckets."""
    return tuple(collections.Counter(buckets(shape.tensors())).items())


def gradients_s(shape: Shape, ranks: int, link: Link) -> float:
    """Seconds of a data parallel exchange: one all-reduce a bucket, one after the other."""
    return sum(
        count * seconds("all_reduce", size, ranks, link) for size, count in _buckets_of(shape)
    )


def sharded_s(shape: Shape, ranks: int, link: Link) -> float:
    """Seconds of the sharded optimiser's exchange: a reduce-scatter of the gradients, an
    all-gather of the parameters, and two all-reduces of one number a parameter tensor."""
    size = FLOAT * shape.parameters
    small = 8 * len(shape.tensors())
    return (
        seconds("reduce_scatter", size, ranks, link)
        + seconds("all_gather", size, ranks, link)
        + 2 * seconds("all_reduce", small, ranks, link)
    )


def states_s(shape: Shape, ranks: int, link: Link, rows: int = 1) -> float:
    """Seconds of the sequence parallel exchange, forward and backward: each layer gathers the
    states of all ranks and sums their gradients."""
    size = float(rows * ranks * shape.state_bytes())
    return shape.n_layers * (
        seconds("all_gather", size, ranks, link) + seconds("reduce_scatter", size, ranks, link)
    )


def keys_values_s(shape: Shape, ranks: int, tokens: float, link: Link) -> float:
    """Seconds of ring attention's exchange, forward and backward, over a sequence of `tokens`:
    keys and values go around once forward; backward they go around again with their gradients."""
    size = shape.key_value_bytes(tokens / ranks)
    return shape.n_layers * (
        seconds("ring", size, ranks, link) + seconds("ring", 2 * size, ranks, link)
    )


def exchange_s(shape: Shape, ranks: int, kind: str, link: Link, tokens: float = 0.0) -> float:
    """Seconds of an update's exchanges. `tokens` are those of the row, for "ring" alone. ValueError
    for another kind."""
    if kind == "sharded":
        return sharded_s(shape, ranks, link)
    more = {
        "data": 0.0,
        "sequence": states_s(shape, ranks, link),
        "ring": keys_values_s(shape, ranks, tokens, link),
    }
    if kind not in more:
        raise ValueError(f"kind: want one of {', '.join(KINDS)}, got {kind!r}")
    return gradients_s(shape, ranks, link) + more[kind]


def sent_bytes(shape: Shape, ranks: int, kind: str, parameters: int) -> float:
    """Bytes of all ranks in an update of a model of so many parameters, without headers: the
    sums of gradients, the parameters that the sharded optimiser gathers, the states of
    a row. ValueError for another kind."""
    if kind not in ("data", "sharded", "sequence"):
        raise ValueError(f"kind: want data, sharded or sequence, got {kind!r}")
    size = FLOAT * float(parameters)
    gradients = sent("all_reduce", size, ranks)
    if kind == "sharded":
        return gradients + sent("all_gather", size, ranks)
    if kind == "data":
        return gradients
    states = float(ranks * shape.state_bytes())
    return gradients + shape.n_layers * (
        sent("all_gather", states, ranks) + sent("reduce_scatter", states, ranks)
    )


def passing(shape: Shape, ranks: int, tokens: float, link: Link) -> JsonDict:
    """Bytes that a rank sends and seconds of the exchange, for states and for keys and values, in
    the forward pass of one layer and row."""
    states, pairs = ranks * shape.state_bytes(), shape.key_value_bytes(tokens / ranks)
    return {
        "state_sent": sent("all_gather", states, ranks) / ranks,
        "state_s": seconds("all_gather", states, ranks, link),
        "key_value_sent": sent("ring", pairs, ranks) / ranks,
        "key_value_s": seconds("ring", pairs, ranks, link),
    }


def takes_over(
    compute_s: float, communication: Callable[[int], float], most: int = NODES[-1]
) -> int | None:
    """The fewest nodes, from 2 to `most`, at which communication takes longer than the share of
    a node in compute_s (seconds of one node); None where there are none. One by one: how a
    tensor is cut into segments makes steps in the cost."""
    return next(
        (count for count in range(2, most + 1) if communication(count) > compute_s / count), None
    )


def predict(
    shape: Shape,
    tokens: float,
    token_parameter_s: float,
    link: Link,
    kind: str,
    speed: float = 1.0,
    nodes: Sequence[int] = NODES,
) -> JsonDict:
    """Rows by number of nodes and the point where the network takes over. `tokens` are those of
    an update over all nodes, of "sequence" and "ring" of its one row. ValueError for another
    kind."""
    whole = tokens * shape.parameters * token_parameter_s / speed

    def exchange(count: int) -> float:
        return exchange_s(shape, count, kind, link, tokens)

    rows = [
        {"nodes": count, "compute_s": whole / count, "exchange_s": exchange(count)}
        for count in nodes
    ]
    return {
        "model": shape.name,
        "kind": kind,
        "tokens": int(tokens),
        "speed": speed,
        "rows": rows,
        "takes_over": takes_over(whole, exchange, max(nodes)),
    }
