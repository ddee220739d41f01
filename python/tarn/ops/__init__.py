"""Operators on torch tensors."""

from tarn import _library

_library.ensure()  # registers torch.ops.tarn

from tarn.ops._aft import (  # noqa: E402
    AftState,
    aft_full_attention,
    aft_simple_attention,
)
from tarn.ops._layers import (  # noqa: E402
    affine,
    draw_seed,
    dropout_scales,
    feed_forward,
    linear_attention_packed,
    residual_norm,
)
from tarn.ops._linear_attention import linear_attention, linear_attention_step
from tarn.ops._state import LinearState

__all__ = [
    "AftState",
    "LinearState",
    "affine",
    "aft_full_attention",
    "aft_simple_attention",
    "draw_seed",
    "dropout_scales",
    "feed_forward",
    "linear_attention",
    "linear_attention_packed",
    "linear_attention_step",
    "residual_norm",
]
