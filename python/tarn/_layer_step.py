"""One token through a layer in one call where its attention is linear
(`torch.ops.tarn.linear_layer_step`), in three where it is another: a recurrent step
costs less than the dozen operators that it is made of take to be called. Only where
nobody could tell: no gradient is recorded, float32 on the CPU, modules of the
classes that this package builds, no listener, no dropout. Anything else goes part
by part.

To ask all that of a dozen modules at every token would cost more than the step. A
layer is therefore asked once (`_Plan`); afterwards its modules only have to be the
same objects of the same classes, still without hooks. Weights are read anew."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch

from tarn import _tables as tables
from tarn._fused import dropout_of, linears, plain_norm, serves, unheard
from tarn.events import QKVEvent
from tarn.recurrent._state import AttentionState

_DENOMINATORS = ("exact", "compat", "none")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
# A layer that could not be planned is asked again after so many tokens.
_PATIENCE = 128

Step = tuple[torch.Tensor, Any]


def layer_step(layer: Any, x: torch.Tensor, state: Any) -> Step | None:
    """x [N, D] and the state of an encoder layer -> ([N, D], new state); None where
    the layer must go part by part."""
    if torch.is_grad_enabled() or x.dim() != 2 or torch.compiler.is_compiling():
        return None
    if not serves(x):
        return None
    plan = _plans.get(layer)
    if not isinstance(plan, _Plan) or not plan.holds(layer):
        plan = _plan_of(layer)
    if plan is None or plan.disturbed(layer):
        return None
    return plan.step(x, state)


class _Plan:
    """What was found out about one layer."""

    def __init__(self, layer: Any) -> None:
        """Raises LookupError where the layer must go part by part."""
        attention, inner = layer.attention, layer.attention.inner_attention
        _want(_says_one_call(attention))
        _want(getattr(inner, "steps_by_heads", False))
        self.attention, self.inner, self.heads = attention, inner, attention.n_heads
        self.kind = self._kind_of(layer)
        self.linear = _linear_arguments(inner)
        maps = self._maps(layer)
        modules = [attention, layer.norm1, layer.norm2, *maps]
        if self.linear is not None:
            modules += [inner, inner.feature_map]
        _want(all(unheard(module) for module in modules))
        # The same objects of the same classes, by their parents' lists of children.
        self.parents = [layer._modules, attention._modules]
        self.children = [list(parent.values()) for parent in self.parents]
        self.modules, self.classes = modules, [type(module) for module in modules]
        self.hooks = [getattr(module, name) for module in modules for name in _HOOKS]
        self.attributes = [module.__dict__ for module in modules]
        self.settings = self._settings(layer)
        owners = [*maps[:4], layer.norm1, *maps[4:], layer.norm2]
        self.parameters = [module._parameters for module in owners]
        self.gated = len(maps) == 7
        weights = self.weights()
        _want(serves(*(weight for weight in weights if weight is not None)))
        self.widths = (weights[0].shape[0] // self.heads, weights[4].shape[0] // self.heads)
        if self.linear is not None:
            self.facts = inner.facts_of(inner.arguments(), self.heads, *self.widths)

    @staticmethod
    def _kind_of(layer: Any) -> tuple[str, str, float, bool]:
        first, second = plain_norm(layer.norm1), plain_norm(layer.norm2)
        if first is None or second is None or layer.activation_name is None:
            raise LookupError
        _want(first["eps"] == second["eps"] and first["kind"] == second["kind"])
        return layer.activation_name, first["kind"], first["eps"], layer.pre_norm

    @staticmethod
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
        _want(bool(projections and forward))
        return projections + forward

    def _settings(self, layer: Any) -> tuple:
        """What is no module and may be set anew."""
        inner = self.inner.__dict__ if self.linear is not None else {}
        norms = layer.norm1.eps, layer.norm2.eps
        own = inner.get("eps"), inner.get("compat"), inner.get("denominator")
        return layer.activation, layer.pre_norm, self.attention.n_heads, *norms, *own

    def holds(self, layer: Any) -> bool:
        """Whether all is as it was found."""
        return (
            [list(parent.values()) for parent in self.parents] == self.children
            and list(map(type, self.modules)) == self.classes
            and not any(self.hooks)
            and not any(["forward" in attributes for attributes in self.attributes])
            and self._settings(layer) == self.settings
        )

    def disturbed(self, layer: Any) -> bool:
        """Whether it may not be used just now."""
        attention = self.attention
        if dropout_of(layer.dropout) != 0:
            return True
        return attention.event_dispatcher.has_listeners(QKVEvent, attention)

    def weights(self) -> list[Any]:
        """The tensors in the operators' order."""
        found: list[Any] = []
        for parameters in self.parameters:
            found.append(parameters["weight"])
            found.append(parameters.get("bias"))
        if not self.gated:
            found.insert(14, None)
        else:
            del found[15]  # the third map has no bias
        return found

    def step(self, x: torch.Tensor, state: Any) -> Step | None:
        weights = self.weights()
        try:
            if self.linear is not None:
                return self._linear_step(self.linear, x, state, weights)
            heads = torch.ops.tarn.layer_step_heads.default(x, weights, self.heads, *self.kind)
        except (TypeError, ValueError):
            return None  # moved to another dtype or device, or x of another width
        attended, new_state = self.attention.step_heads(*heads, state)
        out = torch.ops.tarn.layer_step_rest.default(
            x, attended, weights, self.heads, *self.kind
        )
        return out, new_state

    def _linear_step(
        self, linear: tuple, x: torch.Tensor, state: Any, weights: list
    ) -> Step | None:
        S = z = None
        if state is not None:
            if not isinstance(state, AttentionState):
                return None  # a pair
            if not state.fits(self.inner.kind, x.shape[0], self.facts):
                return None  # an error that the parts know how to tell
            S, z = state.tensors["S"], state.tensors["z"]
        out, S, z = torch.ops.tarn.linear_layer_step.default(
            x, S, z, weights, self.heads, *linear, *self.kind
        )
        if state is not None:
            steps = state.steps + 1
        else:
            steps = torch.ones(x.shape[0], dtype=torch.int64)
        return out, AttentionState(self.inner.kind, {"S": S, "z": z}, steps, self.facts)


_plans: WeakKeyDictionary[Any, _Plan | int] = WeakKeyDictionary()


def _plan_of(layer: Any) -> _Plan | None:
    """A new plan of a layer; None where there cannot be one, or was none a moment
    ago."""
    failed = _plans.get(layer)
    if isinstance(failed, int) and failed > 0:
        _plans[layer] = failed - 1
        return None
    try:
        plan = _Plan(layer)
    except (LookupError, AttributeError):
        _plans[layer] = _PATIENCE
        return None
    _plans[layer] = plan
    return plan


def _want(fact: bool) -> None:
    if not fact:
        raise LookupError


def _linear_arguments(inner: Any) -> tuple[str, str, float] | None:
    """feature_map, denominator and eps of a linear attention that the operator
    computes; None of another."""
    if not _says_one_call(inner) or not unheard(inner):
        return None
    arguments = inner.arguments()
    name, denominator = arguments["feature_map"], arguments["denominator"]
    if len(arguments) != 3 or denominator not in _DENOMINATORS or not isinstance(name, str):
        return None
    elementwise = tables.feature_maps()[name]["elementwise"]
    return (name, denominator, arguments["eps"]) if elementwise else None


def _says_one_call(module: Any) -> bool:
    """Whether a module's own class, not one it derives from, vouches for its step."""
    return "_one_call" in type(module).__dict__
