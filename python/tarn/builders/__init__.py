"""Builders: transformers from settings by name, with any kind of attention.

builder = TransformerEncoderBuilder.from_kwargs(
    n_layers=8, n_heads=8, query_dimensions=32, value_dimensions=32,
    feed_forward_dimensions=1024, attention_type="linear",
)
model = builder.get()
"""

import tarn.recurrent.attention  # noqa: F401  (registers the kinds)

# Programs for fast-transformers import the kinds from here as well.
from tarn.attention import (
    AFTFullAttention,
    AFTSimpleAttention,
    AttentionLayer,
    CausalLinearAttention,
    ClusteredAttention,
    ConditionalFullAttention,
    ExactTopKAttention,
    FullAttention,
    ImprovedClusteredAttention,
    ImprovedClusteredCausalAttention,
    LinearAttention,
    LocalAttention,
    ReformerAttention,
)
from tarn.builders.attention_builders import (
    AttentionBuilder,
    RecurrentAttentionBuilder,
    RecurrentCrossAttentionBuilder,
)
from tarn.builders.base import BaseBuilder
from tarn.builders.transformer_builders import (
    RecurrentDecoderBuilder,
    RecurrentEncoderBuilder,
    TransformerDecoderBuilder,
    TransformerEncoderBuilder,
)

__all__ = [
    "AFTFullAttention",
    "AFTSimpleAttention",
    "AttentionBuilder",
    "AttentionLayer",
    "BaseBuilder",
    "CausalLinearAttention",
    "ClusteredAttention",
    "ConditionalFullAttention",
    "ExactTopKAttention",
    "FullAttention",
    "ImprovedClusteredAttention",
    "ImprovedClusteredCausalAttention",
    "LinearAttention",
    "LocalAttention",
    "RecurrentAttentionBuilder",
    "RecurrentCrossAttentionBuilder",
    "RecurrentDecoderBuilder",
    "RecurrentEncoderBuilder",
    "ReformerAttention",
    "TransformerDecoderBuilder",
    "TransformerEncoderBuilder",
]
