"""Decides where one fused pass may replace several modules: float32 on the CPU,
outside autocast, modules of torch's own classes without hooks. Anything else
(another class in a layer's place, a hook, a parametrisation, another dtype or
device) is called as it is."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.modules.module as torch_modules

from tarn import ops
from tarn._norms import KINDS, kind_of

# Below this many rows, copying weights for a fused pass costs more than it saves.
_FEW_ROWS = 32


class Branch(NamedTuple):
    """The output of a part of a layer without what a later pass applies: the last
    product with `weight` [D, V], and `bias` [D]; None: already applied."""

    rows: torch.Tensor
    bias: torch.Tensor | None = None
    weight: torch.Tensor | None = None


def serves(*tensors: torch.Tensor) -> bool:
    """Whether the kernels take these tensors. A training step calls this some fifty
    times, so it is a plain loop over what is cheap to read."""
    for tensor in tensors:
        if tensor.dtype is not torch.float32 or not tensor.is_cpu:
            return False
    return not torch.is_autocast_enabled("cpu")


def has_no_hooks(module: torch.nn.Module) -> bool:
    """Whether a call of the module runs nothing but its class's forward."""
    return not (
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or "forward" in module.__dict__
        or torch_modules._has_any_global_hook()
    )


def linears(*modules: Any, bias: bool = True) -> list[torch.nn.Linear]:
    """The modules if all are plain affine maps that the kernels serve, with biases or
    without as `bias` says; else an empty list."""
    weights = []
    for module in modules:
        if type(module) is not torch.nn.Linear or not has_no_hooks(module):
            return []
        if (module.bias is not None) != bias:
            return []
        weights.append(module.weight)
    return list(modules) if serves(*weights) else []


def dropout_of(module: torch.nn.Module) -> float | None:
    """The probability with which a plain dropout acts now; None for another module,
    or where everything is dropped."""
    if type(module) is not torch.nn.Dropout or not has_no_hooks(module) or module.p >= 1:
        return None
    return module.p if module.training else 0.0


def plain_norm(norm: torch.nn.Module) -> dict | None:
    """The arguments for `tarn.ops.residual_norm`; None for a norm that it cannot compute."""
    arguments = _norm_arguments(norm)
    return arguments if type(norm) in KINDS.values() else None


def _norm_arguments(norm: torch.nn.Module | None) -> dict | None:
    """The arguments that plain_norm finds, also for a norm with an offset; an empty
    dictionary without a norm."""
    if norm is None:
        return {}
    given: Any = norm
    kind = kind_of(norm)
    if kind is None or not has_no_hooks(norm):
        return None
    gamma, beta = given.weight, getattr(norm, "bias", None)
    if gamma is None or gamma.dim() != 1 or given.eps is None or not serves(gamma):
        return None
    if type(norm) not in KINDS.values():
        gamma = gamma + given.offset
    return {"gamma": gamma, "beta": beta, "eps": given.eps, "kind": kind}


def add_residual(
    branch: Branch,
    residual: torch.Tensor,
    dropout: torch.nn.Module,
    norm: torch.nn.Module | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """s = residual + dropout(branch) and y = norm(s), or s twice without a norm, in
    one pass where possible."""
    rows, bias = unbiased(branch)
    arguments, share = _norm_arguments(norm), dropout_of(dropout)
    fused = serves(rows, residual) and rows.shape == residual.shape
    if fused and arguments is not None and share is not None:
        y, s = ops.residual_norm(
            rows, residual, bias, dropout=share, seed=ops.draw_seed(share), **arguments
        )
        return (s if y is None else y), s
    s = residual + dropout(rows if bias is None else rows + bias)
    return (s if norm is None else norm(s)), s


def normed(norm: torch.nn.Module | None, x: torch.Tensor) -> torch.Tensor:
    """norm(x), in one pass where possible; x without a norm."""
    arguments = _norm_arguments(norm)
    if norm is None or arguments is None or not serves(x):
        return x if norm is None else norm(x)
    y, _ = ops.residual_norm(x, **arguments)
    assert y is not None
    return y


def unbiased(branch: Branch) -> tuple[torch.Tensor, torch.Tensor | None]:
    """A branch without its bias, and the bias; a branch may be any tuple."""
    rows, bias, weight = Branch(*branch)
    return (rows if weight is None else ops.affine(rows, weight)), bias


def whole(branch: Branch) -> torch.Tensor:
    """A branch with its bias."""
    rows, bias = unbiased(branch)
    return rows if bias is None else rows + bias


def layer_rest(
    branch: Branch,
    residual: torch.Tensor,
    dropout: torch.nn.Module,
    norms: tuple[torch.nn.Module, torch.nn.Module | None],
    maps: tuple[torch.nn.Module, torch.nn.Module],
    activation: str | None,
) -> torch.Tensor | None:
    """A layer from the last product of its last attention on, in one call. norms:
    the one after that attention and the last one (None: pre-norm). maps: the two of
    the feed-forward network. None where the operator does not compute it."""
    rows, bias, weight = Branch(*branch)
    if weight is None or activation is None or not serves(rows, residual):
        return None
    if rows.shape[:-1] != residual.shape[:-1] or weight.shape[0] != residual.shape[-1]:
        return None  # the branch is broadcast over the rows
    few = not torch.compiler.is_compiling() and residual.numel() < _FEW_ROWS * weight.shape[0]
    if few:
        return None
    middle, end, share = plain_norm(norms[0]), {}, dropout_of(dropout)
    if norms[1] is not None:
        end = plain_norm(norms[1])
    plain = linears(*maps)
    if middle is None or end is None or share is None or not plain:
        return None
    if end and (end["kind"], end["eps"]) != (middle["kind"], middle["eps"]):
        return None
    return ops.layer_rest(
        residual,
        rows,
        weight,
        bias,
        middle["gamma"],
        middle["beta"],
        plain[0].weight,
        plain[0].bias,
        plain[1].weight,
        plain[1].bias,
        end.get("gamma"),
        end.get("beta"),
        eps=middle["eps"],
        activation=activation,
        kind=middle["kind"],
        dropout=(share,) * 3,
        seeds=ops.draw_seeds(3) if share else None,
    )


def affine(maps: tuple[torch.nn.Module, ...], x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Affine maps of one tensor; up to four maps of a sequence [N, L, D] take one call."""
    plain = linears(*maps) if serves(x) else []
    if not plain:
        return tuple(part(x) for part in maps)
    if x.dim() == 2 or len(plain) == 1:
        return tuple(ops.affine(x, part.weight, part.bias) for part in plain)
    weights = [part.weight for part in plain]
    packed = ops.layer_heads(x, weights, [part.bias for part in plain])
    return tuple(torch.ops.tarn.pieces.default(packed, [w.shape[0] for w in weights]))
