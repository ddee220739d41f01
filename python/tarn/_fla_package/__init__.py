"""flash-linear-attention's own layers and models on tarn's CPU kernels, unmodified.

Its modules import Triton when they load and take each other's functions by value. Where
Triton is not installed they load with a stand-in for it. Every reference to one of its
functions is then replaced by a function that looks at its first tensor: on the CPU
tarn's form runs, elsewhere the function that was there.
"""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

# This package's modules and their functions: where each is defined in fla.
_FORMS = {
    "activations": {
        "modules.activations.ops": (
            "bias_gelu_impl",
            "elu_p1",
            "fast_gelu_impl",
            "logsigmoid",
            "powglu",
            "powglu_linear",
            "sigmoid",
            "sigmoidglu",
            "sigmoidglu_linear",
            "sqrelu",
            "swiglu",
            "swiglu_linear",
            "swish",
        ),
    },
    "losses": {
        "modules.fused_cross_entropy.ops": ("cross_entropy_loss",),
        "modules.fused_linear_cross_entropy.ops": ("fused_linear_cross_entropy_loss",),
    },
    "norms": {
        "modules.norm.fused_norm_gate": (
            "layer_norm_gated",
            "layer_norm_swish_gate_linear",
            "rms_norm_gated",
            "rms_norm_swish_gate_linear",
        ),
        "modules.norm.l2norm": ("l2norm",),
        "modules.norm.layernorm": ("group_norm", "layer_norm", "layer_norm_linear", "rms_norm"),
        "modules.norm.layernorm_gated": ("layernorm_fn", "rmsnorm_fn"),
    },
    "residuals": {
        "ops.attnres.fused": ("fused_attnres",),
    },
    "rotary": {
        "modules.rotary.ops": ("rotary_embedding",),
    },
    "sequences": {
        "modules.causal_conv1d.ops": ("causal_conv1d", "causal_conv1d_update"),
        "modules.token_shift": ("token_shift",),
        "ops.rwkv7.channel_mixing": ("channel_mixing_rwkv7",),
        "ops.rwkv7.fused_addcmul": ("fused_addcmul_rwkv7",),
        "ops.rwkv7.fused_k_update": ("fused_k_rwkv7",),
        "ops.rwkv7.gate_output_correction": ("gate_output_correction",),
    },
}


def _replaced() -> Iterator[tuple[Callable, Callable]]:
    """Pairs of a function of fla and tarn's."""
    from tarn._fla_package import functions

    for path, part in functions.parts():
        if path not in functions.ELSEWHERE:
            module = importlib.import_module(f"fla.ops.{path}")
            for name in part.__dict__["__all__"]:
                yield getattr(module, name), getattr(part, name)
    for part, places in _FORMS.items():
        forms = importlib.import_module(f"{__name__}.{part}")
        for path, names in places.items():
            module = importlib.import_module(f"fla.{path}")
            for name in names:
                yield getattr(module, name), getattr(forms, name)


def _patch_loss() -> None:
    """Wraps fla's loss module, which asserts that its input is not on a CPU before it calls
    the function that tarn replaces."""
    ops = importlib.import_module("fla.modules.fused_cross_entropy.ops")
    theirs = ops.FusedCrossEntropyLoss.forward

    @functools.wraps(theirs)
    def forward(self: Any, input: Any, target: Any) -> Any:
        if input.device.type != "cpu":
            return theirs(self, input, target)
        losses = ops.cross_entropy_loss(
            logits=input,
            target=target,
            label_smoothing=self.label_smoothing,
            logit_scale=self.logit_scale,
            lse_square_scale=self.lse_square_scale,
            logit_softcapping=self.logit_softcapping,
            ignore_index=self.ignore_index,
            process_group=self.process_group,
        )
        if self.reduction != "none":
            losses = tuple(loss.sum() for loss in losses)
        if self.reduction == "mean":
            count = (target != self.ignore_index).sum()
            losses = tuple(loss / count for loss in losses)
        return losses if self.return_z_loss else losses[0]

    ops.FusedCrossEntropyLoss.forward = forward


def _patch_everywhere(new: dict[int, Callable]) -> None:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "fla" or not isinstance(module, types.ModuleType):
            continue
        for attribute, value in list(vars(module).items()):
            if id(value) in new:
                setattr(module, attribute, new[id(value)])
    table = importlib.import_module("fla.modules.activations.ops").ACT2FN
    for name, value in list(table.items()):
        table[name] = new.get(id(value), value)


def install_as_fla() -> None:
    """Lets an installed flash-linear-attention 0.6 import without a GPU, and its layers
    and models run and train on CPU tensors over tarn's kernels: RetNet, GLA, HGRN, HGRN2,
    DeltaNet, Gated DeltaNet, Gated DeltaProduct, Comba, GSA, LightNet, Forgetting
    Transformer, KDA, RWKV-6, RWKV-7, Mamba-2 and linear attention, with packed and padded
    rows, prefill and steps. Triton need not be installed.

    For the whole process; imports torch, transformers and `fla`; a second call does
    nothing. Tensors on other devices run what they would run without it. A function of
    fla that has no form here raises when it is called on the CPU; a module of fla that is
    imported later, and needs Triton, raises ModuleNotFoundError where that is absent.

    Where the package is not installed, `fla.ops` and its modules are made, such as
    fla.ops.kda.gate, and hold the functions of `tarn.fla`: neither layers nor models.

    Raises:
        ImportError: fla is installed in another version than 0.6.
        RuntimeError: fla is installed, but `accelerate_transformers` was called before.
    """
    from tarn._fla_package import functions

    if importlib.machinery.PathFinder.find_spec("fla") is None and "fla" not in sys.modules:
        functions.make("fla")
        return
    if functions.made("fla"):
        if importlib.machinery.PathFinder.find_spec("fla") is None:
            return
        raise RuntimeError(
            "install_as_fla: want it called without accelerate_transformers, "
            "whose module fla holds functions alone"
        )
    if getattr(sys.modules.get("fla"), "__tarn__", False):
        return
    import torch
    import torch.utils._triton
    import transformers  # noqa: F401

    from tarn._fla_package import mamba2
    from tarn._fla_package.choice import on_cpu
    from tarn._fla_package.stand_in import triton_if_absent

    # Both look for Triton when their parts load, and remember what they saw: so before
    # the stand-in is there. fla decorates functions by torch.compile.
    torch.utils._triton.has_triton_package()
    torch.compile(lambda x: x)
    with triton_if_absent(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Triton is not supported")
        package = importlib.import_module("fla")
        if not package.__all__:  # imported before, without Triton: an empty shell
            package = importlib.reload(package)
        version = getattr(package, "__version__", "none")
        if not version.startswith("0.6."):
            raise ImportError(f"install_as_fla: want flash-linear-attention 0.6, got {version}")
        importlib.import_module("fla.layers")
        importlib.import_module("fla.models")
        pairs = list(_replaced())
    _patch_everywhere({id(theirs): on_cpu(ours, theirs) for theirs, ours in pairs})
    _patch_loss()
    mamba2.patch()
    package.__dict__["__tarn__"] = True
