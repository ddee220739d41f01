"""The recurrent state of linear attention as a value."""

from typing import NamedTuple, Optional

import torch


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
    """

    S: torch.Tensor
    z: torch.Tensor
    extra: Optional[torch.Tensor] = None
