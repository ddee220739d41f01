"""A module `triton` for the time of an import: flash-linear-attention needs it to load,
where nothing of it will run. Kernels become objects that refuse to be launched."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from typing import Any

_NAME = "triton"


class _Anything:
    """What a kernel's source names: types, functions, flags. Nothing reads them."""

    def __call__(self, *arguments: Any, **options: Any) -> _Anything:
        return self

    def __getattr__(self, name: str) -> Any:
        return _attribute(name)

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (_Kernel,)


class _Driver:
    """What says that there is no GPU: it raises, as Triton's does."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("triton: no driver")


def _attribute(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name == "active":
        return _Driver()
    return _KNOWN[name] if name in _KNOWN else _Anything()


def _called() -> str | None:
    """The function of fla.ops or fla.modules that was called first, of those that run."""
    found, frame = None, sys._getframe(1)
    while frame is not None:
        name, path = frame.f_code.co_name, frame.f_globals.get("__name__", "")
        if path.startswith(("fla.ops.", "fla.modules.")) and name in frame.f_globals:
            found = name
        frame = frame.f_back
    return found


class _Kernel:
    """A function of Triton's language, or what tunes one: to be named, not launched."""

    def __init__(self, function: Any, *arguments: Any, **options: Any):
        self.fn = function
        self.__name__ = getattr(function, "__name__", "a kernel")

    def __getattr__(self, name: str) -> Any:
        return _attribute(name)

    def __getitem__(self, grid: Any) -> Any:
        raise RuntimeError(
            f"fla: {_called() or self.__name__}: want a GPU and Triton, got a call on the CPU, where "
            "tarn has no form of this function; docs/migration.md lists those that it has"
        )


def _jit(function: Any = None, **options: Any) -> Any:
    return _Kernel if function is None else _Kernel(function)


def _same(*arguments: Any, **options: Any) -> Any:
    """heuristics and autotune: what they decorate stays as it is."""
    return lambda kernel: kernel


def _next_power_of_2(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()


# Names at the top of the Triton package; its dialects have `jit`, too.
_KNOWN = {
    "autotune": _same,
    "cdiv": lambda n, d: -(-n // d),
    "heuristics": _same,
    "jit": _jit,
    "next_power_of_2": _next_power_of_2,
}


class _Module(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        return _attribute(name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname.partition(".")[0] != _NAME:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__dict__["__version__"] = "3.9.0"


@contextlib.contextmanager
def triton_if_absent():
    """Where Triton is not installed, `import triton` succeeds inside the block and
    fails after it as before: torch and others look for it too, and would take it for
    the real one."""
    if importlib.util.find_spec(_NAME) is not None:
        yield
        return
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] == _NAME]:
            del sys.modules[name]
