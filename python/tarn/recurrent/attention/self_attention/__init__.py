"""Self attention as a recurrence: one query, key and value per call, and a
state. The causal mask is implied. Every module also has `prefill` for whole
sequences."""

from tarn.recurrent.attention.self_attention import _refused as _refused
from tarn.recurrent.attention.self_attention.aft_attention import (
    RecurrentAFTFullAttention,
    RecurrentAFTSimpleAttention,
)
from tarn.recurrent.attention.self_attention.attention_layer import RecurrentAttentionLayer
from tarn.recurrent.attention.self_attention.exact_topk_attention import (
    RecurrentExactTopKAttention,
)
from tarn.recurrent.attention.self_attention.full_attention import RecurrentFullAttention
from tarn.recurrent.attention.self_attention.linear_attention import RecurrentLinearAttention
from tarn.recurrent.attention.self_attention.local_attention import RecurrentLocalAttention

__all__ = [
    "RecurrentAFTFullAttention",
    "RecurrentAFTSimpleAttention",
    "RecurrentAttentionLayer",
    "RecurrentExactTopKAttention",
    "RecurrentFullAttention",
    "RecurrentLinearAttention",
    "RecurrentLocalAttention",
]
