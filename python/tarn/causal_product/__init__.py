"""The causal product of linear attention without its denominator, under the
names that performer packages import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tarn.causal_product._product import causal_dot_product
from tarn.causal_product.causal_product_cpu import causal_dot_backward as causal_dot_backward_cpu
from tarn.causal_product.causal_product_cpu import causal_dot_product as causal_dot_product_cpu

__all__ = [
    "CausalDotProduct",
    "causal_dot_backward_cpu",
    "causal_dot_backward_cuda",
    "causal_dot_product",
    "causal_dot_product_cpu",
    "causal_dot_product_cuda",
]

# These names are None in a fast-transformers that was built without CUDA, too.
causal_dot_product_cuda: None = None
causal_dot_backward_cuda: None = None


class CausalDotProduct(torch.autograd.Function):
    """`causal_dot_product` as an autograd function. `apply` is the operator
    itself, with its own gradient; forward and backward are for code that calls
    them by name. dot and dot_backward: the functions that write into tensors, by
    type of device."""

    dot: dict[str, Callable[..., None] | None] = {
        "cpu": causal_dot_product_cpu,
        "cuda": causal_dot_product_cuda,
    }
    dot_backward: dict[str, Callable[..., None] | None] = {
        "cpu": causal_dot_backward_cpu,
        "cuda": causal_dot_backward_cuda,
    }

    # The operator saves what its gradient needs; a Function around it would have
    # to compute the product again.
    apply: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor] = staticmethod(
        causal_dot_product
    )  # type: ignore[assignment]

    @staticmethod
    def forward(ctx: Any, Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
        """Computes what `causal_dot_product` computes; ctx keeps the three arguments."""
        ctx.save_for_backward(Q, K, V)
        with torch.no_grad():
            return causal_dot_product(Q, K, V)

    @staticmethod
    def backward(ctx: Any, grad_out: torch.Tensor) -> tuple[torch.Tensor, ...]:  # type: ignore[override]
        """Gradients of Q, K and V."""
        inputs = [tensor.detach().requires_grad_() for tensor in ctx.saved_tensors]
        with torch.enable_grad():
            out = causal_dot_product(*inputs)
        return torch.autograd.grad(out, inputs, grad_out)
