"""Mixtures of experts: the router, the experts that it chose, and the loss that keeps
tokens spread over all experts."""

from typing import Literal

import torch
from torch import Tensor

__all__ = ["expert_feed_forward", "load_balancing_loss", "route_tokens"]


def route_tokens(
    logits: Tensor,
    top_k: int,
    *,
    scores: Literal["softmax", "sigmoid"] = "softmax",
    normalize: bool = True,
    scale: float = 1.0,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The experts of each token and their weights (Fedus et al. 2021, arXiv 2101.03961).

    The ``top_k`` experts of largest logit are chosen, in falling order; where logits are
    equal, the expert of the smaller index comes first. An expert's weight is ``scale``
    times its score, the softmax or the sigmoid of its logit, divided by the sum of the
    chosen experts' scores where ``normalize`` is set.

    Args:
        logits: [..., experts], of a linear map of the tokens.
        top_k: 1 to experts.
        bias: [experts], of sigmoid scores: it joins an expert's score where experts are
            chosen, in falling order of the sums, and has no part in the weights (Wang et al.
            2024, arXiv 2408.15664). None: none.

    Returns: (weights, dtype of logits, chosen, int64), both [..., top_k].
    Raises: ValueError, TypeError. Thread-safe.

    The gradient reaches the logits through the weights alone. float32 on the CPU runs
    one pass; other dtypes and devices compose torch's operators. Differentiable to any
    order.

    Examples:
        >>> weights, chosen = ops.route_tokens(torch.tensor([[0.0, 2.0, 2.0, 1.0]]), 3)
        >>> chosen.tolist()
        [[1, 2, 3]]
        >>> weights.sum(-1).item()
        1.0
    """
    return torch.ops.tarn.moe_router.default(logits, top_k, scores, normalize, float(scale), bias)


def expert_feed_forward(
    x: Tensor,
    chosen: Tensor,
    weights: Tensor,
    weight1: Tensor,
    weight2: Tensor,
    weight3: Tensor | None = None,
    *,
    activation: Literal["silu", "gelu", "gelu-tanh", "relu", "relu2"] = "silu",
) -> Tensor:
    """The sum over the chosen experts e, times their weights, of ``(act(x @
    weight1[e].T) * (x @ weight3[e].T)) @ weight2[e].T``; without weight3 of ``act(x @
    weight1[e].T) @ weight2[e].T``.

    Args:
        x: [..., D]; chosen (int64), weights: [..., top_k], of `route_tokens`.
        weight1, weight3: [E, F, D]; weight2: [E, D, F].
        activation: "relu2" is relu(x)^2, "gelu" the exact form, "gelu-tanh"
            the other.

    Returns: [..., D].
    Raises: ValueError (shapes, an index of `chosen` that no expert has), TypeError.
    Thread-safe.

    float32 on the CPU: tokens are sorted by expert, the matrices of an expert are read
    once a call, and those of an expert that no token chose are not read. Other dtypes
    and devices, and gradients of gradients, compute every expert for every token.
    Differentiable to any order in all but `chosen`.

    Examples:
        >>> x, weight2 = torch.randn(2, 5, 16), torch.randn(8, 16, 32)
        >>> weight1, weight3 = torch.randn(2, 8, 32, 16)
        >>> weights, chosen = ops.route_tokens(torch.randn(2, 5, 8), 2)
        >>> ops.expert_feed_forward(x, chosen, weights, weight1, weight2, weight3).shape
        torch.Size([2, 5, 16])
    """
    return torch.ops.tarn.moe_experts.default(
        x, chosen, weights, weight1, weight2, weight3, activation
    )[0]


def load_balancing_loss(
    logits: Tensor,
    chosen: Tensor,
    *,
    scores: Literal["softmax", "sigmoid"] = "softmax",
) -> Tensor:
    """``E * sum_e f_e P_e``: f_e is how often expert e was chosen, divided by the number
    of tokens, and P_e the mean of its probability (Fedus et al. 2021, arXiv 2101.03961,
    eq. (4) to (6), with several experts a token as in Mixtral, arXiv 2401.04088).

    Probabilities are the softmax of the logits, or the sigmoids divided by their sum. The
    loss is top_k where all experts are chosen equally often; without tokens it is 0. Add
    it to the training loss times a small factor, 0.01 for example. Only P has a gradient.

    Args: logits [..., E]; chosen int64 [..., top_k], of `route_tokens`.
    Returns: a scalar, float32 or float64.
    Raises: ValueError, TypeError. Thread-safe. Differentiable to any order.

    Examples:
        >>> logits = torch.tensor([[9.0, 0.0], [0.0, 9.0]])
        >>> _, chosen = ops.route_tokens(logits, 1)
        >>> ops.load_balancing_loss(logits, chosen).item()
        1.0
    """
    return torch.ops.tarn.moe_balance_loss.default(logits, chosen, scores)
