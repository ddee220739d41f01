"""Events: they report what goes on inside a transformer to whoever listens."""

from tarn.events.event import AttentionEvent, Event, IntermediateOutput, QKVEvent
from tarn.events.event_dispatcher import EventDispatcher

__all__ = ["AttentionEvent", "Event", "EventDispatcher", "IntermediateOutput", "QKVEvent"]
