"""The causal product with the interface of fast-transformers' compiled module: results
are written into tensors of the caller, and no gradient is recorded."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tarn.causal_product._product import causal_dot_product as _causal_dot_product

__all__ = ["causal_dot_backward", "causal_dot_product"]


def causal_dot_product(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, product: torch.Tensor
) -> None:
    """Writes ``sum over j <= i of (q_i . k_j) v_j`` into product [N, H, L, M].

    Args:
        queries, keys, values: [N, H, L, E], [N, H, S, E], [N, H, S, M], as in
            `tarn.causal_product.causal_dot_product`.
        product: dtype of queries, any strides; what it held is not read.

    Raises: ValueError, TypeError, before anything is written.
    """
    _want_like("product", product, queries, (*queries.shape[:3], values.shape[-1]))
    with torch.no_grad():
        product.copy_(_causal_dot_product(queries, keys, values))


def causal_dot_backward(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    grad_out: torch.Tensor,
    grad_queries: torch.Tensor,
    grad_keys: torch.Tensor,
    grad_values: torch.Tensor,
) -> None:
    """Writes the gradients of `causal_dot_product` into grad_queries, grad_keys
    and grad_values, each of the shape and dtype of its tensor; grad_out:
    [N, H, L, M], the gradient of the product. Raises as causal_dot_product."""
    _want_like("grad_out", grad_out, queries, (*queries.shape[:3], values.shape[-1]))
    inputs = (queries, keys, values)
    results = {
        "grad_queries": grad_queries,
        "grad_keys": grad_keys,
        "grad_values": grad_values,
    }
    for (name, result), tensor in zip(results.items(), inputs):
        _want_like(name, result, tensor, tensor.shape)
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    with torch.enable_grad():
        out = _causal_dot_product(*leaves)
    gradients = torch.autograd.grad(out, leaves, grad_out.detach())
    with torch.no_grad():
        for result, gradient in zip(results.values(), gradients):
            result.copy_(gradient)


def _want_like(name: str, given: torch.Tensor, like: torch.Tensor, shape: Sequence[int]) -> None:
    if not isinstance(given, torch.Tensor):
        raise TypeError(f"{name}: want a tensor, got {type(given).__name__}")
    if given.dtype != like.dtype:
        raise TypeError(f"{name}: want {like.dtype}, got {given.dtype}")
    if tuple(given.shape) != tuple(shape):
        raise ValueError(f"{name}: want {list(shape)}, got {list(given.shape)}")
