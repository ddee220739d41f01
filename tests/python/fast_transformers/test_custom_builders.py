"""Builders that inherit and choose other classes for what they build."""

import pytest
import torch

from tarn.builders import TransformerDecoderBuilder, TransformerEncoderBuilder
from tarn.builders.transformer_builders import BaseTransformerEncoderBuilder

SMALL = dict(
    n_layers=2, n_heads=2, query_dimensions=4, value_dimensions=3, feed_forward_dimensions=8
)


class OwnEncoderLayer(torch.nn.Module):
    """A layer with the arguments of fast-transformers and no others."""

    def __init__(
        self, attention, d_model, d_ff=None, dropout=0.1, activation="relu", event_dispatcher=""
    ):
        super().__init__()
        self.given = d_model, d_ff, dropout, activation
        self.attention = attention

    def forward(self, x, attn_mask=None, length_mask=None):
        return self.attention(x, x, x, attn_mask, length_mask, length_mask)


class OwnProjections(torch.nn.Module):
    def __init__(
        self, attention, d_model, n_heads, d_keys=None, d_values=None, event_dispatcher=""
    ):
        super().__init__()
        self.given = d_model, n_heads, d_keys, d_values

    def forward(self, queries, keys, values, *masks):
        return values


def test_custom_builders_choose_other_classes():
    """They override the methods that fast-transformers has for derived classes."""

    class Own(TransformerEncoderBuilder):
        def _get_encoder_layer_class(self):
            return OwnEncoderLayer

        def _get_attention_layer_class(self):
            return OwnProjections

    layers = Own.from_kwargs(**SMALL).get().layers
    assert len(layers) == 2 and all(type(layer) is OwnEncoderLayer for layer in layers)
    assert layers[0].given == (6, 8, 0.1, "relu")
    assert layers[0].attention.given == (6, 2, 4, 3)

    class OwnDecoder(TransformerDecoderBuilder):
        def _get_cross_attention_layer_class(self):
            return OwnProjections

    decoder = OwnDecoder.from_kwargs(**SMALL, norm="pre").get()
    assert decoder.layers[1].cross_attention.given == (6, 2, 4, 3)
    assert decoder.layers[0].pre_norm
    with pytest.raises(NotImplementedError, match="_get_attention_builder"):
        BaseTransformerEncoderBuilder()
