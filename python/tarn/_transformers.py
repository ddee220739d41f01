"""transformers' own models on tarn's CPU kernels, unmodified.

The files of its hybrid and recurrent models look for three packages when they are
imported: fla, mamba_ssm and causal_conv1d, none of which runs on a CPU. Modules of
these names that hold the functions of `tarn.fla` are found in their place.
"""

from __future__ import annotations

import importlib.machinery
import sys
import types

# What transformers 5 asks these packages for, each at its top.
_FUNCTIONS = {
    "fla": ("chunk_gated_delta_rule", "fused_recurrent_gated_delta_rule", "chunk_kda",
            "fused_recurrent_kda"),
    "mamba_ssm": ("mamba_chunk_scan_combined", "selective_state_update"),
    "causal_conv1d": ("causal_conv1d_fn", "causal_conv1d_update"),
}


def _hooked(module: types.ModuleType) -> bool:
    names = [name for functions in _FUNCTIONS.values() for name in functions]
    names += ["torch_chunk_gated_delta_rule", "mamba2_chunk_scan", "causal_conv1d_fn"]
    return any(name in vars(module) for name in names)


def accelerate_transformers() -> None:
    """Lets transformers' Qwen3.5, Qwen3-Next, Olmo-Hybrid, Kimi-Linear, Mamba-2,
    Granite-hybrid, Falcon-H1 and Nemotron-H run and train on tarn's CPU kernels, by
    their own classes: the gated delta rule, KDA, the state space of Mamba-2, and the
    convolutions before them. Packed sequences are kept apart, which they refuse
    without these packages.

    Is to be called before a model's file is imported (``from transformers import
    AutoModelForCausalLM`` imports none); a second call does nothing. For the whole
    process: `fla`, `mamba_ssm` and `causal_conv1d` are modules of tarn from here on,
    also where the packages themselves are installed.

    Raises:
        RuntimeError: one of these packages, or a model that has looked for them, is
            imported already.
    """
    from tarn import fla

    standing = [name for name in _FUNCTIONS
                if getattr(sys.modules.get(name), "__tarn__", False)]
    if len(standing) == len(_FUNCTIONS):
        return
    early = [name for name in _FUNCTIONS if name in sys.modules]
    early += sorted(name for name, module in list(sys.modules.items())
                    if name.startswith("transformers.models.") and ".modeling_" in name
                    and isinstance(module, types.ModuleType) and _hooked(module))
    if early:
        raise RuntimeError("accelerate_transformers: want it called before these modules are "
                           f"imported, got {', '.join(early)}")
    for name, functions in _FUNCTIONS.items():
        module = types.ModuleType(name, f"Functions of tarn.fla in place of {name}'s.")
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        module.__dict__["__tarn__"] = True
        for function in functions:
            setattr(module, function, getattr(fla, function))
        sys.modules[name] = module
