"""Hooks of modules around methods other than forward. torch runs them only where a
module is called; `prefill`, `step` and the other methods that compute a module's results
run them too, with the arguments and the result of the method."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
import torch.nn.modules.module as torch_modules
from torch.utils.hooks import BackwardHook

Method = TypeVar("Method", bound=Callable[..., Any])

_GLOBAL: Any = torch_modules
_running = threading.local()  # the modules whose hooks surround what runs now


def heard(module: Any) -> bool:
    """Whether a call of the module, or of all modules, runs hooks."""
    return isinstance(module, torch.nn.Module) and bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or torch_modules._has_any_global_hook()
    )


def hooked(method: Method) -> Method:
    """Makes a method of a module run the module's hooks."""

    @functools.wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not heard(self):
            return method(self, *args, **kwargs)
        return _with_hooks(self, functools.partial(method, self), args, kwargs)

    run.__dict__["hooked"] = True
    return cast(Method, run)


def call(module: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    """module.name(...) and the module's hooks, also where its class did not make the
    method run them."""
    method = getattr(module, name)
    if not heard(module) or getattr(method, "hooked", False):
        return method(*args, **kwargs)
    return _with_hooks(module, method, args, kwargs)


def _with_hooks(
    module: Any, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Does what torch.nn.Module.__call__ does around forward; once, where one method of a
    module calls another."""
    running: list[Any] = _running.__dict__.setdefault("modules", [])
    if any(one is module for one in running):
        return method(*args, **kwargs)
    running.append(module)
    left = _always_called(module)
    try:
        result = _inside(module, method, args, kwargs, left)
    except Exception:
        for hook in left.values():
            hook(module, args, None)
        raise
    finally:
        running.pop()
    return result


def _always_called(module: Any) -> dict[int, Callable[..., Any]]:
    """The hooks that also run after an error, as functions without keyword arguments."""
    return {
        key: _without_keywords(hook, key in module._forward_hooks_with_kwargs)
        for key, hook in module._forward_hooks.items()
        if key in module._forward_hooks_always_called
    }


def _without_keywords(hook: Callable[..., Any], keywords: bool) -> Callable[..., Any]:
    if not keywords:
        return hook
    return lambda module, args, result: hook(module, args, {}, result)


def _inside(
    module: Any,
    method: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    left: dict[int, Callable[..., Any]],
) -> Any:
    for key, hook in (*_GLOBAL._global_forward_pre_hooks.items(),
                      *module._forward_pre_hooks.items()):  # fmt: skip
        if key in module._forward_pre_hooks_with_kwargs:
            both = hook(module, args, kwargs)
            if both is not None:
                args, kwargs = both
        else:
            given = hook(module, args)
            if given is not None:
                args = given if isinstance(given, tuple) else (given,)
    backward, before = _backward_hooks(module)
    if backward or before:
        around = BackwardHook(module, backward, before)
        args = around.setup_input_hook(args)
    else:
        around = None
    result = method(*args, **kwargs)
    for key, hook in (*_GLOBAL._global_forward_hooks.items(), *module._forward_hooks.items()):
        left.pop(key, None)
        if key in module._forward_hooks_with_kwargs or (
            key in _GLOBAL._global_forward_hooks_with_kwargs
        ):
            given = hook(module, args, kwargs, result)
        else:
            given = hook(module, args, result)
        if given is not None:
            result = given
    return result if around is None else around.setup_output_hook(result)


def _backward_hooks(module: Any) -> tuple[list[Any], list[Any]]:
    """The full backward hooks and those before them. Raises ValueError for one of the old
    kind, which sees only the last operator of a module."""
    if not (module._backward_hooks or module._backward_pre_hooks
            or _GLOBAL._global_backward_hooks or _GLOBAL._global_backward_pre_hooks):  # fmt: skip
        return [], []
    full, others = module._get_backward_hooks()
    if others:
        name = getattr(others[0], "__name__", type(others[0]).__name__)
        raise ValueError(
            f"{type(module).__name__}: {name}: want a hook of register_full_backward_hook, "
            "got one of register_backward_hook"
        )
    return full, module._get_backward_pre_hooks()
