"""What dropout draws: seeds, and the scales that operators make of them."""

from typing import overload

import torch
from torch import Tensor

__all__ = ["draw_seed", "draw_seeds", "dropout_scales"]


@overload
def draw_seed() -> Tensor: ...


@overload
def draw_seed(dropout: float) -> Tensor | None: ...


def draw_seed(dropout: float = 1.0) -> Tensor | None:
    """A seed of dropout from torch's default generator: an int64 scalar tensor.
    None where `dropout` is 0, so that nothing is drawn.

    Examples:
        >>> ops.draw_seed().dtype
        torch.int64
        >>> ops.draw_seed(dropout=0.0) is None
        True
    """
    if dropout == 0:
        return None
    if torch.compiler.is_compiling():  # which does not follow random_
        return torch.randint(2**63 - 1, (), device="cpu")
    return torch.empty((), dtype=torch.int64, device="cpu").random_()


def draw_seeds(count: int) -> Tensor:
    """`count` seeds at once, int64 [count], for `layer_rest`.

    Examples:
        >>> ops.draw_seeds(3).shape
        torch.Size([3])
    """
    if torch.compiler.is_compiling():  # which does not follow random_
        return torch.randint(2**63 - 1, (count,), device="cpu")
    return torch.empty(count, dtype=torch.int64, device="cpu").random_()


def dropout_scales(seed: Tensor, rows: int, width: int, probability: float) -> Tensor:
    """[rows, width] float32: 0 with `probability` (counted in 65,536ths), else
    1 / (1 - probability); what the operators of a layer multiply by under
    `seed`, a function of seed and width alone.

    Examples:
        >>> ops.dropout_scales(ops.draw_seed(), rows=5, width=16, probability=0.1).shape
        torch.Size([5, 16])
    """
    return torch.ops.tarn.dropout_scales.default(seed, rows, width, float(probability))
