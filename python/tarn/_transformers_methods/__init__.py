"""Functions and methods of transformers' model files that look for no package: tarn's are put
in their place when the file is imported, and theirs can be put back."""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable
from typing import Any

# A model's folder: the function, or the method of a class, of its file -> tarn's. Each of
# tarn's takes the replaced one first, which it calls for what it does not serve.
TABLE = {
    "lfm3": {
        "causal_conv1d_fn": "convolution.sequence",
        "causal_conv1d_update": "convolution.step",
    },
    "minimax": {"MiniMaxLightningAttention.forward": "lightning.forward"},
    "recurrent_gemma": {"RecurrentGemmaRglru.forward": "rg_lru.forward"},
    "rwkv": {"rwkv_linear_attention": "wkv.attention"},
    "xlstm": {"xLSTMBackend.forward": "mlstm.forward"},
}


def _file(folder: str) -> str:
    return f"transformers.models.{folder}.modeling_{folder}"


FILES = {_file(folder): folder for folder in TABLE}


def _function(path: str) -> Callable:
    part, _, name = path.partition(".")
    return getattr(importlib.import_module(f"{__name__}.{part}"), name)


def _holder(module: types.ModuleType, path: str) -> tuple[Any, str]:
    owner, _, name = path.rpartition(".")
    return (getattr(module, owner, None) if owner else module), name


def _chosen(ours: Callable, theirs: Callable) -> Callable:
    """`ours` on the CPU, elsewhere and under torch.export `theirs`."""
    import torch

    from tarn._fla_package.choice import on_cpu

    here = on_cpu(functools.partial(ours, theirs), theirs)

    @functools.wraps(theirs)
    def chosen(*arguments: Any, **options: Any) -> Any:
        if torch.compiler.is_exporting():
            return theirs(*arguments, **options)
        return here(*arguments, **options)

    chosen.__dict__["__tarn__"] = True
    return chosen


def _replace(module: types.ModuleType) -> None:
    """A class that is not there, since the file took another package's, is left out."""
    for path, ours in TABLE[FILES[module.__name__]].items():
        holder, name = _holder(module, path)
        theirs = getattr(holder, name, None)
        if theirs is not None and not hasattr(theirs, "__tarn__"):
            setattr(holder, name, _chosen(_function(ours), theirs))


class _Loader(importlib.abc.Loader):
    """The loader of a model's file, which replaces its functions once it has run."""

    def __init__(self, loader: Any):
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        self._loader.exec_module(module)
        _replace(module)


class _AtImport(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname not in FILES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def install() -> None:
    """Replaces what the table lists, in files that are imported now and later."""
    if not any(isinstance(finder, _AtImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AtImport())
    for name in FILES:
        if isinstance(sys.modules.get(name), types.ModuleType):
            _replace(sys.modules[name])


def restore() -> None:
    """Puts back what `install` replaced; files that are imported later are left alone."""
    sys.meta_path[:] = [one for one in sys.meta_path if not isinstance(one, _AtImport)]
    for name, folder in FILES.items():
        module = sys.modules.get(name)
        if not isinstance(module, types.ModuleType):
            continue
        for path in TABLE[folder]:
            holder, attribute = _holder(module, path)
            replaced: Any = getattr(holder, attribute, None)
            if hasattr(replaced, "__tarn__"):
                setattr(holder, attribute, replaced.__wrapped__)
