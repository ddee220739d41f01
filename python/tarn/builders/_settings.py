"""What the builders of transformers share: settings, their checks, and how parts
are made from them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, SupportsIndex

import torch

from tarn.builders.attention_builders import BaseAttentionBuilder
from tarn.builders.base import BaseBuilder
from tarn.events import EventDispatcher


def _one_of(*choices: str) -> Callable[[str, Any], Any]:
    def check(key: str, value: Any) -> Any:
        if value not in choices:
            raise ValueError(f"{key}: want one of {', '.join(map(repr, choices))}, got {value!r}")
        return value

    return check


def _whole(least: int) -> Callable[[str, Any], Any]:
    """A check for integers of at least `least`."""

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

    def __init__(self) -> None:
        self._settings = dict(self._defaults)
        self._builders = self._make_builders()

    def _make_builders(self) -> list[BaseAttentionBuilder]:
        raise NotImplementedError(f"{type(self).__name__}: _make_builders is not defined")

    def _derived(self, key: str) -> Any:
        """The value that a setting of None stands for."""
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
        """Whether a setting is kept as None, which a namespace holds for an option
        that was not given. The layers know what it stands for, or `get` requires it."""
        return value is None and key not in ("activation", "norm", "final_normalization", "compat")

    def _want(self, *keys: str) -> None:
        """Raises ValueError for a setting of None that has no default."""
        for key in keys:
            if getattr(self, key) is None:
                raise ValueError(f"{key}: want a value before get(), got None")

    def _want_sizes(self) -> None:
        """Checks the sizes that `get` needs before it makes anything."""
        self._want("n_layers", "n_heads", "model_dimensions", "dropout", "norm_eps")

    def _forward(self, key: str, value: Any, known: bool) -> None:
        """Passes a setting to the builders of attentions that take it."""
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
        """An inner attention; number tells the attentions of one model apart, so that
        each draws its own random numbers."""
        if query_dimensions is None:  # as the layers take it
            query_dimensions = self.model_dimensions // self.n_heads
        for key, value in (
            ("event_dispatcher", self.event_dispatcher),
            ("query_dimensions", query_dimensions),
        ):
            if builder.takes(key):
                setattr(builder, key, value)
        attention = builder.get(attention_type)
        # An attention registered by a user may be any callable.
        is_module = isinstance(attention, torch.nn.Module)
        for module in attention.modules() if is_module else [attention]:
            assign = getattr(module, "assign_layer", None)
            if callable(assign):
                assign(number, seed=self.feature_seed)
        return attention

    def _make_layer(self, layer_class: Callable[..., Any], *attentions: Any) -> Any:
        """A layer around its attentions, with the arguments of fast-transformers,
        so that a user's class needs no others; tarn's arguments are only passed
        where they differ from the defaults."""
        more = {
            name: getattr(self, name)
            for name in ("norm", "norm_eps")
            if getattr(self, name) != self._defaults[name]
        }
        return layer_class(
            *attentions,
            self.model_dimensions,
            self.feed_forward_dimensions,
            self.dropout,
            self.activation,
            event_dispatcher=self.event_dispatcher,
            **more,
        )

    def _make_attention_layer(
        self,
        layer_class: Callable[..., Any],
        attention: Any,
        n_heads: int,
        query_dimensions: int | None,
        value_dimensions: int,
        **more: Any,
    ) -> Any:
        """The layer around an inner attention, made in the same way."""
        return layer_class(
            attention,
            self.model_dimensions,
            n_heads,
            d_keys=query_dimensions,
            d_values=value_dimensions,
            event_dispatcher=self.event_dispatcher,
            **more,
        )

    def _final_norm(self) -> torch.nn.Module | None:
        if not self.final_normalization:
            return None
        return torch.nn.LayerNorm(self.model_dimensions, eps=self.norm_eps)

    def _check_type(self, key: str, builder: BaseAttentionBuilder, value: str) -> str:
        if not builder.validate_attention_type(value):
            known = ", ".join(repr(name) for name in builder.available_attentions)
            raise ValueError(f"{key}: want names among {known}, got {value!r}")
        return value
