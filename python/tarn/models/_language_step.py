"""A token through a whole language model in one call
(`torch.ops.tarn.language_step`), where its layers take one call
(`tarn._layer_step`) and the modules around them are this package's own; and several
tokens in a row, which then need no Python between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from tarn._fused import has_no_hooks
from tarn._layer_step import Steps, new_states, plan_for, read_states, steps_after
from tarn._step_parts import UNREAD, Memory, says_one_call, want
from tarn._step_plan import Plan
from tarn.events import IntermediateOutput

# The number of weights around the layers, which follow those of the layers.
_AROUND = 7


class LanguagePlan(Plan):
    """The Plan of a model; the weights of its other parts follow those of the layers."""

    def __init__(self, model: Any) -> None:
        want(says_one_call(model))
        embedding, stack = model._parts
        self.stack = stack
        super().__init__(list(stack.layers), stack)
        self.memory = self._whole(self.memory)
        self.operator = torch.ops.tarn.language_step.default
        predictor, tokens, table = model.predictor, embedding.tokens, embedding.table
        want(says_one_call(embedding) and says_one_call(predictor) and says_one_call(stack))
        want(type(tokens) is torch.nn.Embedding and tokens.max_norm is None)
        want(embedding.factor == 1.0 and predictor.factor == 1.0)
        want(predictor.softcap == 0.0)
        want(embedding.norm is None)
        want(not embedding.concat and (self.last is not None or stack.norm is None))
        positions = embedding.positions
        want((positions == "learned") == (table is not None))
        self.sinusoidal = positions == "sinusoidal"
        around = [predictor, tokens]
        if table is not None:
            want(type(table) is torch.nn.Embedding and table.max_norm is None)
            around.append(table)
        around = [model, stack, *around]
        want(all(has_no_hooks(module) for module in around))
        self.modules += around
        self.parents.append(model._modules)
        methods = [(model, "step"), (model, "_head"), (stack, "step"), (embedding, "row")]
        self.methods += [(module.__dict__, name) for module, name in methods]
        watched = [(stack, "event_dispatcher"), (embedding, "concat"), (embedding, "positions")]
        watched += [(embedding, "factor"), (predictor, "factor"), (predictor, "softcap")]
        watched += [(module, "max_norm") for module in around[3:]]
        self.looked_at += [(module.__dict__, name) for module, name in watched]
        nothing: dict[str, Any] = {}
        holders = [tokens._parameters, nothing if table is None else table._parameters]
        holders += [predictor._parameters, model.value_embedding._parameters]
        norm = nothing if self.last is None else self.last
        self.places += [(holder, "weight") for holder in holders]
        self.places += [(predictor._parameters, "bias"), (norm, "weight"), (norm, "bias")]
        self._settle()

    def _whole(self, memory: Memory | None) -> Memory:
        want(memory is not None and not memory.reads)
        assert memory is not None
        arguments: tuple[Any, ...] = ("linear", *memory.arguments, None)
        if memory.grows:
            arguments = ("full", *UNREAD, *memory.arguments)
        return Memory("language_step", memory.names, arguments, memory.grows)

    def disturbed(self) -> bool:
        listened = self.stack.event_dispatcher.has_listeners(IntermediateOutput, self.stack)
        return listened or super().disturbed()


class Text(NamedTuple):
    """A model's result on a token and those that it chose after it: the logits of the
    last token and the states after it; the tokens [count - 1, N] chosen and the logits
    that chose them, none for a count of 1."""

    logits: torch.Tensor
    states: list[Any]
    tokens: Sequence[torch.Tensor] | torch.Tensor = ()
    best: Sequence[torch.Tensor] | torch.Tensor = ()


def language_step(model: Any, tokens: torch.Tensor, states: Sequence[Any] | None) -> Steps | None:
    """tokens [N] and the states of a language model -> (logits [N, outputs], new
    states); None where it must go part by part."""
    text = language_text(model, tokens, states)
    return text and (text.logits, text.states)


def language_text(
    model: Any,
    tokens: torch.Tensor,
    states: Sequence[Any] | None,
    count: int = 1,
    noise: torch.Tensor | None = None,
) -> Text | None:
    """Reads tokens [N] and count - 1 more, each the largest of the logits before it,
    with noise [count - 1, N, outputs] if there is any. None where it must go token
    by token."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return None
    if not isinstance(tokens, torch.Tensor) or tokens.dim() != 1:
        return None  # an error that the embedding reports
    plan: LanguagePlan | None = plan_for(model, lambda: LanguagePlan(model))
    if plan is None or plan.disturbed() or torch.is_autocast_enabled("cpu"):
        return None
    memory = plan.memory
    assert memory is not None
    rows = tokens.shape[0]
    if states is None:
        states = [None] * len(plan.parts)
    elif not isinstance(states, (list, tuple)) or len(states) != len(plan.parts):
        return None  # an error that the layers report
    found = read_states(plan, memory, rows, states)
    if found is None:
        return None
    weights = plan.weights()
    embedding, table, own, tied, bias, gamma, beta = weights[-_AROUND:]
    del weights[-_AROUND:]
    try:
        logits, a, b, later, chosen = plan.operator(
            tokens,
            None if states[0] is None else states[0].steps,
            embedding,
            table,
            plan.sinusoidal,
            tied if own is None else own,
            bias,
            *found,
            weights,
            gamma,
            beta,
            plan.heads,
            *memory.arguments,
            *plan.kind,
            count,
            noise,
        )
    except (TypeError, ValueError):
        return None  # another dtype or device, a token outside the table
    after = steps_after(rows, states, count, later)
    return Text(logits, new_states(plan, memory, a, b, after), *chosen)
