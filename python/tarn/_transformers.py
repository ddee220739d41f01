"""transformers' own models on tarn's CPU kernels, unmodified.

The files of its hybrid and recurrent models look for three packages when they are
imported: fla, mamba_ssm and causal_conv1d, none of which runs on a CPU. Modules of
these names that hold the functions of `tarn.fla` are found in their place, and so are
their modules, such as fla.ops.kda.gate, for models whose files are elsewhere. Five
models look for none; `tarn._transformers_methods` replaces functions of their files.
"""

from __future__ import annotations

import functools
import sys
import types

import torch

from tarn.ops import affine

# Names by which a model's file is known that has looked for the three packages: what it
# imports from them, or its own forms in torch.
_LOOKED_FOR = (
    "chunk_gated_delta_rule",
    "fused_recurrent_gated_delta_rule",
    "chunk_kda",
    "fused_recurrent_kda",
    "mamba_chunk_scan_combined",
    "selective_state_update",
    "causal_conv1d_fn",
    "causal_conv1d_update",
    "torch_chunk_gated_delta_rule",
    "mamba2_chunk_scan",
)


def _hooked(module: types.ModuleType) -> bool:
    return any(name in vars(module) for name in _LOOKED_FOR)


# Up to so many rows a product is bound by reading its weights.
_FEW_ROWS = 16


def _affine_of_few_rows() -> None:
    """Makes torch.nn.Linear hand few rows on to `tarn.ops.affine`, outside of autograd,
    autocast and torch.compile, and all else to its own forward."""
    forward = torch.nn.Linear.forward
    if hasattr(forward, "__tarn__"):
        return

    @functools.wraps(forward)
    def few_rows(self: torch.nn.Linear, input: torch.Tensor) -> torch.Tensor:
        weight = self.weight
        if (
            input.numel() <= _FEW_ROWS * weight.shape[-1]
            and not torch.is_grad_enabled()
            and input.dtype == weight.dtype == torch.float32
            and input.device.type == weight.device.type == "cpu"
            and type(input) is torch.Tensor
            and type(weight) in (torch.Tensor, torch.nn.Parameter)
            and not torch.is_autocast_enabled("cpu")
            and not torch.compiler.is_compiling()
        ):
            return affine(input, weight, self.bias)
        return forward(self, input)

    few_rows.__dict__["__tarn__"] = True
    torch.nn.Linear.forward = few_rows


def accelerate_transformers(linear: bool = True) -> None:
    """Lets transformers' recurrent and hybrid text models run and train on tarn's CPU
    kernels, by their own classes: Mamba, Mamba-2, Qwen3.5, Kimi-Linear, LFM2 and the others
    of the table in docs/migration.md. Most look for three packages, whose names tarn's
    functions take; with them they keep packed sequences apart, which they refuse otherwise.
    LFM3, MiniMax, RecurrentGemma, RWKV and xLSTM look for none: a function or a method of
    each is replaced on the CPU when its file is imported.

    Is to be called before a model's file is imported (``from transformers import
    AutoModelForCausalLM`` imports none); a second call does nothing. For the whole
    process: `fla`, `mamba_ssm` and `causal_conv1d` are modules of tarn from here on,
    also where the packages themselves are installed.

    Args:
        linear: `torch.nn.Linear` takes `tarn.ops.affine` for up to 16 rows of float32
            outside of autograd: a token of generation costs what reading the weights
            costs, and the kernel reads them faster than torch's product. This holds for
            every model of the process; False leaves torch's class alone.

    Raises:
        RuntimeError: one of these packages, or a model that has looked for them, is
            imported already.
    """
    from tarn import _transformers_methods as methods
    from tarn._fla_package import functions

    missing = [name for name in functions.PACKAGES if not functions.made(name)]
    early = [name for name in missing if name in sys.modules]
    if missing:
        early += sorted(
            name
            for name, module in list(sys.modules.items())
            if name.startswith("transformers.models.")
            and ".modeling_" in name
            and name not in methods.FILES
            and isinstance(module, types.ModuleType)
            and _hooked(module)
        )
    if early:
        raise RuntimeError(
            "accelerate_transformers: want it called before these modules are "
            f"imported, got {', '.join(early)}"
        )
    functions.make(*missing)
    methods.install()
    if linear:
        _affine_of_few_rows()


def restore_transformers() -> None:
    """Puts back what `accelerate_transformers` replaced: the functions and methods of LFM3,
    MiniMax, RecurrentGemma, RWKV and xLSTM, and torch.nn.Linear's forward. Models that looked
    for packages keep the functions that they found, for as long as the process runs. Calling
    it first, or twice, does nothing.

    Examples:
        >>> import tarn
        >>> tarn.restore_transformers()
    """
    from tarn import _transformers_methods as methods

    methods.restore()
    forward = torch.nn.Linear.forward
    if hasattr(forward, "__tarn__"):
        torch.nn.Linear.forward = forward.__wrapped__
