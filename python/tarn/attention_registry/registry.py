"""Tables of attention kinds."""

from __future__ import annotations

from typing import Any, Callable, Iterable

from tarn.attention_registry.spec import Optional, Spec


class Registry:
    """Kinds by name: a factory and the parameters that it takes."""

    def __init__(self) -> None:
        self._factories: dict[str, Callable[..., Any]] = {}
        self._names: dict[str, list[str]] = {}
        self._parameters: dict[str, Spec] = {}

    def register(
        self,
        key: str,
        class_object: Callable[..., Any],
        parameter_tuples: Iterable[tuple[str, Spec]],
    ) -> None:
        """Adds a kind. parameter_tuples: pairs of a parameter's name and its
        Spec; a name that several kinds use has one Spec. Raises ValueError, with
        nothing registered."""
        pairs = list(parameter_tuples)
        if key in self._factories:
            raise ValueError(f"register: key: want a new name, got {key!r}, registered before")
        for name, spec in pairs:
            known = self._parameters.get(name, spec)
            if known != spec:
                raise ValueError(
                    f"register: {key}: {name}: want {known!r} as registered before, got {spec!r}"
                )
        self._factories[key] = class_object
        self._names[key] = [name for name, _ in pairs]
        self._parameters.update(pairs)

    def __contains__(self, key: object) -> bool:
        return key in self._factories

    def __getitem__(self, key: str) -> tuple[Callable[..., Any], list[str]]:
        return self._factories[key], self._names[key]

    @property
    def keys(self) -> list[str]:
        """Names of the kinds."""
        return list(self._factories)

    def contains_parameter(self, key: str) -> bool:
        """Whether some kind takes a parameter of this name."""
        return key in self._parameters

    def has_default(self, key: str) -> bool:
        """Whether None stands for a default of this parameter."""
        return isinstance(self._parameters[key], Optional)

    def validate_parameter(self, key: str, value: Any) -> Any:
        """value in its canonical form. Raises ValueError that names the
        parameter."""
        try:
            return self._parameters[key].get(value)
        except Exception as error:
            raise ValueError(
                f"{key}: want {self._parameters[key]!r}, got {value!r}"
            ) from error


AttentionRegistry = Registry()
RecurrentAttentionRegistry = Registry()
RecurrentCrossAttentionRegistry = Registry()
