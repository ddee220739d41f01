"""tarn under the name fast_transformers, for programs that cannot be edited."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from importlib.abc import MetaPathFinder

_OTHER = "fast_transformers"
# The parts of fast-transformers that programs import.
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

# The other parts of fast-transformers are single steps of kernels. tarn runs each kernel
# as one operator, which keeps nothing that such a step could take or return.
_USE_INSTEAD = {
    "aggregate": "tarn.ops.clustered_attention, which groups queries itself",
    "causal_product.causal_product_cuda": "causal_product_cpu, for tarn's kernels run on the CPU",
    "clustering": "tarn.ops.clustered_attention with clusters, iterations and bits",
    "hashing": "tarn.ops.clustered_attention or reformer_attention with bits and hash_seed",
    "local_product": "tarn.ops.local_attention",
    "sparse_product": "tarn.ops.improved_clustered_attention or exact_topk_attention",
}


class _Refusal(MetaPathFinder):
    """Finds nothing, and says what to use instead of the parts left out."""

    def find_spec(self, fullname, path=None, target=None):
        package, _, part = fullname.partition(".")
        # `from fast_transformers import part` asks for it under tarn's name.
        if package in (_OTHER, "tarn") and part in _USE_INSTEAD:
            name = f"{_OTHER}.{part}"
            raise ModuleNotFoundError(
                f"{name}: want a part that tarn has, got one it computes otherwise: "
                f"use {_USE_INSTEAD[part]}",
                name=name,
            )
        return None


def install_as_fast_transformers() -> None:
    """Makes ``import fast_transformers`` and its submodules give tarn, in this
    process, from now on. A second call does nothing. A part that tarn lacks
    (aggregate, clustering, hashing, local_product, sparse_product) still raises
    ModuleNotFoundError, which says what to use instead.

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
    if not any(isinstance(finder, _Refusal) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Refusal())
