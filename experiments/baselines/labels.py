"""Labels without a sequence model: the commonest label, the label of single frames, and
what either costs in edits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np

L = TypeVar("L", bound=Hashable)


def commonest(labels: Sequence[L]) -> L:
    """The label that occurs most often, the first of equally common ones."""
    return Counter(labels).most_common(1)[0][0]


def commonest_after(cues: Sequence[str], labels: Sequence[L]) -> dict[str, L]:
    """The commonest label after each cue."""
    found: dict[str, list[L]] = {}
    for cue, label in zip(cues, labels, strict=True):
        found.setdefault(cue, []).append(label)
    return {cue: commonest(some) for cue, some in found.items()}


def edits(a: str, b: str) -> int:
    """Insertions, deletions and substitutions that make a into b (Levenshtein)."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


def letter_error(said: Sequence[str], true: Sequence[str]) -> float:
    """Edits a letter of all the names together."""
    wrong = sum(edits(one, other) for one, other in zip(said, true, strict=True))
    return wrong / sum(len(name) for name in true)


def constant_name(true: Sequence[str], names: Sequence[str]) -> str:
    """The one name that makes the fewest letter errors where it is always said."""
    count = Counter(true)
    return min(names, key=lambda name: sum(n * edits(name, one) for one, n in count.items()))


class FrameClassifier:
    """A diagonal Gaussian of single frames a label; a sequence has the label under which
    its frames, taken as independent, are likeliest. The order of frames plays no part."""

    def __init__(self, frames: Mapping[str, np.ndarray]) -> None:
        """frames: [N, bands] of each label, two or more."""
        self.labels = list(frames)
        self._mean = np.stack([frames[one].mean(0) for one in self.labels])
        self._variance = np.stack([frames[one].var(0) for one in self.labels]) + 1e-6

    def label(self, frames: np.ndarray) -> str:
        """frames: [T, bands]."""
        apart = (frames[:, None] - self._mean) ** 2 / self._variance
        scores = -0.5 * (apart + np.log(self._variance)).sum((0, 2))
        return self.labels[int(np.argmax(scores))]
