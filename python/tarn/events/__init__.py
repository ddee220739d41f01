"""Events: they report what happens inside a transformer to the listeners."""

from tarn.events.event import AttentionEvent, Event, IntermediateOutput, QKVEvent
from tarn.events.event_dispatcher import EventDispatcher

__all__ = ["AttentionEvent", "Event", "EventDispatcher", "IntermediateOutput", "QKVEvent"]
