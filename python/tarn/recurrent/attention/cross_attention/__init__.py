"""Attention to a fixed memory: the state is built from it once, and every query
then only reads."""

from tarn.recurrent.attention.cross_attention import _refused as _refused
from tarn.recurrent.attention.cross_attention.attention_layer import (
    RecurrentCrossAttentionLayer,
)
from tarn.recurrent.attention.cross_attention.full_attention import (
    RecurrentCrossFullAttention,
)
from tarn.recurrent.attention.cross_attention.linear_attention import (
    RecurrentCrossLinearAttention,
)

__all__ = [
    "RecurrentCrossAttentionLayer",
    "RecurrentCrossFullAttention",
    "RecurrentCrossLinearAttention",
]
