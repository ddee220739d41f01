"""Norms with the residual sum, bias and dropout before them."""

from typing import TypedDict, Unpack, overload

import torch
from torch import Tensor

__all__ = ["residual_norm", "rms_norm"]


# Options that the overloads share; the docstring says what they mean.
class _NormOptions(TypedDict, total=False):
    eps: float
    dropout: float
    seed: Tensor | None
    kind: str


@overload
def residual_norm(
    x: Tensor,
    residual: Tensor | None = None,
    bias: Tensor | None = None,
    gamma: None = None,
    beta: Tensor | None = None,
    **options: Unpack[_NormOptions],
) -> tuple[None, Tensor]: ...


@overload
def residual_norm(
    x: Tensor,
    residual: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    gamma: Tensor,
    beta: Tensor | None = None,
    **options: Unpack[_NormOptions],
) -> tuple[Tensor, Tensor]: ...


@overload
def residual_norm(
    x: Tensor,
    residual: Tensor | None,
    bias: Tensor | None,
    gamma: Tensor,
    beta: Tensor | None = None,
    **options: Unpack[_NormOptions],
) -> tuple[Tensor, Tensor]: ...


@overload
def residual_norm(
    x: Tensor,
    residual: Tensor | None = None,
    bias: Tensor | None = None,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    **options: Unpack[_NormOptions],
) -> tuple[Tensor | None, Tensor]: ...


def residual_norm(
    x: Tensor,
    residual: Tensor | None = None,
    bias: Tensor | None = None,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    *,
    eps: float = 1e-5,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    kind: str = "layer",
) -> tuple[Tensor | None, Tensor]:
    """``s = residual + drop(x + bias)`` and ``y = LayerNorm(s) * gamma + beta``.

    Args:
        x, residual: [..., D]. bias, gamma, beta: [D]. Every one but x may be
            None: no residual, no bias, no norm.
        eps: inside the root. dropout, seed: as in `feed_forward`.
        kind: "layer", or "rms": ``y = s / sqrt(mean(s**2) + eps) * gamma``
            (Zhang and Sennrich 2019), which has no beta.

    Returns: (y, s), y None without gamma.
    Raises: ValueError, TypeError. Thread-safe.

    float32 on the CPU runs one pass forward and one backward. Other dtypes and
    devices compose torch's operators; half types are summed in float32.
    Differentiable to any order.

    Examples:
        >>> x, residual = torch.randn(2, 2, 5, 16)
        >>> norm = {"gamma": torch.ones(16), "beta": torch.zeros(16)}
        >>> normed, summed = ops.residual_norm(x, residual, **norm)
        >>> normed.shape, summed.shape
        (torch.Size([2, 5, 16]), torch.Size([2, 5, 16]))
    """
    y, s, _, _ = torch.ops.tarn.residual_norm.default(
        x, residual, bias, gamma, beta, float(eps), float(dropout), seed, kind
    )
    if gamma is None:
        return None, s
    whole = residual is None and bias is None and dropout == 0
    return y, (x if whole else s)


def rms_norm(x: Tensor, gamma: Tensor, *, eps: float = 1e-5) -> Tensor:
    """``x / sqrt(mean(x**2) + eps) * gamma`` over the last axis (Zhang and
    Sennrich 2019, eq. (4)): `residual_norm` of kind "rms" with nothing before it.

    Args: x [..., D]; gamma [D].
    Returns: [..., D], dtype of x.
    Raises: ValueError (shapes, devices), TypeError (dtypes). Thread-safe.
        Differentiable to any order.

    Examples:
        >>> ops.rms_norm(torch.randn(2, 5, 16), torch.ones(16)).shape
        torch.Size([2, 5, 16])
    """
    return residual_norm(x, gamma=gamma, eps=eps, kind="rms")[0]
