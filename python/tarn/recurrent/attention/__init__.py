"""Recurrent attention: to the tokens so far, and to a fixed memory."""

from tarn.recurrent.attention.cross_attention import (
    RecurrentCrossAttentionLayer,
    RecurrentCrossFullAttention,
    RecurrentCrossLinearAttention,
)
from tarn.recurrent.attention.self_attention import (
    RecurrentAFTFullAttention,
    RecurrentAFTSimpleAttention,
    RecurrentAttentionLayer,
    RecurrentExactTopKAttention,
    RecurrentFullAttention,
    RecurrentLinearAttention,
    RecurrentLocalAttention,
)

__all__ = [
    "RecurrentAFTFullAttention",
    "RecurrentAFTSimpleAttention",
    "RecurrentAttentionLayer",
    "RecurrentCrossAttentionLayer",
    "RecurrentCrossFullAttention",
    "RecurrentCrossLinearAttention",
    "RecurrentExactTopKAttention",
    "RecurrentFullAttention",
    "RecurrentLinearAttention",
    "RecurrentLocalAttention",
]
