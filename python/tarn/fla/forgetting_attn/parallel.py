"""parallel_forgetting_attn."""

from torch import Tensor

from tarn.fla.attn import attention_of
from tarn.ops import _checks as checks

__all__ = ["parallel_forgetting_attn"]


def parallel_forgetting_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    scale: float | None = None,
    window_size: int | None = None,
    cu_seqlens: Tensor | None = None,
) -> Tensor:
    """:func:`tarn.fla.parallel_attn` with its gates g: [B, T, HQ]."""
    op = "parallel_forgetting_attn"
    checks.want_tensor(op, "g", g)
    return attention_of(op, q, k, v, g, scale, window_size, cu_seqlens, None)
