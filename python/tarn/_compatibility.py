"""tarn under the name fast_transformers, for programs one cannot edit."""

from __future__ import annotations

import importlib
import pkgutil
import sys

_OTHER = "fast_transformers"
# The parts of fast-transformers that programs import. Its internals (aggregate,
# clustering, hashing, local_product, sparse_product) have no counterpart.
_PARTS = (
    "attention",
    "attention_registry",
    "builders",
    "causal_product",
    "events",
    "feature_maps",
    "masking",
    "recurrent",
    "transformers",
    "utils",
    "weight_mapper",
)


def install_as_fast_transformers() -> None:
    """Makes ``import fast_transformers`` and its submodules give tarn, in this
    process, from now on. Once done it does nothing.

    Raises ImportError where the package itself has been imported before: its
    classes would mix with tarn's.
    """
    package = sys.modules["tarn"]
    if sys.modules.get(_OTHER, package) is not package:
        raise ImportError(
            f"install_as_fast_transformers: want to come before {_OTHER} is imported, "
            "got it imported"
        )
    modules = {_OTHER: package}
    for part in _PARTS:
        module = importlib.import_module(f"tarn.{part}")
        modules[f"{_OTHER}.{part}"] = module
        inside = pkgutil.walk_packages(getattr(module, "__path__", []), f"tarn.{part}.")
        for found in inside:
            name = f"{_OTHER}{found.name.removeprefix('tarn')}"
            modules[name] = importlib.import_module(found.name)
    sys.modules.update(modules)
