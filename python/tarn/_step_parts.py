"""One layer as the step operators take it: its weights, its attentions, and the settings
that must not change meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from tarn import _tables as tables
from tarn._fused import dropout_of, has_no_hooks, linears, plain_norm
from tarn.events import AttentionEvent, Event, QKVEvent

_DENOMINATORS = ("exact", "compat", "none")
_NOTHING: dict[str, Any] = {}
# Arguments for linear attention where an operator computes only full attention.
UNREAD = ("elu1", "exact", 1e-6)
# The attributes that every module has.
_OF_MODULES = frozenset(vars(torch.nn.Module()))


@dataclass(frozen=True)
class Memory:
    """The recurrent form of layers that one operator steps: its name, the names of a
    state's tensors, its arguments for the attention, whether states grow."""

    operator: str
    names: tuple[str, str]
    arguments: tuple[Any, ...]
    grows: bool
    reads: bool = False  # whether it also reads a decoder's memory


@dataclass(frozen=True)
class Softmax:
    """An operator's argument for full attention."""

    temperature: float | None


class Part:
    """One layer of an encoder, or of a decoder, which also reads a memory."""

    def __init__(self, layer: Any) -> None:
        cross = getattr(layer, "cross_attention", None)
        attention = layer.attention if cross is None else layer.self_attention
        inner = attention.inner_attention
        want(says_one_call(attention))
        want(getattr(inner, "steps_by_heads", False))
        want(dropout_of(layer.dropout) is not None)
        self.attention, self.inner, self.heads = attention, inner, attention.n_heads
        # For each dropout: the attributes that hold `training`, and those that hold p.
        self.dropouts = [(layer.dropout.__dict__, layer.dropout.__dict__)]
        self.listened: list[tuple[Any, type[Event], Any]] = [
            (attention.event_dispatcher, QKVEvent, attention)
        ]
        norms = layer._norms()
        self.kind = _kind_of(layer, norms)
        maps = _maps(layer, attention)
        self.modules = [attention, *norms, layer.dropout, *maps]
        self.parents = [layer._modules, attention._modules]
        self.looked_at = _settings_of(layer, attention, norms)
        self.places = _places(maps, norms[0], norms[-1])
        widths = [maps[i].weight.shape[0] // self.heads for i in (0, 2)]
        self.memory: Memory | None = None
        arguments = self._take_inner(inner)
        if isinstance(arguments, Softmax):
            names, one = ("keys", "values"), (arguments.temperature,)
            self.memory = Memory("full_layers_step", names, one, True)
            self.facts = inner.facts_of(self.heads, *widths, torch.float32)
        elif arguments is not None:
            self.memory = Memory("linear_layers_step", ("S", "z"), arguments, False)
            self.facts = inner.facts_of(inner.arguments(), self.heads, *widths)
        if cross is not None:
            self._take_cross(layer, cross, arguments, widths)
        want(all(has_no_hooks(module) for module in self.modules))

    def _take_inner(self, inner: Any) -> Softmax | tuple[str, str, float] | None:
        """The operator's arguments for an attention that it computes with the layers;
        None for any other attention."""
        if not says_one_call(inner) or not has_no_hooks(inner):
            return None
        if hasattr(inner, "softmax_temp"):
            found: Softmax | tuple[str, str, float] = Softmax(inner.softmax_temp)
            own, settings = inner.dropout, [(inner, "softmax_temp"), (inner, "event_dispatcher")]
            self.dropouts.append((inner.__dict__, own.__dict__))
            self.listened.append((inner.event_dispatcher, AttentionEvent, inner))
        else:
            arguments = _linear_arguments(inner)
            if arguments is None:
                return None
            found, own = arguments, inner.feature_map
            settings = [(inner, "eps"), (inner, "compat"), (inner, "denominator")]
            settings += [(own, name) for name in vars(own) if name not in _OF_MODULES]
        self.modules += [inner, own]
        self.parents.append(inner._modules)
        self.looked_at += [(module.__dict__, name) for module, name in settings]
        return found

    def _take_cross(self, layer: Any, cross: Any, own: Any, widths: list[int]) -> None:
        """The attention to a memory, which the operator reads between the others."""
        want(self.memory is not None and says_one_call(cross) and cross.n_heads == self.heads)
        assert self.memory is not None
        inner, norm = cross.inner_attention, layer.norm2
        maps = linears(cross.query_projection, cross.out_projection)
        read = self._take_inner(inner)
        want(bool(maps) and read is not None)
        full = isinstance(read, Softmax)
        # One operator takes one setting of each kind.
        want(isinstance(own, Softmax) != full or own == read)
        linear = own if full else read
        linear = UNREAD if isinstance(linear, Softmax) else linear
        softmax = read if full else own
        temperature = softmax.temperature if isinstance(softmax, Softmax) else None
        kinds = ("full" if self.memory.grows else "linear", "full" if full else "linear")
        arguments = (*kinds, *linear, temperature)  # type: ignore[misc]
        self.memory = replace(
            self.memory, operator="decoder_layers_step", arguments=arguments, reads=True
        )
        d_key, d_value = widths
        if full:
            self.memory_kind, self.memory_names = inner.memory_kind, ("keys", "values")
            facts = {"heads": self.heads, "d_key": d_key, "dtype": str(torch.float32)}
        else:
            self.memory_kind, self.memory_names = inner.kind, ("S", "z")
            facts = inner.facts_of(inner.arguments(), self.heads, d_key, d_value)
        self.memory_facts = facts
        self.modules += [cross, *maps]
        self.parents.append(cross._modules)
        self.listened.append((cross.event_dispatcher, QKVEvent, cross))
        self.looked_at += [(cross.__dict__, "n_heads"), (cross.__dict__, "event_dispatcher")]
        for module in (*maps, norm):
            self.places += [(module._parameters, "weight"), (module._parameters, "bias")]


def _kind_of(layer: Any, norms: Sequence[Any]) -> tuple[str, str, float, bool]:
    want(layer.plain_sums)
    facts = [plain_norm(norm) for norm in norms]
    if None in facts or layer.activation_name is None:
        raise LookupError
    kinds = {(fact["kind"], fact["eps"]) for fact in facts}  # type: ignore[index]
    want(len(kinds) == 1)
    return layer.activation_name, *kinds.pop(), layer.pre_norm


def _maps(layer: Any, attention: Any) -> list[torch.nn.Linear]:
    """The four projections and the two or three of the feed-forward part."""
    want(layer.part.kernel)
    gated = layer.linear3 is not None
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


# The place of a value: a dictionary and the name in it.
Place = tuple[dict[str, Any], str]


def _settings_of(layer: Any, attention: Any, norms: Sequence[Any]) -> list[Place]:
    """The places of the settings that are no modules and may be changed."""
    found = [(layer, "activation"), (layer, "pre_norm"), (attention, "n_heads")]
    found += [(layer, "norm_place"), (layer, "residual_factor")]
    found += [(layer, "parallel_residual")]
    found += [(attention, "event_dispatcher"), *((norm, "eps") for norm in norms)]
    return [(module.__dict__, name) for module, name in found]


def _places(maps: list[torch.nn.Linear], norm1: Any, norm2: Any) -> list[Place]:
    """The places of the weights, in the operators' order; an empty dict for a missing one."""
    found: list[Place] = []
    for module in (*maps[:4], norm1, *maps[4:6]):
        found += [(module._parameters, "weight"), (module._parameters, "bias")]
    gate = maps[6]._parameters if len(maps) == 7 else _NOTHING
    found.append((gate, "weight"))
    return found + [(norm2._parameters, "weight"), (norm2._parameters, "bias")]


def _linear_arguments(inner: Any) -> tuple[str, str, float] | None:
    """feature_map, denominator and eps of a linear attention that the operator
    computes; None for any other."""
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
