"""Builders of encoders and decoders, in batch and recurrent form."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, SupportsIndex

import torch

from tarn import transformers
from tarn.attention import AttentionLayer
from tarn.builders.attention_builders import (
    AttentionBuilder,
    BaseAttentionBuilder,
    RecurrentAttentionBuilder,
    RecurrentCrossAttentionBuilder,
)
from tarn.builders.base import BaseBuilder
from tarn.events import EventDispatcher
from tarn.recurrent import transformers as recurrent
from tarn.recurrent.attention import RecurrentAttentionLayer, RecurrentCrossAttentionLayer


def _one_of(*choices: str) -> Callable[[str, Any], Any]:
    def check(key: str, value: Any) -> Any:
        if value not in choices:
            raise ValueError(f"{key}: want one of {', '.join(map(repr, choices))}, got {value!r}")
        return value

    return check


def _whole(least: int) -> Callable[[str, Any], Any]:
    """Checks an integer from `least`."""

    def check(key: str, value: Any) -> Any:
        number = None if not isinstance(value, SupportsIndex) else operator.index(value)
        if number is None or number < least:
            raise ValueError(f"{key}: want an integer from {least}, got {value!r}")
        return number

    return check


def _to_bool(key: str, value: Any) -> bool:
    return bool(value)


class BaseTransformerBuilder(BaseBuilder):
    """What the builders of transformers share; settings as in
    TransformerEncoderBuilder."""

    n_layers: int
    n_heads: int
    query_dimensions: int
    value_dimensions: int
    feed_forward_dimensions: int
    dropout: float
    activation: str
    final_normalization: bool
    event_dispatcher: str | EventDispatcher
    model_dimensions: int
    norm: str
    norm_eps: float
    compat: bool
    feature_seed: int

    _defaults: dict[str, Any] = {
        "n_layers": 4,
        "n_heads": 4,
        "query_dimensions": 64,
        "value_dimensions": 64,
        "feed_forward_dimensions": 1024,
        "dropout": 0.1,
        "activation": "relu",
        "final_normalization": True,
        "event_dispatcher": "",
        "model_dimensions": None,
        "norm": "post",
        "norm_eps": 1e-5,
        "compat": False,
        "feature_seed": 0,
    }
    _checks: dict[str, Callable[[str, Any], Any]] = {
        "n_layers": _whole(0),
        **dict.fromkeys(
            (
                "n_heads",
                "query_dimensions",
                "value_dimensions",
                "feed_forward_dimensions",
                "model_dimensions",
                "cross_n_heads",
                "cross_query_dimensions",
                "cross_value_dimensions",
                "cross_model_dimensions",
            ),
            _whole(1),
        ),
        "activation": _one_of("relu", "gelu"),
        "norm": _one_of("post", "pre"),
        "final_normalization": _to_bool,
        "compat": _to_bool,
    }
    _recurrent = False

    def __init__(self) -> None:
        self._settings = dict(self._defaults)
        self._builders = self._make_builders()

    def _make_builders(self) -> list[BaseAttentionBuilder]:
        raise NotImplementedError(f"{type(self).__name__}: _make_builders is not defined")

    def _derived(self, key: str) -> Any:
        """What a setting of None stands for."""
        if key == "model_dimensions":
            self._want("value_dimensions", "n_heads")
            return self.value_dimensions * self.n_heads
        if key == "event_dispatcher":
            return ""
        return None

    def __getattr__(self, key: str) -> Any:
        settings = self.__dict__.get("_settings", {})
        if key not in settings:
            raise AttributeError(f"{type(self).__name__}: {key!r} is not a setting")
        value = settings[key]
        return self._derived(key) if value is None else value

    def __setattr__(self, key: str, value: Any) -> None:
        if key.startswith("_"):
            object.__setattr__(self, key, value)
            return
        known = key in self._settings
        if known:
            check = None if self._may_be_none(key, value) else self._checks.get(key)
            self._settings[key] = value if check is None else check(key, value)
        self._forward(key, value, known)

    @staticmethod
    def _may_be_none(key: str, value: Any) -> bool:
        """Whether a setting is kept as None, which a namespace has for what was
        not given. The layers know what it stands for, or else `get` asks."""
        return value is None and key not in ("activation", "norm", "final_normalization", "compat")

    def _want(self, *keys: str) -> None:
        """Raises ValueError for a setting of None that stands for nothing."""
        for key in keys:
            if getattr(self, key) is None:
                raise ValueError(f"{key}: want a value before get(), got None")

    def _want_sizes(self) -> None:
        """What `get` asks for before it makes anything."""
        self._want("n_layers", "n_heads", "model_dimensions", "dropout", "norm_eps")

    def _forward(self, key: str, value: Any, known: bool) -> None:
        """Hands a setting to the builders of attentions that take it."""
        taking = [builder for builder in self._builders if builder.takes(key)]
        if not (known or taking):
            raise AttributeError(f"{type(self).__name__}: want a setting, got {key!r}")
        for builder in taking:
            setattr(builder, key, value)

    def __repr__(self) -> str:
        settings = ", ".join(f"{k}={v!r}" for k, v in self._settings.items() if v is not None)
        return f"{type(self).__name__}.from_kwargs({settings})"

    def get(self) -> torch.nn.Module:
        """The transformer, newly made: modules share nothing with those of an
        earlier call. Raises ValueError."""
        raise NotImplementedError(f"{type(self).__name__}: get is not defined")

    def _attention(
        self,
        builder: BaseAttentionBuilder,
        attention_type: str,
        query_dimensions: int | None,
        number: int,
    ) -> Any:
        """An inner attention; number tells those of one model apart, so that
        each draws random numbers of its own."""
        if query_dimensions is None:  # as the layers take it
            query_dimensions = self.model_dimensions // self.n_heads
        for key, value in (
            ("event_dispatcher", self.event_dispatcher),
            ("query_dimensions", query_dimensions),
        ):
            if builder.takes(key):
                setattr(builder, key, value)
        attention = builder.get(attention_type)
        # One registered from outside may be any callable.
        is_module = isinstance(attention, torch.nn.Module)
        for module in attention.modules() if is_module else [attention]:
            assign = getattr(module, "assign_layer", None)
            if callable(assign):
                assign(number, seed=self.feature_seed)
        return attention

    def _layer_arguments(self) -> dict[str, Any]:
        return {
            "d_model": self.model_dimensions,
            "d_ff": self.feed_forward_dimensions,
            "dropout": self.dropout,
            "activation": self.activation,
            "event_dispatcher": self.event_dispatcher,
            "norm": self.norm,
            "norm_eps": self.norm_eps,
        }

    def _final_norm(self) -> torch.nn.Module | None:
        if not self.final_normalization:
            return None
        return torch.nn.LayerNorm(self.model_dimensions, eps=self.norm_eps)

    def _check_type(self, key: str, builder: BaseAttentionBuilder, value: str) -> str:
        if not builder.validate_attention_type(value):
            known = ", ".join(repr(name) for name in builder.available_attentions)
            raise ValueError(f"{key}: want names among {known}, got {value!r}")
        return value


class BaseTransformerEncoderBuilder(BaseTransformerBuilder):
    """Both forms of encoders."""

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

    def _self_layer(self, layer_class: Callable[..., Any], attention: Any) -> torch.nn.Module:
        return layer_class(
            attention,
            self.model_dimensions,
            self.n_heads,
            d_keys=self.query_dimensions,
            d_values=self.value_dimensions,
            event_dispatcher=self.event_dispatcher,
        )

    def get(self) -> torch.nn.Module:
        self._want_sizes()
        shell = recurrent if self._recurrent else transformers
        prefix = "Recurrent" if self._recurrent else ""
        layer_class = getattr(shell, f"{prefix}TransformerEncoderLayer")
        attention_layer = RecurrentAttentionLayer if self._recurrent else AttentionLayer
        layers = [
            layer_class(
                self._self_layer(
                    attention_layer,
                    self._attention(
                        self.attention, self.attention_type, self.query_dimensions, index
                    ),
                ),
                **self._layer_arguments(),
            )
            for index in range(self.n_layers)
        ]
        stack = getattr(shell, f"{prefix}TransformerEncoder")
        return stack(layers, self._final_norm(), event_dispatcher=self.event_dispatcher)


class TransformerEncoderBuilder(BaseTransformerEncoderBuilder):
    """Makes tarn.transformers.TransformerEncoder.

    Settings are attributes and their defaults:
        n_layers 4, n_heads 4.
        query_dimensions 64, value_dimensions 64: widths of a head; None for the
            first: model_dimensions // n_heads.
        model_dimensions None: value_dimensions n_heads.
        feed_forward_dimensions 1024; None: 4 model_dimensions. dropout 0.1, activation "relu" or "gelu".
        attention_type "full": a kind of `tarn.attention_registry`, "a:b" is a
            around b.
        final_normalization True, norm "post" or "pre", norm_eps 1e-5.
        event_dispatcher "": a name or a dispatcher.
        compat False: whether the numbers are those of fast-transformers 0.4
            where tarn's differ.
        feature_seed 0: of random feature maps, one draw a layer.
    A setting that the attention takes as well (query_dimensions, compat) goes to
    its builder too, any other public name (feature_map, clusters, softmax_temp)
    goes there alone.
    """

    def _make_builders(self) -> list[BaseAttentionBuilder]:
        return [AttentionBuilder()]


class RecurrentEncoderBuilder(BaseTransformerEncoderBuilder):
    """Makes tarn.recurrent.transformers.RecurrentTransformerEncoder; settings as
    TransformerEncoderBuilder."""

    _recurrent = True

    def _make_builders(self) -> list[BaseAttentionBuilder]:
        return [RecurrentAttentionBuilder()]


class BaseTransformerDecoderBuilder(BaseTransformerBuilder):
    """Both forms of decoders."""

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

    def _self_layer(self, index: int) -> torch.nn.Module:
        layer_class: Any = RecurrentAttentionLayer if self._recurrent else AttentionLayer
        return layer_class(
            self._attention(
                self.self_attention, self.self_attention_type, self.query_dimensions, 2 * index
            ),
            self.model_dimensions,
            self.n_heads,
            d_keys=self.query_dimensions,
            d_values=self.value_dimensions,
            event_dispatcher=self.event_dispatcher,
        )

    def _cross_layer(self, index: int) -> torch.nn.Module:
        layer_class: Any = RecurrentCrossAttentionLayer if self._recurrent else AttentionLayer
        return layer_class(
            self._attention(
                self.cross_attention,
                self.cross_attention_type,
                self.cross_query_dimensions,
                2 * index + 1,
            ),
            self.model_dimensions,
            self.cross_n_heads,
            d_keys=self.cross_query_dimensions,
            d_values=self.cross_value_dimensions,
            event_dispatcher=self.event_dispatcher,
            d_memory=self.cross_model_dimensions,
        )

    def get(self) -> torch.nn.Module:
        self._want_sizes()
        shell = recurrent if self._recurrent else transformers
        prefix = "Recurrent" if self._recurrent else ""
        layer_class = getattr(shell, f"{prefix}TransformerDecoderLayer")
        layers = [
            layer_class(
                self._self_layer(index), self._cross_layer(index), **self._layer_arguments()
            )
            for index in range(self.n_layers)
        ]
        stack = getattr(shell, f"{prefix}TransformerDecoder")
        return stack(layers, self._final_norm(), event_dispatcher=self.event_dispatcher)


class TransformerDecoderBuilder(BaseTransformerDecoderBuilder):
    """Makes tarn.transformers.TransformerDecoder; settings as
    TransformerEncoderBuilder without attention_type, and

        self_attention_type "full", cross_attention_type "full".
        cross_n_heads, cross_query_dimensions, cross_value_dimensions None: as of
            the self attention.
        cross_model_dimensions None: cross_n_heads cross_value_dimensions; the
            width of the memory.
    """

    def _make_builders(self) -> list[BaseAttentionBuilder]:
        return [AttentionBuilder(), AttentionBuilder()]


class RecurrentDecoderBuilder(BaseTransformerDecoderBuilder):
    """Makes tarn.recurrent.transformers.RecurrentTransformerDecoder; settings as
    TransformerDecoderBuilder."""

    _recurrent = True

    def _make_builders(self) -> list[BaseAttentionBuilder]:
        return [RecurrentAttentionBuilder(), RecurrentCrossAttentionBuilder()]
