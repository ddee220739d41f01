"""Builders of inner attentions."""

from __future__ import annotations

import inspect
from typing import Any

from tarn.attention_registry import (
    AttentionRegistry,
    RecurrentAttentionRegistry,
    RecurrentCrossAttentionRegistry,
    Registry,
)
from tarn.builders.base import BaseBuilder
from tarn.feature_maps import by_name


class NestingError(TypeError, ValueError):
    """An attention_type in which a kind has another number of attentions inside
    than it wraps. It is a TypeError, which fast-transformers raises there, and a
    ValueError, like the errors for other wrong attention types."""


class BaseAttentionBuilder(BaseBuilder):
    """Makes the kinds of one registry; its settings are their parameters. The
    setting feature_map may be a name such as "favor". None means not set: a
    parameter with a default takes the default, any other is required by get."""

    _registry: Registry
    _parameters: dict[str, Any]

    def __init__(self, registry: Registry):
        self._registry = registry
        self._parameters = {}

    @property
    def available_attentions(self) -> list[str]:
        """Names of the kinds."""
        return self._registry.keys

    def validate_attention_type(self, attention_type: str) -> bool:
        """Whether every name in it is known; see get."""
        return all(
            name in self._registry for part in attention_type.split(":") for name in part.split(",")
        )

    def takes(self, key: str) -> bool:
        """Whether some kind has a parameter of this name."""
        return self._registry.contains_parameter(key)

    def __setattr__(self, key: str, value: Any) -> None:
        if key in ("_registry", "_parameters"):
            object.__setattr__(self, key, value)
            return
        if not self.takes(key):
            raise AttributeError(
                f"{type(self).__name__}: want a parameter of an attention, got {key!r}"
            )
        if key == "feature_map" and isinstance(value, str):
            value = by_name(value)
        if value is None and not self._registry.has_default(key):
            self._parameters[key] = None
        else:
            self._parameters[key] = self._registry.validate_parameter(key, value)

    def __getattr__(self, key: str) -> Any:
        # Only called where normal look-up fails; copy and pickle call it early.
        parameters = self.__dict__.get("_parameters", {})
        if key in parameters:
            return parameters[key]
        raise AttributeError(f"{type(self).__name__}: {key!r} is not set")

    def __repr__(self) -> str:
        settings = ", ".join(f"{key}={value!r}" for key, value in self._parameters.items())
        return f"{type(self).__name__}.from_kwargs({settings})"

    def get(self, attention_type: str) -> Any:
        """A new attention, as the registered factory returns it. "a" is that
        kind, "a:b" is a around b, "a:b,c" is a around b and c. Raises ValueError
        for unknown names and missing or wrong parameters, and NestingError."""
        inner: list[Any] = []
        for part in reversed(attention_type.split(":")):
            inner = [self._make(name, inner) for name in part.split(",")]
        if len(inner) != 1:
            raise ValueError(
                f"attention_type: want one outermost attention, got {attention_type!r}"
            )
        return inner[0]

    def _make(self, name: str, inner: list[Any]) -> Any:
        if name not in self._registry:
            known = ", ".join(repr(key) for key in self._registry.keys)
            raise ValueError(f"attention_type: want one of {known}, got {name!r}")
        factory, parameters = self._registry[name]
        settings = {
            key: self._registry.validate_parameter(key, self._parameters.get(key), name)
            for key in parameters
        }
        if not _takes(factory, inner, settings):
            raise NestingError(
                f"attention_type: {name}: want as many attentions inside it as it wraps "
                f'("a:b" is a around b), got {len(inner)}'
            )
        return factory(*inner, **settings)


def _takes(factory: Any, inner: list[Any], settings: dict[str, Any]) -> bool:
    """Whether a factory can be called with these; True where it has no signature to
    inspect, like some of those written in C."""
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*inner, **settings)
    except TypeError:
        return False
    return True


class AttentionBuilder(BaseAttentionBuilder):
    """Attentions over whole sequences."""

    def __init__(self) -> None:
        super().__init__(AttentionRegistry)


class RecurrentAttentionBuilder(BaseAttentionBuilder):
    """Self attentions of one token at a time."""

    def __init__(self) -> None:
        super().__init__(RecurrentAttentionRegistry)


class RecurrentCrossAttentionBuilder(BaseAttentionBuilder):
    """Cross attentions of one query at a time."""

    def __init__(self) -> None:
        super().__init__(RecurrentCrossAttentionRegistry)
