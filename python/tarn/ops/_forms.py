"""Decides which form of an operator runs: the kernel, or the composed one if forced."""

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def composed_forms() -> Iterator[None]:
    """A context in which every operator called by this thread runs its composed form, on
    any device: to compare with the kernels, or to let other tools see torch's own
    operators. Gradients follow the form of the forward pass."""
    before = torch.ops.tarn.force_composed(True)
    try:
        yield
    finally:
        torch.ops.tarn.force_composed(before)
