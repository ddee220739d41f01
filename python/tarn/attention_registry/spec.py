"""Types of the parameters of attention kinds."""

from __future__ import annotations

from typing import Any, Collection

from tarn.events import EventDispatcher


class Spec:
    """A type. predicate: returns the canonical form of a value or raises
    ValueError or TypeError. name: its name in messages."""

    def __init__(self, predicate: Any, name: str = "CustomSpec"):
        self._predicate = predicate
        self._name = name

    def __repr__(self) -> str:
        return self._name

    def get(self, x: Any) -> Any:
        """x in its canonical form. Raises ValueError, TypeError."""
        return self._predicate(x)

    def check(self, x: Any) -> bool:
        """Whether get(x) succeeds."""
        try:
            self.get(x)
        except (ValueError, TypeError):
            return False
        return True

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return hash(self._name)


class Choice(Spec):
    """The type of a parameter that is one of `choices`."""

    def __init__(self, choices: Collection[Any]):
        super().__init__(self._chosen, f"Choice({choices!r})")
        self._choices = choices

    def _chosen(self, x: Any) -> Any:
        if x in self._choices:
            return x
        raise ValueError(f"want one of {self._choices!r}, got {x!r}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Choice) and self._choices == other._choices

    def __hash__(self) -> int:
        return super().__hash__()


class Optional(Spec):
    """The type of a parameter that is None, which gives `default`, or a value of `spec`."""

    def __init__(self, spec: Spec, default: Any = None):
        super().__init__(self._or_default, f"Optional[{spec!r}, {default!r}]")
        self._spec = spec
        self._default = default

    def _or_default(self, x: Any) -> Any:
        return self._default if x is None else self._spec.get(x)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Optional):
            return False
        return self._spec == other._spec and self._default == other._default

    def __hash__(self) -> int:
        return super().__hash__()


def _callable(x: Any) -> Any:
    if callable(x):
        return x
    raise ValueError(f"want a callable, got {x!r}")


def _dispatcher(x: Any) -> Any:
    if isinstance(x, (str, EventDispatcher)):
        return x
    raise ValueError(f"want an event dispatcher or its name, got {x!r}")


Int: Spec = Spec(int, "Int")
Float: Spec = Spec(float, "Float")
Bool: Spec = Spec(bool, "Bool")
Callable: Spec = Spec(_callable, "Callable")
EventDispatcherInstance: Spec = Spec(_dispatcher, "EventDispatcherInstance")
