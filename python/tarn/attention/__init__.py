"""The attention kinds as modules, and the layer around them. Importing this
package registers them with the builders."""

from tarn.attention.aft_attention import AFTFullAttention, AFTSimpleAttention
from tarn.attention.attention_layer import AttentionLayer
from tarn.attention.causal_linear_attention import CausalLinearAttention
from tarn.attention.clustered_attention import ClusteredAttention
from tarn.attention.conditional_full_attention import ConditionalFullAttention
from tarn.attention.exact_topk_attention import ExactTopKAttention
from tarn.attention.full_attention import FullAttention
from tarn.attention.improved_clustered_attention import ImprovedClusteredAttention
from tarn.attention.improved_clustered_causal_attention import (
    ImprovedClusteredCausalAttention,
)
from tarn.attention.linear_attention import LinearAttention
from tarn.attention.local_attention import LocalAttention
from tarn.attention.reformer_attention import ReformerAttention

__all__ = [
    "AFTFullAttention",
    "AFTSimpleAttention",
    "AttentionLayer",
    "CausalLinearAttention",
    "ClusteredAttention",
    "ConditionalFullAttention",
    "ExactTopKAttention",
    "FullAttention",
    "ImprovedClusteredAttention",
    "ImprovedClusteredCausalAttention",
    "LinearAttention",
    "LocalAttention",
    "ReformerAttention",
]
