"""The facts about layers, found out once, so that a token can go through them in one call.

To check a dozen modules of each layer at every token would cost more than the step.
They are checked once (`Plan`); afterwards the modules only have to be the same objects
of the same classes with the same settings, still without hooks: whole lists are
compared. Weights are read at every token."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
import torch.nn.modules.module as torch_modules
from torch.utils.hooks import RemovableHandle

from tarn._fused import has_no_hooks, plain_norm, serves
from tarn._step_parts import Part, Place, says_one_call, want

# The hooks that run where no gradient is recorded.
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_GLOBAL_HOOKS: list[Any] = [getattr(torch_modules, f"_global{name}") for name in _HOOKS]


class Plan:
    """The facts found out about consecutive layers of one kind.

    owner: the stack that calls them, where one call replaces those of all its layers;
    their classes must then allow it (`_one_call`). Raises LookupError where they must
    go part by part."""

    def __init__(self, layers: Sequence[Any], owner: Any = None) -> None:
        parts = [Part(layer) for layer in layers]
        want(bool(parts))
        first = parts[0]
        self.parts = parts
        self.kind, self.heads, self.memory = first.kind, first.heads, first.memory
        for part in parts:
            want((part.kind, part.heads, part.memory) == (self.kind, self.heads, self.memory))
        self.modules = modules = [module for part in parts for module in part.modules]
        self.parents = [parent for part in parts for parent in part.parents]
        self.looked_at = [place for part in parts for place in part.looked_at]
        # Parameters of the norm after the layers, which the call may include.
        self.last: dict[str, Any] | None = None
        # Methods that the call replaces: no object may override one.
        self.methods: list[Place] = []
        if owner is not None:
            want(self.memory is not None)
            want(all(says_one_call(layer) and has_no_hooks(layer) for layer in layers))
            modules += layers
            self.methods += [(layer.__dict__, "step") for layer in layers]
            self.parents += [owner.layers._modules, owner._modules]
            self._take_norm(owner.norm)
        self.dropouts = [dropout for part in parts for dropout in part.dropouts]
        self.listened = [event for part in parts for event in part.listened]
        self.places = [place for part in parts for place in part.places]
        self.operator: Any = None
        if self.memory is not None:
            self.operator = getattr(torch.ops.tarn, self.memory.operator).default
        self._settle()

    def _settle(self) -> None:
        """Records everything as it is now, in columns: one pass in C compares each."""
        self.children = self._children()
        self.classes = list(map(type, self.modules))
        self.hooks = [getattr(module, name) for module in self.modules for name in _HOOKS]
        self.hooks += _GLOBAL_HOOKS
        self.hooked_at = -1
        want(not any(_GLOBAL_HOOKS))
        methods = self.methods + [(module.__dict__, "forward") for module in self.modules]
        want(not any(name in values for values, name in methods))
        watched = self.looked_at + methods
        self.watched = [values for values, _ in watched], [name for _, name in watched]
        self.settings = list(map(dict.get, *self.watched))
        self.read = [values for values, _ in self.places], [name for _, name in self.places]
        want(serves(*(weight for weight in self.weights() if weight is not None)))

    def _children(self) -> list[Any]:
        return list(chain.from_iterable(map(dict.values, self.parents)))

    def _take_norm(self, norm: Any) -> None:
        """Takes the norm after the layers into the call where it is of their kind."""
        if norm is None:
            return
        facts = plain_norm(norm)
        if facts is None or (facts["kind"], facts["eps"]) != self.kind[1:3]:
            return
        self.last = norm._parameters
        self.modules.append(norm)
        self.looked_at.append((norm.__dict__, "eps"))

    def holds(self) -> bool:
        """Whether everything is as it was recorded."""
        return (
            list(map(dict.get, *self.watched)) == self.settings
            and self._children() == self.children
            and list(map(type, self.modules)) == self.classes
            and self._unhooked()
        )

    def _unhooked(self) -> bool:
        """Whether the modules have no hooks: looked up again only where a hook was
        registered anywhere since."""
        registered = RemovableHandle.next_id
        if registered != self.hooked_at:
            if any(self.hooks):
                return False
            self.hooked_at = registered
        return True

    def disturbed(self) -> bool:
        """Whether it may not be used now: dropout is active or a listener is
        attached."""
        for module, dropout in self.dropouts:
            if module["training"] and dropout["p"] != 0:
                return True
        for dispatcher, event, source in self.listened:
            if dispatcher.has_listeners(event, source):
                return True
        return False

    def weights(self) -> list[Any]:
        """The tensors of all layers in the operators' order."""
        return list(map(dict.get, *self.read))
