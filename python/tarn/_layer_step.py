"""One token through layers: in one call where their attention is linear or full
(`torch.ops.tarn.linear_layers_step`, `full_layers_step`), in three calls a layer for
other kinds, because a recurrent step costs less than the calls of the dozen operators
of each layer. It is one call only where no caller could see the difference: no gradient
is recorded, float32 on the CPU, modules of the classes that this package builds, no
listener, no dropout. Anything else goes part by part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch

from tarn._fused import normed, serves
from tarn._step_parts import Memory
from tarn._step_plan import Plan
from tarn.events import IntermediateOutput
from tarn.recurrent._state import AttentionState

# Tokens after which planning is tried again where it was not possible.
_PATIENCE = 128

Step = tuple[torch.Tensor, Any]
Steps = tuple[torch.Tensor, list[Any]]


def layer_step(layer: Any, x: torch.Tensor, state: Any) -> Step | None:
    """x [N, D] and the state of an encoder layer -> ([N, D], new state); None where
    the layer must go part by part."""
    if not _may_be_one(x):
        return None
    plan = _plan_for(layer, None)
    if plan is None or plan.disturbed():
        return None
    if plan.memory is not None:
        found = _steps(plan, plan.memory, x, [state])
        return found and (found[0], found[1][0])
    return _other_step(plan, x, state)


def stack_step(stack: Any, x: torch.Tensor, states: Sequence[Any] | None) -> Steps | None:
    """x [N, D] and the states of a stack of encoder layers -> ([N, D], new states);
    None where its layers must be called one by one."""
    if not _may_be_one(x):
        return None
    plan = _plan_for(stack, stack)
    if plan is None or plan.disturbed() or plan.memory is None or plan.memory.reads:
        return None
    if stack.event_dispatcher.has_listeners(IntermediateOutput, stack):
        return None
    if states is None:
        states = [None] * len(plan.parts)
    elif not isinstance(states, (list, tuple)) or len(states) != len(plan.parts):
        return None  # an error that the layers report
    found = _steps(plan, plan.memory, x, states)
    if found is None or plan.last is not None:
        return found
    return normed(stack.norm, found[0]), found[1]


def decoder_step(
    stack: Any, x: torch.Tensor, states: Any, memory: torch.Tensor | None = None
) -> Steps | None:
    """Does what stack_step does for a stack of decoder layers, whose states are pairs: that
    of the attention to the past (or None) and that of the memory. memory: the tensor that
    the latter were built from, where the caller gives it again."""
    if not _may_be_one(x) or not isinstance(states, (list, tuple)):
        return None
    plan = _plan_for(stack, stack)
    if plan is None or plan.memory is None or not plan.memory.reads or plan.disturbed():
        return None
    if stack.event_dispatcher.has_listeners(IntermediateOutput, stack):
        return None
    if len(states) != len(plan.parts):
        return None
    read = _memories(plan, x.shape[0], states, memory)
    if read is None:
        return None
    found = _steps(plan, plan.memory, x, [state[0] for state in states], read)
    if found is None:
        return None
    out = found[0] if plan.last is not None else normed(stack.norm, found[0])
    return out, [[new, state[1]] for new, state in zip(found[1], states, strict=True)]


def _memories(
    plan: Plan, rows: int, states: Sequence[Any], memory: torch.Tensor | None
) -> tuple[list[torch.Tensor], list[torch.Tensor]] | None:
    """The two tensors of every layer's memory; None where they do not fit."""
    first: list[torch.Tensor] = []
    second: list[torch.Tensor] = []
    for part, pair in zip(plan.parts, states, strict=True):
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            return None
        held = pair[1]
        if not isinstance(held, AttentionState):
            return None
        if not held.fits(part.memory_kind, rows, part.memory_facts):
            return None
        if memory is not None and not _built_from(held, memory):
            return None  # an error that the parts report
        if not _all_kept(held):
            return None
        first.append(held.tensors[part.memory_names[0]])
        second.append(held.tensors[part.memory_names[1]])
    return first, second


def _built_from(state: AttentionState, memory: torch.Tensor) -> bool:
    if state.source is None or memory.is_inference():
        return False
    return state.source[0]() is memory and state.source[1] == memory._version


def _all_kept(state: AttentionState) -> bool:
    """Whether every key of a memory is kept; computed once per state."""
    keep = state.tensors.get("keep")
    if keep is None:
        return True
    known = state.__dict__.get("_all_kept")
    if known is None or known[0] is not keep:
        known = keep, bool(keep.all())
        state.__dict__["_all_kept"] = known
    return known[1]


def _may_be_one(x: torch.Tensor) -> bool:
    return not (
        torch.is_grad_enabled() or x.dim() != 2 or torch.compiler.is_compiling() or not serves(x)
    )


def _steps(
    plan: Plan,
    memory: Memory,
    x: torch.Tensor,
    states: Sequence[Any],
    read: tuple[Any, ...] = (),
) -> Steps | None:
    found = read_states(plan, memory, x.shape[0], states)
    if found is None:
        return None
    after = steps_after(x.shape[0], states)
    last = (None, None) if plan.last is None else (plan.last["weight"], plan.last.get("bias"))
    try:
        out, a, b = plan.operator(
            x,
            *found,
            *read,
            plan.weights(),
            *last,
            plan.heads,
            *memory.arguments,
            *plan.kind,
        )
    except (TypeError, ValueError):
        return None  # moved to another dtype or device, or x of another width
    return out, new_states(plan, memory, a, b, after)


def read_states(
    plan: Plan, memory: Memory, rows: int, states: Sequence[Any]
) -> tuple[list[torch.Tensor], list[torch.Tensor]] | None:
    """The two tensors of every layer's state; no tensors before the first token. None
    where the layers must go part by part."""
    first, second = memory.names
    a: list[torch.Tensor] = []
    b: list[torch.Tensor] = []
    if states[0] is None:
        if any(state is not None for state in states):
            return None
        return a, b
    for part, state in zip(plan.parts, states, strict=True):
        if not isinstance(state, AttentionState):
            return None  # a plain pair
        if not state.fits(part.inner.kind, rows, part.facts):
            return None  # an error that the parts report
        tensors = state.tensors
        a.append(tensors[first])
        b.append(tensors[second])
    if memory.grows and not _all_full(states, first):
        return None  # some sequences are shorter
    return a, b


def new_states(
    plan: Plan,
    memory: Memory,
    a: Sequence[torch.Tensor],
    b: Sequence[torch.Tensor],
    steps: Sequence[torch.Tensor],
) -> list[AttentionState]:
    first, second = memory.names
    return [
        AttentionState.of(part.inner.kind, {first: one, second: other}, place, part.facts)
        for part, one, other, place in zip(plan.parts, a, b, steps, strict=True)
    ]


def _all_full(states: Sequence[AttentionState], name: str) -> bool:
    """Whether every sequence of each state has as many tokens as its cache."""
    seen: Any = None
    for state in states:
        if state.steps is not seen:
            seen = state.steps
            least = int(seen.min()) if seen.numel() else 0
        if least != state.tensors[name].shape[1]:
            return False
    return True


def steps_after(
    rows: int, states: Sequence[Any], tokens: int = 1, after: torch.Tensor | None = None
) -> list[torch.Tensor]:
    """The steps of states after some more tokens. Equal ones share one tensor, so that
    the next call recognises them. after: those of the first state, where known."""
    if states[0] is None:
        return [torch.full((rows,), tokens, device="cpu")] * len(states)
    first = states[0].steps
    shared = first + tokens if after is None else after
    return [
        shared if steps is first or torch.equal(steps, first) else steps + tokens
        for steps in (state.steps for state in states)
    ]


def _other_step(plan: Plan, x: torch.Tensor, state: Any) -> Step | None:
    weights = plan.weights()
    arguments = weights, plan.heads, *plan.kind
    try:
        heads = torch.ops.tarn.layer_step_heads.default(x, *arguments)
    except (TypeError, ValueError):
        return None
    attended, new_state = plan.parts[0].attention.step_heads(*heads, state)
    return torch.ops.tarn.layer_step_rest.default(x, attended, *arguments), new_state


# The plan of a layer, a stack or a model, or the tokens until planning is tried again.
_plans: WeakKeyDictionary[Any, Plan | int] = WeakKeyDictionary()


def _plan_for(module: Any, stack: Any) -> Plan | None:
    """The plan of a layer, or of all layers of a stack."""
    return plan_for(module, lambda: Plan([module] if stack is None else list(stack.layers), stack))


def plan_for(module: Any, make: Callable[[], Plan]) -> Any:
    """The plan of a module, from make(), as long as it holds; None where there cannot
    be a plan, or where making one failed less than _PATIENCE tokens ago."""
    found = _plans.get(module)
    if isinstance(found, Plan):
        if found.holds():
            return found
    elif found:
        _plans[module] = found - 1
        return None
    try:
        plan = make()
    except (LookupError, AttributeError):
        _plans[module] = _PATIENCE
        return None
    _plans[module] = plan
    return plan
