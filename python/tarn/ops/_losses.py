"""Losses that are one pass."""

import torch
from torch import Tensor

__all__ = ["logistic_mixture_loss"]


def logistic_mixture_loss(params: Tensor, targets: Tensor) -> Tensor:
    """Minus the log-probability of each target byte under a mixture of K discretized
    logistics (PixelCNN++; the head of image models). With y = 2 byte / 255 - 1
    and s = exp(max(log-scale, -7)), a component gives a byte the logistic's mass
    within 1/255 of y; bytes 0 and 255 get the whole tail; below 1e-5 the density
    at y over 127.5 stands for the mass.

    Args:
        params: [..., 3 K], logits, means and log-scales.
        targets: [...], uint8 or int64 in 0..255.

    Returns: [...], nats, dtype of params; ``loss.mean() / math.log(2)`` is bits
    per dimension.
    Raises: ValueError (shapes, values, devices), TypeError (dtypes). Thread-safe.

    float32 on the CPU runs one pass, and one for the gradient; other dtypes and
    devices compose torch's operators. Differentiable to any order. A NaN stays in
    its row. O(K) for each target.

    Examples:
        >>> params, targets = torch.randn(2, 5, 30), torch.randint(256, (2, 5))
        >>> ops.logistic_mixture_loss(params, targets).shape
        torch.Size([2, 5])
    """
    return torch.ops.tarn.logistic_mixture_loss.default(params, targets)
