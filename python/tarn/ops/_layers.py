"""A transformer layer around its mixer, in one pass where torch takes several."""

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["layer_heads", "layer_rest"]


def layer_heads(
    x: Tensor,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor] = (),
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    *,
    eps: float = 1e-5,
    kind: str = "layer",
) -> Tensor:
    """What a layer does before its mixer: ``n = norm(x)`` and the affine maps that
    read it, ``n @ W.T + b`` each, side by side.

    Args:
        x: [..., D]. weights: one to four [E, D], E >= 1. biases: as many [E], or
            none.
        gamma, beta, eps, kind: the norm, as in `residual_norm`; no gamma: n = x.

    Returns: [..., sum of E].
    Raises: ValueError, TypeError. Thread-safe.

    float32 on the CPU takes rows through norm and products while they are in
    cache; the weights are not put side by side. Other dtypes and devices, and
    autocast, compose torch's operators. Differentiable to any order.

    Examples:
        >>> x, weights = torch.randn(2, 5, 16), torch.randn(3, 8, 16)
        >>> norm = {"gamma": torch.ones(16), "beta": torch.zeros(16)}
        >>> ops.layer_heads(x, weights.unbind(), **norm).shape
        torch.Size([2, 5, 24])
    """
    return torch.ops.tarn.layer_heads.default(
        x, list(weights), list(biases), gamma, beta, float(eps), kind
    )


def layer_rest(
    x: Tensor,
    mixed: Tensor,
    out_weight: Tensor,
    out_bias: Tensor | None,
    gamma: Tensor,
    beta: Tensor | None,
    weight1: Tensor,
    bias1: Tensor,
    weight2: Tensor,
    bias2: Tensor | None,
    end_gamma: Tensor | None = None,
    end_beta: Tensor | None = None,
    *,
    eps: float = 1e-5,
    activation: str = "relu",
    kind: str = "layer",
    dropout: Sequence[float] = (),
    seeds: Tensor | None = None,
) -> Tensor:
    """What a transformer layer does after its mixer::

        s = x + d1 * (mixed @ out_weight.T + out_bias);  n = norm(s)
        y = base + d3 * (d2 * act(n @ weight1.T + bias1) @ weight2.T + bias2)

    Pre-norm (Xiong et al. 2020): base = s. With end_gamma post-norm (Vaswani et
    al. 2017): base = n, and the result is norm(y).

    Args:
        x: [..., D]; mixed: [..., V], the mixer's result before its last map.
        out_weight: [D, V]; weight1: [F, D]; weight2: [D, F]; biases of their
            outputs, out_bias and bias2 may be None.
        gamma, beta, end_gamma, end_beta: [D]; beta of layer norms only.
        eps, kind: of both norms. activation: "relu" or "gelu" (the exact form).
        dropout: probabilities of d1, d2, d3, or none. seeds: `draw_seeds(3)`,
            wanted with them.

    Returns: [..., D].
    Raises: ValueError, TypeError. Thread-safe.

    float32 on the CPU takes rows through the whole chain while they are in
    cache, forward and back; it keeps s, n and n @ weight1.T for the gradient.
    Other dtypes and devices, and autocast, take the operators one by one.
    Differentiable to any order.

    Examples:
        >>> x, mixed = torch.randn(2, 2, 5, 16)
        >>> out_weight, one, zero = torch.randn(16, 16), torch.ones(16), torch.zeros(16)
        >>> weight1, bias1, weight2 = torch.randn(64, 16), torch.zeros(64), torch.randn(16, 64)
        >>> maps = (weight1, bias1, weight2, zero)
        >>> ops.layer_rest(x, mixed, out_weight, zero, one, zero, *maps).shape
        torch.Size([2, 5, 16])
    """
    return torch.ops.tarn.layer_rest.default(
        x,
        mixed,
        out_weight,
        out_bias,
        gamma,
        beta,
        weight1,
        bias1,
        weight2,
        bias2,
        end_gamma,
        end_beta,
        float(eps),
        activation,
        kind,
        [float(p) for p in dropout],
        seeds,
    )
