"""Builders of encoders and decoders, in batch and recurrent form.

A custom builder derives from one of these and returns other classes from the
methods named `_get_..._class`.
"""

from __future__ import annotations

from typing import Any

import torch

from tarn.attention import AttentionLayer
from tarn.builders._settings import BaseTransformerBuilder
from tarn.builders.attention_builders import (
    AttentionBuilder,
    BaseAttentionBuilder,
    RecurrentAttentionBuilder,
    RecurrentCrossAttentionBuilder,
)
from tarn.recurrent.attention import RecurrentAttentionLayer, RecurrentCrossAttentionLayer
from tarn.recurrent.transformers import (
    RecurrentTransformerDecoder,
    RecurrentTransformerDecoderLayer,
    RecurrentTransformerEncoder,
    RecurrentTransformerEncoderLayer,
)
from tarn.transformers import (
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)


def _not_defined(builder: Any, method: str) -> NotImplementedError:
    return NotImplementedError(f"{type(builder).__name__}: {method} is not defined")


class BaseTransformerEncoderBuilder(BaseTransformerBuilder):
    """The base for both forms of encoders."""

    attention_type: str

    _defaults = {**BaseTransformerBuilder._defaults, "attention_type": "full"}

    @property
    def attention(self) -> BaseAttentionBuilder:
        """The builder of the attentions."""
        return self._builders[0]

    def __setattr__(self, key: str, value: Any) -> None:
        if key == "attention_type":
            value = self._check_type(key, self.attention, value)
        super().__setattr__(key, value)

    def _get_attention_builder(self) -> Any:
        """The builder of the inner attentions."""
        raise _not_defined(self, "_get_attention_builder")

    def _get_attention_layer_class(self) -> Any:
        """The class that projects to heads and back."""
        raise _not_defined(self, "_get_attention_layer_class")

    def _get_encoder_class(self) -> Any:
        """The class of the stack."""
        raise _not_defined(self, "_get_encoder_class")

    def _get_encoder_layer_class(self) -> Any:
        """The class of its layers."""
        raise _not_defined(self, "_get_encoder_layer_class")

    def _make_builders(self) -> list[BaseAttentionBuilder]:
        return [self._get_attention_builder()]

    def get(self) -> torch.nn.Module:
        self._want_sizes()
        layers = []
        for index in range(self.n_layers):
            attention = self._make_attention_layer(
                self._get_attention_layer_class(),
                self._attention(self.attention, self.attention_type, self.query_dimensions, index),
                self.n_heads,
                self.query_dimensions,
                self.value_dimensions,
            )
            layers.append(self._make_layer(self._get_encoder_layer_class(), attention))
        return self._get_encoder_class()(
            layers, self._final_norm(), event_dispatcher=self.event_dispatcher
        )


class TransformerEncoderBuilder(BaseTransformerEncoderBuilder):
    """Makes tarn.transformers.TransformerEncoder.

    Settings are attributes and their defaults:
        n_layers 4, n_heads 4.
        query_dimensions 64, value_dimensions 64: widths of a head; query_dimensions
            None: model_dimensions // n_heads.
        model_dimensions None: value_dimensions n_heads.
        feed_forward_dimensions 1024; None: 4 model_dimensions. dropout 0.1, activation "relu" or "gelu".
        attention_type "full": a kind of `tarn.attention_registry`, "a:b" is a
            around b.
        final_normalization True, norm "post" or "pre", norm_eps 1e-5.
        event_dispatcher "": a name or a dispatcher.
        compat False: whether the numbers are those of fast-transformers 0.4
            where tarn's differ.
        feature_seed 0: seed of random feature maps, one draw per layer.
    A setting that the attention takes as well (query_dimensions, compat) is also
    passed to its builder; any other public name (feature_map, clusters,
    softmax_temp) is passed there alone.
    """

    def _get_attention_builder(self) -> Any:
        return AttentionBuilder()

    def _get_attention_layer_class(self) -> Any:
        return AttentionLayer

    def _get_encoder_class(self) -> Any:
        return TransformerEncoder

    def _get_encoder_layer_class(self) -> Any:
        return TransformerEncoderLayer


class RecurrentEncoderBuilder(BaseTransformerEncoderBuilder):
    """Makes tarn.recurrent.transformers.RecurrentTransformerEncoder; the settings are
    those of TransformerEncoderBuilder."""

    def _get_attention_builder(self) -> Any:
        return RecurrentAttentionBuilder()

    def _get_attention_layer_class(self) -> Any:
        return RecurrentAttentionLayer

    def _get_encoder_class(self) -> Any:
        return RecurrentTransformerEncoder

    def _get_encoder_layer_class(self) -> Any:
        return RecurrentTransformerEncoderLayer


class BaseTransformerDecoderBuilder(BaseTransformerBuilder):
    """The base for both forms of decoders."""

    self_attention_type: str
    cross_attention_type: str
    cross_n_heads: int
    cross_query_dimensions: int
    cross_value_dimensions: int
    cross_model_dimensions: int

    _defaults = {
        **BaseTransformerBuilder._defaults,
        "self_attention_type": "full",
        "cross_attention_type": "full",
        "cross_n_heads": None,
        "cross_query_dimensions": None,
        "cross_value_dimensions": None,
        "cross_model_dimensions": None,
    }

    @property
    def self_attention(self) -> BaseAttentionBuilder:
        """The builder of the self attentions."""
        return self._builders[0]

    @property
    def cross_attention(self) -> BaseAttentionBuilder:
        """The builder of the cross attentions."""
        return self._builders[1]

    def _derived(self, key: str) -> Any:
        same = {
            "cross_n_heads": "n_heads",
            "cross_query_dimensions": "query_dimensions",
            "cross_value_dimensions": "value_dimensions",
        }
        if key in same:
            return getattr(self, same[key])
        if key == "cross_model_dimensions":
            return self.cross_n_heads * self.cross_value_dimensions
        return super()._derived(key)

    def __setattr__(self, key: str, value: Any) -> None:
        if key == "self_attention_type":
            value = self._check_type(key, self.self_attention, value)
        elif key == "cross_attention_type":
            value = self._check_type(key, self.cross_attention, value)
        super().__setattr__(key, value)

    def _get_self_attention_builder(self) -> Any:
        """The builder of the inner self attentions."""
        raise _not_defined(self, "_get_self_attention_builder")

    def _get_cross_attention_builder(self) -> Any:
        """The builder of the inner cross attentions."""
        raise _not_defined(self, "_get_cross_attention_builder")

    def _get_self_attention_layer_class(self) -> Any:
        """The class that projects to heads and back."""
        raise _not_defined(self, "_get_self_attention_layer_class")

    def _get_cross_attention_layer_class(self) -> Any:
        """The class that does so for a memory."""
        raise _not_defined(self, "_get_cross_attention_layer_class")

    def _get_decoder_class(self) -> Any:
        """The class of the stack."""
        raise _not_defined(self, "_get_decoder_class")

    def _get_decoder_layer_class(self) -> Any:
        """The class of its layers."""
        raise _not_defined(self, "_get_decoder_layer_class")

    def _make_builders(self) -> list[BaseAttentionBuilder]:
        return [self._get_self_attention_builder(), self._get_cross_attention_builder()]

    def _self_layer(self, index: int) -> Any:
        return self._make_attention_layer(
            self._get_self_attention_layer_class(),
            self._attention(
                self.self_attention, self.self_attention_type, self.query_dimensions, 2 * index
            ),
            self.n_heads,
            self.query_dimensions,
            self.value_dimensions,
        )

    def _cross_layer(self, index: int) -> Any:
        d_memory = self.cross_model_dimensions
        return self._make_attention_layer(
            self._get_cross_attention_layer_class(),
            self._attention(
                self.cross_attention,
                self.cross_attention_type,
                self.cross_query_dimensions,
                2 * index + 1,
            ),
            self.cross_n_heads,
            self.cross_query_dimensions,
            self.cross_value_dimensions,
            **({} if d_memory == self.model_dimensions else {"d_memory": d_memory}),
        )

    def get(self) -> torch.nn.Module:
        self._want_sizes()
        layers = [
            self._make_layer(
                self._get_decoder_layer_class(), self._self_layer(index), self._cross_layer(index)
            )
            for index in range(self.n_layers)
        ]
        return self._get_decoder_class()(
            layers, self._final_norm(), event_dispatcher=self.event_dispatcher
        )


class TransformerDecoderBuilder(BaseTransformerDecoderBuilder):
    """Makes tarn.transformers.TransformerDecoder; the settings are those of
    TransformerEncoderBuilder without attention_type, and

        self_attention_type "full", cross_attention_type "full".
        cross_n_heads, cross_query_dimensions, cross_value_dimensions None: those
            of the self attention.
        cross_model_dimensions None: cross_n_heads cross_value_dimensions; the
            width of the memory.
    """

    def _get_self_attention_builder(self) -> Any:
        return AttentionBuilder()

    def _get_cross_attention_builder(self) -> Any:
        return AttentionBuilder()

    def _get_self_attention_layer_class(self) -> Any:
        return AttentionLayer

    def _get_cross_attention_layer_class(self) -> Any:
        return AttentionLayer

    def _get_decoder_class(self) -> Any:
        return TransformerDecoder

    def _get_decoder_layer_class(self) -> Any:
        return TransformerDecoderLayer


class RecurrentDecoderBuilder(BaseTransformerDecoderBuilder):
    """Makes tarn.recurrent.transformers.RecurrentTransformerDecoder; the settings are
    those of TransformerDecoderBuilder."""

    def _get_self_attention_builder(self) -> Any:
        return RecurrentAttentionBuilder()

    def _get_cross_attention_builder(self) -> Any:
        return RecurrentCrossAttentionBuilder()

    def _get_self_attention_layer_class(self) -> Any:
        return RecurrentAttentionLayer

    def _get_cross_attention_layer_class(self) -> Any:
        return RecurrentCrossAttentionLayer

    def _get_decoder_class(self) -> Any:
        return RecurrentTransformerDecoder

    def _get_decoder_layer_class(self) -> Any:
        return RecurrentTransformerDecoderLayer
