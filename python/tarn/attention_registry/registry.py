"""Tables of attention kinds."""

from __future__ import annotations

from typing import Any, Callable, Iterable

from tarn.attention_registry.spec import Optional, Spec


class Registry:
    """Kinds by name: a factory and the parameters that it takes."""

    def __init__(self) -> None:
        self._factories: dict[str, Callable[..., Any]] = {}
        self._specs: dict[str, dict[str, Spec]] = {}  # of each kind
        self._parameters: dict[str, list[Spec]] = {}  # of each name; most have one
        self._yielding: set[str] = set()

    def register(
        self,
        key: str,
        class_object: Callable[..., Any],
        parameter_tuples: Iterable[tuple[str, Spec]],
        *,
        yielding: Iterable[str] = (),
    ) -> None:
        """Adds a kind. parameter_tuples: pairs of a parameter's name and its
        Spec; a name that several kinds use has one Spec. yielding: names that a
        later kind may use with another Spec; tarn's own parameters are such, so
        that kinds written for fast-transformers find them free. Raises
        ValueError, with nothing registered."""
        pairs = list(parameter_tuples)
        if key in self._factories:
            raise ValueError(f"register: key: want a new name, got {key!r}, registered before")
        for name, spec in pairs:
            known = self._parameters.get(name, [spec])[0]
            if known != spec and name not in self._yielding:
                raise ValueError(
                    f"register: {key}: {name}: want {known!r} as registered before, got {spec!r}"
                )
        self._factories[key] = class_object
        self._specs[key] = dict(pairs)
        self._yielding.update(yielding)
        for name, spec in pairs:
            specs = self._parameters.setdefault(name, [])
            if spec not in specs:
                specs.append(spec)

    def __contains__(self, key: object) -> bool:
        return key in self._factories

    def __getitem__(self, key: str) -> tuple[Callable[..., Any], list[str]]:
        return self._factories[key], list(self._specs[key])

    @property
    def keys(self) -> list[str]:
        """Names of the kinds."""
        return list(self._factories)

    def contains_parameter(self, key: str) -> bool:
        """Whether some kind takes a parameter of this name."""
        return key in self._parameters

    def has_default(self, key: str) -> bool:
        """Whether None stands for a default of this parameter."""
        return any(isinstance(spec, Optional) for spec in self._parameters[key])

    def validate_parameter(self, key: str, value: Any, kind: str | None = None) -> Any:
        """value in its canonical form, by the Spec of one kind or by any. Raises a
        ValueError that names the parameter."""
        specs = self._parameters[key] if kind is None else [self._specs[kind][key]]
        failed: Exception | None = None
        for spec in specs:
            try:
                return spec.get(value)
            except Exception as error:
                failed = error
        wanted = " or ".join(map(repr, specs))
        raise ValueError(f"{key}: want {wanted}, got {value!r}") from failed


AttentionRegistry: Registry = Registry()
RecurrentAttentionRegistry: Registry = Registry()
RecurrentCrossAttentionRegistry: Registry = Registry()
