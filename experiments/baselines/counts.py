"""Tables of counts of order 0 to 5 over symbols, each order interpolated with the next
lower one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

ORDERS = range(6)


@dataclass(frozen=True)
class _Order:
    """Counts after each context of one length. Contexts and pairs are numbers in base
    `symbols`, sorted."""

    pairs: np.ndarray  # context * symbols + next symbol
    pair_counts: np.ndarray
    contexts: np.ndarray
    context_counts: np.ndarray  # symbols seen after the context
    kinds: np.ndarray  # different ones


class CountTable:
    """Witten and Bell's interpolation, which has no parameter to choose:

        p_k(c | h) = (n(hc) + t(h) p_{k-1}(c | h')) / (n(h) + t(h)),   p_{-1} = 1 / symbols

    n counts what was learned, t(h) the different symbols after h, and h' is h without its
    first symbol. A context that was never seen leaves the lower order as it is."""

    def __init__(self, learned: np.ndarray, symbols: int, order: int) -> None:
        """learned: symbols 0 .. symbols - 1 [N], one sequence, at least order + 1 of them."""
        if learned.size <= order or symbols < 1 or order < 0:
            raise ValueError(
                f"CountTable: learned: want more than {order} symbols, got {learned.size}"
            )
        if symbols ** (order + 1) >= 1 << 63:
            raise ValueError(f"CountTable: order: want symbols^(order + 1) below 2^63, got {order}")
        self.symbols, self.order = symbols, order
        learned = learned.astype(np.int64)
        self._orders = [self._counted(learned, k) for k in range(order + 1)]

    def _counted(self, learned: np.ndarray, order: int) -> _Order:
        pairs, counts = np.unique(_numbers(learned, order, self.symbols), return_counts=True)
        contexts, first = np.unique(pairs // self.symbols, return_index=True)
        return _Order(
            pairs,
            counts,
            contexts,
            np.add.reduceat(counts, first),
            np.diff(np.append(first, pairs.size)),
        )

    def probabilities(self, rows: np.ndarray) -> np.ndarray:
        """Of each symbol after the first of each row, given those before it in the row: the
        start of a row has shorter contexts. rows: [R, T]; returns [R, T - 1]."""
        rows = rows.astype(np.int64)
        chances = np.full((rows.shape[0], rows.shape[1] - 1), 1 / self.symbols)
        for k, order in enumerate(self._orders):
            if rows.shape[1] <= max(k, 1):
                break
            # Targets from position max(k, 1) on have k symbols before them.
            pairs = np.stack([_numbers(row, k, self.symbols) for row in rows])[:, k == 0 :]
            seen, kinds = _found(
                pairs // self.symbols, order.contexts, order.context_counts, order.kinds
            )
            (both,) = _found(pairs, order.pairs, order.pair_counts)
            part = chances[:, max(k, 1) - 1 :]
            known = seen > 0
            part[known] = ((both + kinds * part)[known]) / (seen + kinds)[known]
        return chances

    def bits(self, rows: np.ndarray) -> float:
        """Mean bits a symbol of probabilities()."""
        return float(-np.log2(self.probabilities(rows)).mean())


def _numbers(symbols: np.ndarray, order: int, base: int) -> np.ndarray:
    """The number, in base `base`, of each run of order + 1 symbols [N - order]."""
    count = symbols.size - order
    total = np.zeros(count, np.int64)
    for i in range(order + 1):
        total = total * base + symbols[i : i + count]
    return total


def _found(keys: np.ndarray, known: np.ndarray, *values: np.ndarray) -> list[np.ndarray]:
    """values at the places of `keys` among the sorted `known`; 0 where a key is not there."""
    at = np.minimum(np.searchsorted(known, keys), known.size - 1)
    return [np.where(known[at] == keys, one[at], 0) for one in values]


def choose_order(learned: np.ndarray, symbols: int) -> int:
    """The order with the fewest bits on the last tenth of what is learned, fitted on the rest."""
    cut = learned.size - learned.size // 10
    scores = [CountTable(learned[:cut], symbols, k).bits(learned[None, cut:]) for k in ORDERS]
    return int(np.argmin(scores))


def copy_chance(seq_len: int, symbols: int = 10) -> tuple[float, float]:
    """Nats and accuracy, in expectation, of the order 0 on the labelled tokens of the copy
    task: n symbols drawn alike and one separator, n uniform as its generator draws it."""
    lengths = range(seq_len // 4, (seq_len - 1) // 2)
    labels = sum(n + 1 for n in lengths)
    separator = len(lengths) / labels
    each = (1 - separator) / symbols
    nats = -(separator * math.log(separator) + (1 - separator) * math.log(each))
    return nats, max(separator, each)
