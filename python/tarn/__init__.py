"""tarn (Transformers Are RNNs): linear-attention transformers.

With PyTorch: ``tarn.ops`` (operators with gradients), ``tarn.nn`` and
``tarn.optim`` (fused layers, optimisers), and under the module paths of
fast-transformers ``tarn.attention``, ``tarn.builders``, ``tarn.transformers``,
``tarn.recurrent``, ``tarn.masking``, ``tarn.events``, ``tarn.feature_maps``,
``tarn.weight_mapper``; ``tarn.fla`` has the functions of flash-linear-attention,
``tarn.install_as_fla`` runs that package's own models on them, and
``tarn.accelerate_transformers`` transformers' own;
``tarn.models``, ``tarn.save_model`` and ``tarn.load_model`` share model directories
with the command line.

Without PyTorch: ``tarn.runtime`` runs such a directory, numpy in and out, and
``tarn.accounting`` counts its parameters and costs.

Each part is imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tarn import _library

if TYPE_CHECKING:
    from tarn._compatibility import install_as_fast_transformers
    from tarn._fla_package import install_as_fla
    from tarn._model_files import load_model, save_model
    from tarn._transformers import accelerate_transformers, restore_transformers
    from tarn._warnings import LayoutWarning
    from tarn.ops import LinearState

__version__ = "0.1.0"
__all__ = [
    "LayoutWarning",
    "LinearState",
    "__version__",
    "accelerate_transformers",
    "install_as_fast_transformers",
    "install_as_fla",
    "load_model",
    "restore_transformers",
    "save_model",
    "simd_target",
]

_library.check_torch()

_PARTS = (
    "accounting",
    "attention",
    "attention_registry",
    "builders",
    "causal_product",
    "distributed",
    "events",
    "feature_maps",
    "fla",
    "huggingface",
    "masking",
    "models",
    "nn",
    "ops",
    "optim",
    "recurrent",
    "runtime",
    "transformers",
    "utils",
    "weight_mapper",
)
_NAMES = {
    "LayoutWarning": "tarn._warnings",
    "LinearState": "tarn.ops",
    "accelerate_transformers": "tarn._transformers",
    "install_as_fast_transformers": "tarn._compatibility",
    "install_as_fla": "tarn._fla_package",
    "load_model": "tarn._model_files",
    "restore_transformers": "tarn._transformers",
    "save_model": "tarn._model_files",
}


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return importlib.import_module(f"tarn.{name}")
    if name in _NAMES:
        value = getattr(importlib.import_module(_NAMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'tarn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PARTS, *_NAMES})


def simd_target() -> str:
    """Name of the SIMD target the CPU kernels run on, such as "AVX2".

    TARN_FORCE_TARGET in the environment chooses another one at import.
    """
    _library.ensure()
    import torch

    return torch.ops.tarn.simd_target()
