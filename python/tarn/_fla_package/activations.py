"""The activations of fla.modules on the CPU, in torch's operators: computed in float32
for smaller types, and rounded once."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tarn.fla._call import wide

swish = F.silu


def sigmoid(x):
    """In float32: torch's gradient is computed from the rounded result."""
    return wide(x).sigmoid().to(x.dtype)


def elu_p1(x):
    """x + 1 above 0, exp(x) below: never (exp(x) - 1) + 1, which cancels."""
    values = wide(x)
    return (F.relu(values) + values.clamp(max=0).exp()).to(x.dtype)


def sqrelu(x):
    """Neither the relu nor its double, the slope, is rounded."""
    return F.relu(x).square()


def logsigmoid(x, temperature=1.0):
    return (F.logsigmoid(wide(x)) / temperature).to(x.dtype)


def _gated(x, y, silu):
    values = wide(x)
    if values is not x and not (torch.is_grad_enabled() and (x.requires_grad or y.requires_grad)):
        gate = F.silu(values, inplace=True) if silu else values.sigmoid_()
        return gate.mul_(y).to(x.dtype)  # over one buffer, as no gradient reads another
    gate = F.silu(values) if silu else values.sigmoid()
    return (gate * wide(y)).to(x.dtype)


def swiglu(x, y):
    return _gated(x, y, True)


def swiglu_linear(x, y, weight, bias):
    return F.linear(swiglu(x, y), weight, bias)


def sigmoidglu(x, y):
    return _gated(x, y, False)


def sigmoidglu_linear(x, y, weight, bias):
    return F.linear(sigmoidglu(x, y), weight, bias)


def powglu(x, y, power=3.0):
    """g(x) y, g(x) = x^(power / (sqrt(x) + 1)) sigmoid(x) above 0, x sigmoid(x) below
    (arXiv 2605.25704)."""
    values = wide(x)
    above = values > 0
    base = torch.where(above, values, 1.0)  # no slope of a root or a power at 0 or below
    gate = torch.where(above, base ** (power / (base.sqrt() + 1)), values) * values.sigmoid()
    return (gate * wide(y)).to(x.dtype)


def powglu_linear(x, y, weight, bias, power=3.0):
    return F.linear(powglu(x, y, power), weight, bias)


def fast_gelu_impl(x):
    return F.gelu(x, approximate="tanh")


def bias_gelu_impl(y, bias):
    return F.gelu(wide(y) + wide(bias), approximate="tanh").to(y.dtype)
