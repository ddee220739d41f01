"""fla's layer of Mamba-2 on the CPU: it takes its path over mamba_ssm's functions, which are
tarn's here, where it would take loops in torch because no GPU is there."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from tarn._fla_package.choice import on_cpu


def patch() -> None:
    """Gives the layer's module the functions of the two packages that it lacks, and the layer
    its way to them. Layers on other devices run what they would run without it."""
    from tarn import fla

    layer: Any = importlib.import_module("fla.layers.mamba2")
    names = (
        "causal_conv1d_fn",
        "causal_conv1d_update",
        "mamba_chunk_scan_combined",
        "mamba_split_conv1d_scan_combined",
        "selective_state_update",
    )
    installed = layer.is_fast_path_available
    for name in names:
        theirs = getattr(layer, name)
        ours = getattr(fla, name)
        setattr(layer, name, ours if theirs is None else on_cpu(ours, theirs))
    layer.is_fast_path_available = True  # else every layer warns that it is slow
    fast, plain = layer.Mamba2.cuda_kernels_forward, layer.Mamba2.torch_forward

    @functools.wraps(fast)
    def fast_if_installed(self: Any, *arguments: Any, **options: Any) -> Any:
        return (fast if installed else plain)(self, *arguments, **options)

    @functools.wraps(plain)
    def fast_on_cpu(
        self: Any,
        input_states: Any,
        last_state: Any = None,
        use_cache: bool = False,
        attention_mask: Any = None,
    ) -> Any:
        given = (input_states, last_state, use_cache, attention_mask)
        if input_states.device.type != "cpu" or not _serves(self, last_state):
            return plain(self, *given)
        if attention_mask is None or last_state is not None:
            return fast(self, *given)
        # The path of training takes no mask; that of a prefill does.
        output, window, state = fast(self, input_states, None, True, attention_mask)
        return output, window if use_cache else None, state

    layer.Mamba2.cuda_kernels_forward = fast_if_installed
    layer.Mamba2.torch_forward = fast_on_cpu


def _serves(layer: Any, last_state: Any) -> bool:
    """The convolution has silu alone, and a step knows no limits of dt."""
    return layer.activation in ("silu", "swish") and (
        last_state is None or tuple(layer.dt_limit) == (0.0, float("inf"))
    )
