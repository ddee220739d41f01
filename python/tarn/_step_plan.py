"""What layers are, found out once, so that a token can go through them in one call.

To ask a dozen modules of each layer at every token whether anybody could tell would
cost more than the step. It is asked once (`Plan`); afterwards the modules only have
to be the same objects of the same classes with the same settings, still without
hooks: whole lists are compared. Weights are read anew."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import contains
from typing import Any

import torch

from tarn import _tables as tables
from tarn._fused import dropout_of, linears, plain_norm, serves, unheard
from tarn.events import QKVEvent

_DENOMINATORS = ("exact", "compat", "none")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_NOTHING: dict[str, Any] = {}


class Plan:
    """What was found out about layers that follow each other and are of one kind.

    owner: the stack that calls them, where one call stands for all of its layers;
    these then have to vouch for their own call. Raises LookupError where they must
    go part by part."""

    def __init__(self, layers: Sequence[Any], owner: Any = None) -> None:
        parts = [_Part(layer) for layer in layers]
        want(bool(parts))
        first = parts[0]
        self.parts, self.kind, self.heads, self.linear = (
            parts,
            first.kind,
            first.heads,
            first.linear,
        )
        for part in parts:
            want((part.kind, part.heads, part.linear) == (first.kind, first.heads, first.linear))
        self.modules = modules = [module for part in parts for module in part.modules]
        self.parents = [parent for part in parts for parent in part.parents]
        self.looked_at = [place for part in parts for place in part.looked_at]
        # Parameters of a norm after them that the call may make.
        self.last: dict[str, Any] | None = None
        self.steps: list[dict[str, Any]] = []
        if owner is not None:
            want(self.linear is not None)
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
        self.dropouts = [part.dropout for part in parts]
        self.listened = [(part.attention.event_dispatcher, part.attention) for part in parts]
        self.places = [place for part in parts for place in part.places]
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
        for dropout in self.dropouts:
            if dropout["training"] and dropout["p"] != 0:
                return True
        for dispatcher, attention in self.listened:
            if dispatcher.has_listeners(QKVEvent, attention):
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
        self.dropout = layer.dropout.__dict__
        self.kind = _kind_of(layer)
        self.linear = _linear_arguments(inner)
        maps = _maps(layer)
        self.modules = [attention, layer.norm1, layer.norm2, layer.dropout, *maps]
        if self.linear is not None:
            self.modules += [inner, inner.feature_map]
        want(all(unheard(module) for module in self.modules))
        self.parents = [layer._modules, attention._modules]
        if self.linear is not None:
            self.parents.append(inner._modules)
        self.looked_at = _settings_of(layer, inner if self.linear is not None else None)
        self.places = _places(maps, layer.norm1, layer.norm2)
        widths = [maps[i].weight.shape[0] // self.heads for i in (0, 2)]
        if self.linear is not None:
            self.facts = inner.facts_of(inner.arguments(), self.heads, *widths)


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


def _settings_of(layer: Any, inner: Any) -> list[tuple[dict[str, Any], str]]:
    """Where stands what is no module and may be set anew."""
    found = [(layer, "activation"), (layer, "pre_norm"), (layer.attention, "n_heads")]
    found += [(layer.attention, "event_dispatcher"), (layer.norm1, "eps"), (layer.norm2, "eps")]
    if inner is not None:
        found += [(inner, "eps"), (inner, "compat"), (inner, "denominator")]
        found += [(inner.feature_map, name) for name in vars(inner.feature_map)]
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
    if not says_one_call(inner) or not unheard(inner):
        return None
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
