"""What layers are, found out once, so that a token can go through them in one call.

To ask a dozen modules of each layer at every token whether anybody could tell would
cost more than the step. It is asked once (`Plan`); afterwards the modules only have
to be the same objects of the same classes with the same settings, still without
hooks: whole lists are compared. Weights are read anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import contains
from typing import Any

import torch

from tarn import _tables as tables
from tarn._fused import dropout_of, linears, plain_norm, serves, unheard
from tarn.events import AttentionEvent, Event, QKVEvent

_DENOMINATORS = ("exact", "compat", "none")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_NOTHING: dict[str, Any] = {}


@dataclass(frozen=True)
class Memory:
    """How layers remember that one operator steps: its name, the names of what a
    state holds, what the operator is told of the attention, whether states grow."""

    operator: str
    names: tuple[str, str]
    arguments: tuple[Any, ...]
    grows: bool


class Plan:
    """What was found out about layers that follow each other and are of one kind.

    owner: the stack that calls them, where one call stands for all of its layers;
    these then have to vouch for their own call. Raises LookupError where they must
    go part by part."""

    def __init__(self, layers: Sequence[Any], owner: Any = None) -> None:
        parts = [_Part(layer) for layer in layers]
        want(bool(parts))
        first = parts[0]
        self.parts = parts
        self.kind, self.heads, self.memory = first.kind, first.heads, first.memory
        for part in parts:
            want((part.kind, part.heads, part.memory) == (self.kind, self.heads, self.memory))
        self.modules = modules = [module for part in parts for module in part.modules]
        self.parents = [parent for part in parts for parent in part.parents]
        self.looked_at = [place for part in parts for place in part.looked_at]
        # Parameters of a norm after them that the call may make.
        self.last: dict[str, Any] | None = None
        self.steps: list[dict[str, Any]] = []
        if owner is not None:
            want(self.memory is not None)
            want(all(says_one_call(layer) and unheard(layer) for layer in layers))
            modules += layers
            self.steps = [layer.__dict__ for layer in layers]
            self.parents += [owner.layers._modules, owner._modules]
            self._take_norm(owner.norm)
        # The same objects of the same classes, by their parents' lists of children.
        self.children = [list(parent.values()) for parent in self.parents]
        self.classes = [type(module) for module in modules]
        self.hooks = [getattr(module, name) for module in modules for name in _HOOKS]
        self.attributes = [module.__dict__ for module in modules]
        self.settings = [values.get(name) for values, name in self.looked_at]
        self.dropouts = [dropout for part in parts for dropout in part.dropouts]
        self.listened = [event for part in parts for event in part.listened]
        self.places = [place for part in parts for place in part.places]
        self.operator: Any = None
        if self.memory is not None:
            self.operator = getattr(torch.ops.tarn, self.memory.operator).default
        want(serves(*(weight for weight in self.weights() if weight is not None)))

    def _take_norm(self, norm: Any) -> None:
        """The norm after the layers, into the call where it is of their kind."""
        if norm is None:
            return
        facts = plain_norm(norm)
        if facts is None or (facts["kind"], facts["eps"]) != self.kind[1:3]:
            return
        self.last = norm._parameters
        self.modules.append(norm)
        self.looked_at.append((norm.__dict__, "eps"))

    def holds(self) -> bool:
        """Whether all is as it was found."""
        return (
            not any(map(contains, self.attributes, repeat("forward")))
            and not any(map(contains, self.steps, repeat("step")))
            and [list(parent.values()) for parent in self.parents] == self.children
            and list(map(type, self.modules)) == self.classes
            and not any(self.hooks)
            and [values.get(name) for values, name in self.looked_at] == self.settings
        )

    def disturbed(self) -> bool:
        """Whether it may not be used just now."""
        for module, dropout in self.dropouts:
            if module["training"] and dropout["p"] != 0:
                return True
        for dispatcher, event, source in self.listened:
            if dispatcher.has_listeners(event, source):
                return True
        return False

    def weights(self) -> list[Any]:
        """The tensors of all layers in the operators' order."""
        return [parameters.get(name) for parameters, name in self.places]


class _Part:
    """One layer."""

    def __init__(self, layer: Any) -> None:
        attention, inner = layer.attention, layer.attention.inner_attention
        want(says_one_call(attention))
        want(getattr(inner, "steps_by_heads", False))
        want(dropout_of(layer.dropout) is not None)
        self.attention, self.inner, self.heads = attention, inner, attention.n_heads
        # Whose dropout: the module that is in training, where p stands.
        self.dropouts = [(layer.dropout.__dict__, layer.dropout.__dict__)]
        self.listened: list[tuple[Any, type[Event], Any]] = [
            (attention.event_dispatcher, QKVEvent, attention)
        ]
        self.kind = _kind_of(layer)
        maps = _maps(layer)
        self.modules = [attention, layer.norm1, layer.norm2, layer.dropout, *maps]
        self.parents = [layer._modules, attention._modules]
        self.looked_at = _settings_of(layer)
        self.places = _places(maps, layer.norm1, layer.norm2)
        widths = [maps[i].weight.shape[0] // self.heads for i in (0, 2)]
        self.memory = None
        if says_one_call(inner) and unheard(inner):
            self._take_inner(inner, *widths)
        want(all(unheard(module) for module in self.modules))

    def _take_inner(self, inner: Any, d_key: int, d_value: int) -> None:
        """An attention that an operator computes with the layers, if it is one."""
        if getattr(inner, "kind", None) == "full":
            self.memory = Memory("full_layers_step", ("keys", "values"), (inner.softmax_temp,), True)
            self.facts = inner.facts_of(self.heads, d_key, d_value, torch.float32)
            own, settings = inner.dropout, [(inner, "softmax_temp"), (inner, "event_dispatcher")]
            self.dropouts.append((inner.__dict__, own.__dict__))
            self.listened.append((inner.event_dispatcher, AttentionEvent, inner))
        else:
            arguments = _linear_arguments(inner)
            if arguments is None:
                return
            self.memory = Memory("linear_layers_step", ("S", "z"), arguments, False)
            self.facts = inner.facts_of(inner.arguments(), self.heads, d_key, d_value)
            own = inner.feature_map
            settings = [(inner, "eps"), (inner, "compat"), (inner, "denominator")]
            settings += [(own, name) for name in vars(own)]
        self.modules += [inner, own]
        self.parents.append(inner._modules)
        self.looked_at += [(module.__dict__, name) for module, name in settings]


def _kind_of(layer: Any) -> tuple[str, str, float, bool]:
    first, second = plain_norm(layer.norm1), plain_norm(layer.norm2)
    if first is None or second is None or layer.activation_name is None:
        raise LookupError
    want(first["eps"] == second["eps"] and first["kind"] == second["kind"])
    return layer.activation_name, first["kind"], first["eps"], layer.pre_norm


def _maps(layer: Any) -> list[torch.nn.Linear]:
    """The four projections and the two or three of the feed-forward part."""
    attention, gated = layer.attention, layer.linear3 is not None
    projections = linears(
        attention.query_projection,
        attention.key_projection,
        attention.value_projection,
        attention.out_projection,
    )
    parts = (layer.linear1, layer.linear2, *((layer.linear3,) if gated else ()))
    forward = linears(*parts, bias=not gated)
    want(bool(projections and forward))
    return projections + forward


def _settings_of(layer: Any) -> list[tuple[dict[str, Any], str]]:
    """Where stands what is no module and may be set anew."""
    found = [(layer, "activation"), (layer, "pre_norm"), (layer.attention, "n_heads")]
    found += [(layer.attention, "event_dispatcher"), (layer.norm1, "eps"), (layer.norm2, "eps")]
    return [(module.__dict__, name) for module, name in found]


def _places(maps: list[torch.nn.Linear], norm1: Any, norm2: Any) -> list[tuple[dict[str, Any], str]]:
    """Where the weights stand, in the operators' order; none: in an empty dict."""
    found: list[tuple[dict[str, Any], str]] = []
    for module in (*maps[:4], norm1, *maps[4:6]):
        found += [(module._parameters, "weight"), (module._parameters, "bias")]
    gate = maps[6]._parameters if len(maps) == 7 else _NOTHING
    found.append((gate, "weight"))
    return found + [(norm2._parameters, "weight"), (norm2._parameters, "bias")]


def _linear_arguments(inner: Any) -> tuple[str, str, float] | None:
    """feature_map, denominator and eps of a linear attention that the operator
    computes; None of another."""
    arguments = inner.arguments()
    name, denominator = arguments["feature_map"], arguments["denominator"]
    if len(arguments) != 3 or denominator not in _DENOMINATORS or not isinstance(name, str):
        return None
    elementwise = tables.feature_maps()[name]["elementwise"]
    return (name, denominator, arguments["eps"]) if elementwise else None


def says_one_call(module: Any) -> bool:
    """Whether a module's own class, not one it derives from, vouches for its step."""
    return "_one_call" in type(module).__dict__


def want(fact: bool) -> None:
    """Raises LookupError where the layers must go part by part."""
    if not fact:
        raise LookupError
