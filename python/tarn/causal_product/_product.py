"""The product itself, with its gradient."""

from __future__ import annotations

import torch

from tarn import ops


def causal_dot_product(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
    """``out_i = sum over j <= i of (Q_i . K_j) V_j``.

    Args:
        Q: [N, H, L, E], K: [N, H, S, E], V: [N, H, S, M], any strides; dtypes
            as in `tarn.ops.linear_attention`. Query i belongs to key i: keys
            from L on are not read, queries from S on read all keys.

    Returns: [N, H, L, M], dtype of Q.
    Raises: ValueError, TypeError. Thread-safe. O(N H L E M) time, no L x S
    matrix (composed in float64 and on other devices).
    Differentiable to any order.
    """
    out = ops.linear_attention(
        Q.transpose(1, 2),
        K.transpose(1, 2),
        V.transpose(1, 2),
        causal=True,
        feature_map="identity",
        denominator="none",
    )
    return out.transpose(1, 2)
