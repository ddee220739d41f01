"""Keys of the counter-based generator, and a counter of the calls they belong to."""

from __future__ import annotations

import torch

_MASK = (1 << 63) - 1


def draw_key() -> int:
    """A key from torch's default generator, from 0 to 2^63 - 1."""
    return int(torch.empty((), dtype=torch.int64, device="cpu").random_())


def mix_key(seed: int, layer: int, call: int) -> int:
    """One key made of three numbers (Steele et al. 2014, the finaliser of SplitMix64)."""
    key = seed
    for part in (layer, call):
        key = (key + 0x9E3779B97F4A7C15 * (part + 1)) & ((1 << 64) - 1)
        key = ((key ^ (key >> 30)) * 0xBF58476D1CE4E5B9) & ((1 << 64) - 1)
        key = ((key ^ (key >> 27)) * 0x94D049BB133111EB) & ((1 << 64) - 1)
        key ^= key >> 31
    return key & _MASK


def in_backward() -> bool:
    """Whether autograd is running: a forward call then is a recomputation of
    activation checkpointing, which must see what the first one saw."""
    return torch._C._current_graph_task_id() != -1


class ForwardCounter:
    """Number of the current forward call; recomputation is the same call."""

    def __init__(self) -> None:
        self._next = 0

    def advance(self) -> int:
        """Counts a call and returns its number, 0 the first time."""
        if in_backward() and self._next:
            return self._next - 1
        self._next += 1
        return self._next - 1
