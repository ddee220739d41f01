"""The dispatcher: it decides which handlers get which events."""

from __future__ import annotations

from typing import Any, Callable

from tarn.events.event import Event
from tarn.events.filters import EventFilter, as_filter

Handler = Callable[[Any], object]


class EventDispatcher:
    """Hands events to the handlers that listen for them.

        dispatcher = EventDispatcher.get()
        dispatcher.listen(AttentionEvent, handler)
        dispatcher.listen(QKVEvent & layer_name_contains(model, "layers.2"), other)

    A handler has one filter, the last it was registered with; `|` joins several
    into one. Handlers are called in the order of their first registration, in the
    thread that dispatches. A copy of a module keeps its dispatcher; pickling
    keeps the name, not the handlers. A derived class may override `dispatch`;
    it then gets every event.
    """

    _dispatchers: dict[str, EventDispatcher] = {}
    _own_dispatch = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "dispatch" in vars(cls):
            cls._own_dispatch = True

    def __init__(self) -> None:
        self._listeners: dict[Handler, EventFilter] = {}

    def listen(
        self,
        event_filter: type[Event] | EventFilter | Callable[[Event], bool],
        event_handler: Handler,
    ) -> None:
        """Calls event_handler(event) for events that pass event_filter: an event
        class, a filter of `tarn.events.filters` or a function. It replaces the
        filter that the handler had. Raises TypeError."""
        wanted = as_filter(event_filter)
        if wanted is None:
            raise TypeError(
                "listen: event_filter: want an event class or a callable, "
                f"got {type(event_filter).__name__}"
            )
        if not callable(event_handler):
            given = type(event_handler).__name__
            raise TypeError(f"listen: event_handler: want a callable, got {given}")
        self._listeners[event_handler] = wanted

    def remove(self, event_handler: Handler) -> None:
        """Ends the registration of event_handler; an unknown one is ignored."""
        self._listeners.pop(event_handler, None)

    def clear(self) -> None:
        """Ends all registrations."""
        self._listeners.clear()

    def dispatch(self, event: Event) -> None:
        """Calls the handlers that listen for this event."""
        # A handler may add or remove handlers: go through a copy.
        for handler, wanted in list(self._listeners.items()):
            if wanted(event):
                handler(event)

    def has_listeners(self, event_class: type[Event], source: Any) -> bool:
        """Whether an event of this class from this source may have a listener.
        False saves making the event: an attention matrix is only computed where
        this is True. Without listeners it costs one look-up in an empty dict."""
        if self._own_dispatch:
            return True  # what it does with an event is unknown
        if not self._listeners:
            return False
        return any(
            wanted.verdict(event_class, source) is not False for wanted in self._listeners.values()
        )

    @classmethod
    def get(cls, key: str | EventDispatcher = "") -> EventDispatcher:
        """The dispatcher of this name, made on first use; "" is the default one.
        A dispatcher is returned as it is."""
        if isinstance(key, EventDispatcher):
            return key
        if key not in cls._dispatchers:
            cls._dispatchers[key] = cls()
        return cls._dispatchers[key]

    def __deepcopy__(self, memo: dict[int, Any]) -> EventDispatcher:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        for key, dispatcher in self._dispatchers.items():
            if dispatcher is self:
                return EventDispatcher.get, (key,)
        return EventDispatcher, ()
