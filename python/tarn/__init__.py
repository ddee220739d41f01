"""tarn (Transformers Are RNNs): linear-attention operators for PyTorch.

``tarn.ops.linear_attention`` processes whole sequences (training, prefill),
``tarn.ops.linear_attention_step`` one token (generation); both share the state
``tarn.LinearState``. ``tarn.nn`` holds layers around them,
``tarn.optim`` optimisers.
"""

import torch

from tarn import _library

_library.load()

from tarn import nn, ops, optim  # noqa: E402  (need the library)
from tarn.ops import LinearState  # noqa: E402

__version__ = "0.1.0"
__all__ = ["LinearState", "__version__", "nn", "ops", "optim", "simd_target"]


def simd_target():
    """Name of the SIMD target the CPU kernels run on, such as "AVX2".

    TARN_FORCE_TARGET in the environment chooses another one at import.
    """
    return torch.ops.tarn.simd_target()
