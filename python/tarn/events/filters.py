"""Predicates over events that combine with &, | and ~."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, Callable

import torch

from tarn.events.event import Event


class EventFilter:
    """A predicate over events. `a & b`, `a | b` and `~a` are filters too, and
    short-circuit; the other side of & and | may be an event class or a function
    of an event."""

    def __call__(self, event: Event) -> bool:
        raise NotImplementedError(f"{type(self).__name__}: __call__ is not defined")

    def verdict(self, event_class: type[Event], source: Any) -> bool | None:
        """What the answer will be for any event of this class and source; None
        where only the event itself can tell."""
        return None

    def __and__(self, other: Any) -> EventFilter:
        return _combined(_And, self, other)

    def __rand__(self, other: Any) -> EventFilter:
        return _combined(_And, other, self)

    def __or__(self, other: Any) -> EventFilter:
        return _combined(_Or, self, other)

    def __ror__(self, other: Any) -> EventFilter:
        return _combined(_Or, other, self)

    def __invert__(self) -> EventFilter:
        return _Not(self)


def as_filter(value: Any) -> EventFilter | None:
    """The filter for an event class, a filter or a function; None for anything else."""
    if isinstance(value, EventFilter):
        return value
    if isinstance(value, type) and issubclass(value, Event):
        return event_class(value)
    return CallableEventFilter(value) if callable(value) else None


def _combined(kind: Callable[..., EventFilter], left: Any, right: Any) -> Any:
    first, second = as_filter(left), as_filter(right)
    return NotImplemented if first is None or second is None else kind(first, second)


class _And(EventFilter):
    def __init__(self, first: EventFilter, second: EventFilter):
        self._parts = first, second

    def __call__(self, event: Event) -> bool:
        return bool(self._parts[0](event) and self._parts[1](event))

    def verdict(self, event_class: type[Event], source: Any) -> bool | None:
        verdicts = [part.verdict(event_class, source) for part in self._parts]
        if False in verdicts:
            return False
        return None if None in verdicts else True


class _Or(EventFilter):
    def __init__(self, first: EventFilter, second: EventFilter):
        self._parts = first, second

    def __call__(self, event: Event) -> bool:
        return bool(self._parts[0](event) or self._parts[1](event))

    def verdict(self, event_class: type[Event], source: Any) -> bool | None:
        verdicts = [part.verdict(event_class, source) for part in self._parts]
        if True in verdicts:
            return True
        return None if None in verdicts else False


class _Not(EventFilter):
    def __init__(self, inner: EventFilter):
        self._inner = inner

    def __call__(self, event: Event) -> bool:
        return not self._inner(event)

    def verdict(self, event_class: type[Event], source: Any) -> bool | None:
        inner = self._inner.verdict(event_class, source)
        return None if inner is None else not inner


class CallableEventFilter(EventFilter):
    """A function of an event as a filter."""

    def __init__(self, event_filter: Callable[[Any], object]):
        self._event_filter = event_filter

    def __call__(self, event: Event) -> bool:
        return bool(self._event_filter(event))


class _ClassFilter(EventFilter):
    def __init__(self, klass: type[Event]):
        self._klass = klass

    def __call__(self, event: Event) -> bool:
        return isinstance(event, self._klass)

    def verdict(self, event_class: type[Event], source: Any) -> bool | None:
        return issubclass(event_class, self._klass)


def _reference(source: Any) -> Callable[[], Any]:
    """A function that returns `source`. An object that can be referred to weakly is
    not kept alive; a number, a string or a tuple is, so that no other object takes
    its place in memory."""
    try:
        return weakref.ref(source)
    except TypeError:
        return lambda: source


class _SourceFilter(EventFilter):
    """Sources by identity, whatever they are."""

    def __init__(self, sources: Iterable[Any]):
        self._sources = {id(source): _reference(source) for source in sources}

    def _holds(self, source: Any) -> bool:
        reference = self._sources.get(id(source))
        return reference is not None and reference() is source

    def __call__(self, event: Event) -> bool:
        return self._holds(event.source)

    def verdict(self, event_class: type[Event], source: Any) -> bool | None:
        return self._holds(source)


class LayerNameEventFilter(_SourceFilter):
    """Events of the modules under root whose dotted name name_filter accepts.
    Names are those at the time of the call; modules are not kept alive."""

    def __init__(self, root: torch.nn.Module, name_filter: Callable[[str], bool]):
        super().__init__([m for name, m in root.named_modules() if name_filter(name)])


def event_class(klass: type[Event]) -> EventFilter:
    """Events that are instances of klass."""
    return _ClassFilter(klass)


def from_layer(layer: Any) -> EventFilter:
    """Events whose source is this very object: a module, or whatever else sends
    events."""
    return _SourceFilter([layer])


def layer_name_contains(root: torch.nn.Module, name: str) -> EventFilter:
    """Events of the modules under root with `name` in their dotted name, such
    as "layers.2.attention"."""
    return LayerNameEventFilter(root, lambda dotted: name in dotted)
