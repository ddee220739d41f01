"""Decides which form of an operator runs: the kernel, or the composed one if forced."""

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def composed_forms() -> Iterator[None]:
    """A context in which every operator called by this thread runs its composed form, on
    any device: to compare with the kernels, or to let other tools see torch's own
    operators. Gradients follow the form of the forward pass.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 5, 4, 8)
        >>> with ops.composed_forms():
        ...     expected = ops.linear_attention(q, k, v)
        >>> torch.allclose(ops.linear_attention(q, k, v), expected, atol=1e-5)
        True
    """
    before = torch.ops.tarn.force_composed(True)
    try:
        yield
    finally:
        torch.ops.tarn.force_composed(before)
