"""Events: dispatchers, filters, and that events without listeners cost nothing."""

import copy
import gc
import pickle
import weakref

import pytest
import torch

from tarn.attention import AttentionLayer, FullAttention
from tarn.events import AttentionEvent, Event, EventDispatcher, IntermediateOutput, QKVEvent
from tarn.events.filters import CallableEventFilter, event_class, from_layer, layer_name_contains

A, B = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)


def heard(*filters):
    """A dispatcher whose one handler collects events under these filters."""
    dispatcher, events = EventDispatcher(), []

    def handler(event):
        events.append(event)

    for each in filters:
        dispatcher.listen(each, handler)
    return dispatcher, events, handler


def test_payloads():
    q, k, v = torch.rand(3, 1).unbind(0)
    event = QKVEvent(A, q, k, v)
    assert (event.source, event.queries, event.keys, event.values) == (A, q, k, v)
    assert AttentionEvent(A, q).attention_matrix is q
    assert IntermediateOutput(A, q, 3).layer == 3 and IntermediateOutput(A, q).x is q


def test_dispatch_remove_clear():
    dispatcher, events, handler = heard(AttentionEvent)
    matrix = torch.zeros(1)
    dispatcher.dispatch(AttentionEvent(A, matrix))
    dispatcher.dispatch(Event(A))
    assert len(events) == 1 and events[0].attention_matrix is matrix
    dispatcher.remove(handler)
    dispatcher.remove(handler)
    dispatcher.dispatch(AttentionEvent(A, matrix))
    assert len(events) == 1
    dispatcher.listen(Event, handler)
    dispatcher.clear()
    dispatcher.dispatch(Event(A))
    assert len(events) == 1


def test_listening_again_replaces_the_filter():
    dispatcher, events, handler = heard(AttentionEvent, from_layer(A))
    of_b = AttentionEvent(B, torch.zeros(1))
    dispatcher.dispatch(of_b)
    assert not events and not dispatcher.has_listeners(AttentionEvent, B)
    dispatcher.dispatch(Event(A))
    assert len(events) == 1
    dispatcher.listen(from_layer(A) | AttentionEvent, handler)
    dispatcher.dispatch(of_b)
    dispatcher.dispatch(AttentionEvent(A, torch.zeros(1)))
    assert len(events) == 3, "once for an event that both parts let through"


def test_handlers_keep_their_first_place():
    dispatcher, order = EventDispatcher(), []
    first, second = (lambda event: order.append(1)), (lambda event: order.append(2))
    dispatcher.listen(Event, first)
    dispatcher.listen(Event, second)
    dispatcher.listen(AttentionEvent, first)
    dispatcher.dispatch(AttentionEvent(A, torch.zeros(1)))
    assert order == [1, 2]


def test_a_custom_dispatcher_receives_every_event():
    class Recorder(EventDispatcher):
        def __init__(self):
            super().__init__()
            self.seen = []

        def dispatch(self, event):
            self.seen.append(type(event))

    own = Recorder()
    layer = AttentionLayer(FullAttention(event_dispatcher=own), 8, 2, event_dispatcher=own)
    x = torch.randn(1, 3, 8)
    layer(x, x, x)
    assert own.seen == [QKVEvent, AttentionEvent]


class Equal:
    """An object that equals everything and cannot be hashed."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other):
        return True


@pytest.mark.parametrize("source", [7, 10**40, "encoder", ("layer", 3), None, Equal(), A])
def test_any_object_is_a_source(source):
    wanted = from_layer(source)
    assert wanted(Event(source)) and wanted.verdict(Event, source)
    for other in (B, Equal(), "other", 8):
        assert not wanted(Event(other)) and not wanted.verdict(Event, other)
    assert layer_name_contains(A, "")(Event(source)) is (source is A)


def test_handlers_may_change_the_listeners():
    dispatcher, events = EventDispatcher(), []

    def once(event):
        events.append(event)
        dispatcher.remove(once)

    dispatcher.listen(Event, once)
    dispatcher.dispatch(Event(A))
    dispatcher.dispatch(Event(A))
    assert len(events) == 1


def test_listen_refuses_what_cannot_work():
    dispatcher = EventDispatcher()
    with pytest.raises(TypeError, match="event_filter"):
        dispatcher.listen("attention", print)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="event_handler"):
        dispatcher.listen(Event, None)  # type: ignore[arg-type]
    assert not dispatcher.has_listeners(Event, A)


def test_filters_combine():
    matrix = torch.zeros(1)
    of_a, of_b = AttentionEvent(A, matrix), QKVEvent(B, matrix, matrix, matrix)
    cases = [
        (event_class(AttentionEvent), True, False),
        (from_layer(B), False, True),
        (event_class(Event) & from_layer(A), True, False),
        (AttentionEvent & from_layer(A), True, False),
        (from_layer(A) & AttentionEvent, True, False),
        (from_layer(A) | QKVEvent, True, True),
        (QKVEvent | from_layer(A), True, True),
        (~from_layer(A), False, True),
        (~(from_layer(A) | from_layer(B)), False, False),
        (from_layer(A) & (lambda event: event.attention_matrix is matrix), True, False),
        ((lambda event: True) & from_layer(B), False, True),
    ]
    for each, for_a, for_b in cases:
        assert (each(of_a), each(of_b)) == (for_a, for_b)
        # The verdict without the event never rules out an event that passes.
        assert each.verdict(type(of_a), A) in ((True, None) if for_a else (False, None))
        assert each.verdict(type(of_b), B) in ((True, None) if for_b else (False, None))
    with pytest.raises(TypeError):
        from_layer(A) & 3


def test_short_circuit():
    def never(event):
        raise AssertionError("asked although the answer was known")

    assert not (from_layer(B) & never)(Event(A))
    assert (from_layer(A) | never)(Event(A))


def test_layer_names():
    root = torch.nn.Sequential(torch.nn.Sequential(A), torch.nn.Sequential(B))
    wanted = layer_name_contains(root, "1.0")
    assert wanted(Event(B)) and not wanted(Event(A))
    assert not wanted(Event(torch.nn.Identity()))


def test_filters_keep_no_module_alive():
    module = torch.nn.Linear(1, 1)
    filters = from_layer(module), layer_name_contains(module, "")
    alive = weakref.ref(module)
    del module
    gc.collect()
    assert alive() is None and not any(each(Event(A)) for each in filters)


def test_has_listeners_is_exact_for_classes_and_layers():
    dispatcher, _, _ = heard()
    assert not dispatcher.has_listeners(AttentionEvent, A)
    dispatcher, _, _ = heard(QKVEvent | (AttentionEvent & from_layer(A)))
    assert dispatcher.has_listeners(QKVEvent, B)
    assert dispatcher.has_listeners(AttentionEvent, A)
    assert not dispatcher.has_listeners(AttentionEvent, B)
    dispatcher, _, _ = heard(CallableEventFilter(lambda event: False))
    assert dispatcher.has_listeners(AttentionEvent, A), "only the event can tell"


def test_global_dispatchers_copies_and_pickles():
    default = EventDispatcher.get()
    named = EventDispatcher.get("test_events")
    assert EventDispatcher.get("") is default and EventDispatcher.get(named) is named
    assert named is not default and EventDispatcher.get("test_events") is named
    for dispatcher in (default, named):
        assert copy.deepcopy(dispatcher) is dispatcher
        assert pickle.loads(pickle.dumps(dispatcher)) is dispatcher
    own, events, _ = heard(Event)
    assert pickle.loads(pickle.dumps(own)) is not own, "and its handlers stay behind"
