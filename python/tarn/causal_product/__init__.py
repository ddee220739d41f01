"""The causal product of linear attention without its denominator, under the
names that performer packages import."""

from __future__ import annotations

from typing import Any

import torch

from tarn import ops

__all__ = ["CausalDotProduct", "causal_dot_product"]


def causal_dot_product(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
    """``out_i = sum over j <= i of (Q_i . K_j) V_j``.

    Args:
        Q: [N, H, L, E], K: [N, H, S, E], V: [N, H, S, M], any strides; dtypes
            as in `tarn.ops.linear_attention`. Query i belongs to key i: keys
            from L on are not read, queries from S on read all keys.

    Returns: [N, H, L, M], dtype of Q.
    Raises: ValueError, TypeError. Thread-safe. O(N H L E M) time, no L x S
    matrix (float64: composed, O(L S)).
    """
    out: Any = ops.linear_attention(
        Q.transpose(1, 2),
        K.transpose(1, 2),
        V.transpose(1, 2),
        causal=True,
        feature_map="identity",
        denominator="none",
    )
    return out.transpose(1, 2)


class CausalDotProduct(torch.autograd.Function):
    """`causal_dot_product` as an autograd function. `apply` is the operator
    itself, with its own gradient; forward and backward are for code that calls
    them by name."""

    # The operator saves what its gradient needs; a Function around it would have
    # to compute the product again.
    apply = staticmethod(causal_dot_product)  # type: ignore[assignment]

    @staticmethod
    def forward(ctx: Any, Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
        """As `causal_dot_product`; ctx keeps the three arguments."""
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
