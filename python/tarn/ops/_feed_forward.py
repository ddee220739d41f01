"""Affine maps and feed-forward networks, in one pass where torch takes several."""

import torch
from torch import Tensor

__all__ = ["affine", "feed_forward", "swiglu_feed_forward"]


def affine(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x @ weight.T + bias``.

    Args: x [..., D]; weight [E, D]; bias [E] or None, dtype of x.
    Returns: [..., E].
    Raises: ValueError (shapes, devices), TypeError (dtypes). Thread-safe.

    float32 on the CPU runs one product and one pass for the bias; other dtypes
    and devices are torch's linear. Differentiable to any order.

    Examples:
        >>> x, weight, bias = torch.randn(2, 5, 16), torch.randn(32, 16), torch.zeros(32)
        >>> ops.affine(x, weight, bias).shape
        torch.Size([2, 5, 32])
    """
    return torch.ops.tarn.affine.default(x, weight, bias)


def feed_forward(
    x: Tensor,
    weight1: Tensor,
    bias1: Tensor,
    weight2: Tensor,
    *,
    activation: str = "relu",
    dropout: float = 0.0,
    seed: Tensor | None = None,
) -> Tensor:
    """``drop(act(x @ weight1.T + bias1)) @ weight2.T``: the feed-forward network
    without its last bias, which `residual_norm` adds.

    Args:
        x: [..., D]; weight1: [F, D]; bias1: [F]; weight2: [E, F].
        activation: "relu" or "gelu" (the exact form).
        dropout: probability in [0, 1). seed: of `draw_seed`, wanted above 0.

    Returns: [..., E].
    Raises: ValueError, TypeError. Thread-safe.

    float32 on the CPU: bias, activation and dropout are one pass, as is their
    gradient; no mask is kept. Other dtypes and devices compose torch's operators.
    Differentiable to any order.

    Examples:
        >>> x, bias = torch.randn(2, 5, 16), torch.zeros(64)
        >>> weight1, weight2 = torch.randn(64, 16), torch.randn(16, 64)
        >>> ops.feed_forward(x, weight1, bias, weight2, activation="gelu").shape
        torch.Size([2, 5, 16])
    """
    return torch.ops.tarn.feed_forward.default(
        x, weight1, bias1, weight2, activation, float(dropout), seed
    )[0]


def swiglu_feed_forward(
    x: Tensor,
    weight1: Tensor,
    weight2: Tensor,
    weight3: Tensor,
    *,
    dropout: float = 0.0,
    seed: Tensor | None = None,
) -> Tensor:
    """``drop(silu(x @ weight1.T) * (x @ weight3.T)) @ weight2.T``, the gated
    feed-forward network without biases (Shazeer 2020, eq. (6)).

    Args:
        x: [..., D]; weight1 (the gate), weight3 (what it multiplies): [F, D];
            weight2: [E, F].
        dropout, seed: as in `feed_forward`.

    Returns: [..., E].
    Raises: ValueError, TypeError. Thread-safe.

    float32 on the CPU: gate, product and dropout are one pass, as is their
    gradient, which keeps the first two products and no mask. Other dtypes and
    devices compose torch's operators. Differentiable to any order.

    Examples:
        >>> x, weight2 = torch.randn(2, 5, 16), torch.randn(16, 64)
        >>> weight1, weight3 = torch.randn(2, 64, 16)
        >>> ops.swiglu_feed_forward(x, weight1, weight2, weight3).shape
        torch.Size([2, 5, 16])
    """
    return torch.ops.tarn.swiglu_feed_forward.default(
        x, weight1, weight2, weight3, float(dropout), seed
    )[0]
