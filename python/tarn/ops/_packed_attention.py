"""Linear attention on queries, keys and values side by side."""

import torch
from torch import Tensor

from tarn.ops import _checks as checks

__all__ = ["linear_attention_packed"]


def linear_attention_packed(
    packed: Tensor,
    heads: int,
    d_key: int,
    *,
    value_heads: int | None = None,
    causal: bool = True,
    feature_map: str = "elu1",
    key_mask: Tensor | None = None,
    key_lengths: Tensor | None = None,
    denominator: str = "exact",
    eps: float = 1e-6,
    scale: float = 1.0,
    chunk_size: int | None = None,
) -> Tensor:
    """`linear_attention` on queries, keys and values side by side, as one
    product writes them: nothing is copied, and the gradient is one tensor too.

    Args:
        packed: [B, T, 2 H K + HV V]: H heads of queries, as many of keys, HV of
            values. The rest as in `linear_attention`.
        heads, d_key: H, K. value_heads: HV, a multiple of H; None: H.

    Returns: [B, T, HV V], dtype of packed.
    Raises: ValueError, TypeError. Thread-safe. Differentiable to any order, as
    `linear_attention`.

    Examples:
        >>> packed = torch.randn(2, 5, 3 * 4 * 8)
        >>> ops.linear_attention_packed(packed, heads=4, d_key=8).shape
        torch.Size([2, 5, 32])
    """
    checks.want_map("linear_attention_packed", feature_map, "mapped_linear_attention")
    return torch.ops.tarn.linear_attention_packed.default(
        packed,
        heads,
        heads if value_heads is None else value_heads,
        d_key,
        key_mask,
        key_lengths,
        bool(causal),
        feature_map,
        denominator,
        float(eps),
        float(scale),
        0 if chunk_size is None else chunk_size,
    )[0]
