"""The functions of `tarn.fla` under the module paths of the packages that they come from, for
processes that do not have those packages: fla.ops.kda.gate holds what tarn.fla.kda.gate holds."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import pkgutil
import sys
import types
from collections.abc import Iterator
from typing import Any

# Modules of tarn.fla whose functions belong to other packages than fla: their names there.
ELSEWHERE = {
    "causal_conv1d": ("causal_conv1d",),
    "mamba": ("mamba_ssm",),
    "mamba.selective_scan": ("mamba_ssm.ops.selective_scan_interface",),
    "mamba.ssd_combined": ("mamba_ssm.ops.triton.ssd_combined",),
    "mamba.state_update": ("mamba_ssm.ops.triton.selective_state_update",),
}
PACKAGES = ("fla", "mamba_ssm", "causal_conv1d")


def parts() -> Iterator[tuple[str, types.ModuleType]]:
    """The public modules of tarn.fla, by their names in it: "kda", "kda.gate", ..."""
    from tarn import fla

    for found in pkgutil.walk_packages(fla.__path__, fla.__name__ + "."):
        name = found.name.removeprefix(fla.__name__ + ".")
        if not name.startswith("_"):
            yield name, importlib.import_module(found.name)


def _places() -> Iterator[tuple[str, types.ModuleType]]:
    """Names of modules to make, and the modules of tarn.fla whose functions they hold. Those
    of the families are in fla itself too, where transformers takes them from."""
    for name, part in parts():
        if name in ELSEWHERE:
            yield from ((place, part) for place in ELSEWHERE[name])
        else:
            yield from ((place, part) for place in ("fla", "fla.ops", f"fla.ops.{name}"))


class _Refusal(importlib.abc.MetaPathFinder):
    """Says what is missing where a module is imported that holds no functions of tarn."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        package = fullname.partition(".")[0]
        if fullname != package and package in PACKAGES and made(package):
            hint = (
                "; layers and models need flash-linear-attention 0.6 installed and "
                "tarn.install_as_fla()"
                if package == "fla"
                else ""
            )
            raise ModuleNotFoundError(
                f"{fullname}: want a module of functions that tarn.fla has, got one that it does "
                f"not have{hint}",
                name=fullname,
            )


def made(package: str) -> bool:
    """Whether the package of this name in the process is one of these modules."""
    return getattr(sys.modules.get(package), "__tarn__", None) == "functions"


def _module(name: str) -> types.ModuleType:
    if name in sys.modules:
        return sys.modules[name]
    module = types.ModuleType(name, f"Functions of tarn.fla in place of {name}'s.")
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    module.__path__ = []
    module.__dict__["__tarn__"] = "functions"
    sys.modules[name] = module
    parent, _, own = name.rpartition(".")
    if parent:
        setattr(_module(parent), own, module)
    return module


def make(*packages: str) -> None:
    """Puts modules with these packages' names into the process. None of them is imported."""
    for name, part in _places():
        if name.partition(".")[0] in packages:
            module = _module(name)
            for function in part.__dict__["__all__"]:
                setattr(module, function, getattr(part, function))
    if not any(isinstance(finder, _Refusal) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Refusal())
