"""The norms of fla.modules on the CPU, all of them `tarn.ops.gated_norm`. Names, arguments
and defaults are flash-linear-attention's 0.6."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tarn import ops
from tarn.fla._call import wide
from tarn.ops import _checks as checks


def _norm(x, weight, bias, eps, centred, groups=1, gate=None, activation="silu", gate_first=False):
    """The norm of the last axis, which is cut into groups; the result has the dtype of x."""
    width = x.shape[-1] // groups
    rows = x.reshape(1, -1, groups, width)
    if weight is None:
        weight = torch.ones(width, dtype=torch.float32, device=x.device)
        bias = None if bias is None else bias.view(groups, width)
        weight = weight if bias is None else weight.expand(groups, width)
    else:
        weight = weight.view(groups, width)
        bias = None if bias is None else bias.view(groups, width)
    if gate is not None:
        gate = gate.reshape(rows.shape)
    out = ops.gated_norm(
        rows,
        weight,
        bias,
        gate,
        eps=eps,
        centred=centred,
        activation=activation,
        gate_first=gate_first,
    )
    return out.view(x.shape)


def _with_residual(x, residual, residual_in_fp32):
    """What is normed, and what is handed on as the next residual."""
    if residual is None:
        return x, x.float() if residual_in_fp32 else x
    total = wide(x) + wide(residual)
    return total, total.to(residual.dtype)


def _normed(
    x,
    weight,
    bias,
    residual,
    eps,
    prenorm,
    residual_in_fp32,
    centred,
    groups=1,
    gate=None,
    activation="silu",
):
    total, handed_on = _with_residual(x, residual, residual_in_fp32)
    if gate is not None:
        dtype = torch.promote_types(total.dtype, gate.dtype)
        total, gate = total.to(dtype), gate.to(dtype)
    y = _norm(total, weight, bias, eps, centred, groups, gate, activation).to(x.dtype)
    return (y, handed_on) if prenorm else y


def layer_norm(
    x,
    weight,
    bias,
    residual=None,
    eps=1e-5,
    prenorm=False,
    residual_in_fp32=False,
    is_rms_norm=False,
):
    return _normed(x, weight, bias, residual, eps, prenorm, residual_in_fp32, not is_rms_norm)


def group_norm(
    x,
    weight,
    bias,
    residual=None,
    eps=1e-5,
    prenorm=False,
    residual_in_fp32=False,
    is_rms_norm=False,
    num_groups=1,
):
    if x.shape[-1] % num_groups != 0:
        raise ValueError("num_channels must be divisible by num_groups")
    return _normed(
        x, weight, bias, residual, eps, prenorm, residual_in_fp32, not is_rms_norm, num_groups
    )


def rms_norm(x, weight, bias, residual=None, eps=1e-5, prenorm=False, residual_in_fp32=False):
    return _normed(x, weight, bias, residual, eps, prenorm, residual_in_fp32, False)


def layer_norm_linear(
    x,
    norm_weight,
    norm_bias,
    linear_weight,
    linear_bias,
    residual=None,
    eps=1e-5,
    prenorm=False,
    residual_in_fp32=False,
    is_rms_norm=False,
    num_groups=1,
):
    y, handed_on = group_norm(
        x, norm_weight, norm_bias, residual, eps, True, residual_in_fp32, is_rms_norm, num_groups
    )
    out = F.linear(y.to(linear_weight.dtype), linear_weight, linear_bias)
    return (out, handed_on) if prenorm else out


def layer_norm_gated(
    x,
    g,
    weight,
    bias,
    activation="swish",
    residual=None,
    prenorm=False,
    residual_in_fp32=False,
    eps=1e-6,
):
    return _gated(x, g, weight, bias, activation, residual, prenorm, residual_in_fp32, eps, True)


def rms_norm_gated(
    x,
    g,
    weight,
    bias,
    activation="swish",
    residual=None,
    prenorm=False,
    residual_in_fp32=False,
    eps=1e-6,
):
    return _gated(x, g, weight, bias, activation, residual, prenorm, residual_in_fp32, eps, False)


def _gated(x, g, weight, bias, activation, residual, prenorm, residual_in_fp32, eps, centred):
    activation = "silu" if activation == "swish" else activation
    return _normed(
        x, weight, bias, residual, eps, prenorm, residual_in_fp32, centred, 1, g, activation
    )


def layer_norm_swish_gate_linear(
    x,
    g,
    norm_weight,
    norm_bias,
    linear_weight,
    linear_bias,
    residual=None,
    prenorm=False,
    residual_in_fp32=False,
    eps=1e-6,
):
    return _gated_linear(
        x,
        g,
        norm_weight,
        norm_bias,
        linear_weight,
        linear_bias,
        residual,
        prenorm,
        residual_in_fp32,
        eps,
        True,
    )


def rms_norm_swish_gate_linear(
    x,
    g,
    norm_weight,
    norm_bias,
    linear_weight,
    linear_bias,
    residual=None,
    prenorm=False,
    residual_in_fp32=False,
    eps=1e-6,
):
    return _gated_linear(
        x,
        g,
        norm_weight,
        norm_bias,
        linear_weight,
        linear_bias,
        residual,
        prenorm,
        residual_in_fp32,
        eps,
        False,
    )


def _gated_linear(
    x, g, weight, bias, linear_weight, linear_bias, residual, prenorm, in_fp32, eps, centred
):
    y, handed_on = _gated(x, g, weight, bias, "silu", residual, True, in_fp32, eps, centred)
    out = F.linear(y.to(linear_weight.dtype), linear_weight, linear_bias)
    return (out, handed_on) if prenorm else out


def l2norm(x, eps=1e-6, output_dtype=None):
    """x / sqrt(sum(x^2) + eps)."""
    return ops.unit_norm(x if output_dtype is None else x.to(output_dtype), eps=eps)


# ---- The norms of Mamba-2's layer.


def layernorm_fn(
    x, weight, bias, z=None, eps=1e-6, group_size=None, norm_before_gate=True, is_rms_norm=False
):
    """n(x) * weight + bias of groups of group_size channels, times silu(z) after it or,
    without norm_before_gate, of x silu(z)."""
    op, groups = "layernorm_fn", 1
    if group_size is not None:
        if group_size < 1 or x.shape[-1] % group_size != 0:
            raise checks.value_error(op, "group_size", f"a divisor of {x.shape[-1]}", group_size)
        groups = x.shape[-1] // group_size
    if z is None:
        return _norm(x, weight, bias, eps, not is_rms_norm, groups)
    checks.want_shape(op, "z", z, x.shape)
    dtype = torch.promote_types(x.dtype, z.dtype)
    return _norm(
        x.to(dtype),
        weight,
        bias,
        eps,
        not is_rms_norm,
        groups,
        z.to(dtype),
        gate_first=not norm_before_gate,
    ).to(x.dtype)


def rmsnorm_fn(x, weight, bias, z=None, eps=1e-6, group_size=None, norm_before_gate=True):
    return layernorm_fn(x, weight, bias, z, eps, group_size, norm_before_gate, True)
