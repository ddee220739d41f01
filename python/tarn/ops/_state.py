"""The recurrent state of linear attention as a value."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class LinearState(NamedTuple):
    """All that linear attention remembers of a sequence; its size is fixed.

    S: [B, HV, C, V], sum of phi(k) v^T; C is the width of the feature map.
    z: [B, HV, C], sum of phi(k).
    extra: more state where the map or its denominator needs it, else None.
        denominator "signed": [B, H], sum of |phi(k)|. Stabilised favor:
        [B, H, C], the largest exponent of each feature so far, which S and z are
        relative to.
    Zeros in all parts are the empty state.
    Packed calls hold one row a sequence instead of B. float32 (float64 in
    float64 calls). No operator changes a state it is given.

    Examples:
        >>> S, z = torch.zeros(2, 4, 8, 8), torch.zeros(2, 4, 8)
        >>> q, k, v = torch.randn(3, 2, 4, 8)
        >>> out, state = ops.linear_attention_step(q, k, v, ops.LinearState(S, z))
        >>> out.shape, state.z.shape
        (torch.Size([2, 4, 8]), torch.Size([2, 4, 8]))
    """

    S: Tensor
    z: Tensor
    extra: Tensor | None = None


# What operators take for a state; None, the empty one, is apart.
StateLike = LinearState | tuple[Tensor, Tensor] | list[Tensor]
