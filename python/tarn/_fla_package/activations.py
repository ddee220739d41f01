"""The activations of fla.modules on the CPU: computed in float32 for smaller types, and
rounded once. Forms of single entries are one pass of `torch.ops.tarn.entry_form`, the rest
is torch's operators."""

from __future__ import annotations

import torch
import torch.nn.functional as F

swish = F.silu


def _form(name, x, y=None, weight=None, scale=1.0):
    return torch.ops.tarn.entry_form.default(x, y, weight, name, scale)


def sigmoid(x):
    """The gradient is computed from x; torch's from the result, which 16 bits round."""
    return _form("sigmoid", x)


def elu_p1(x):
    """x + 1 above 0, exp(x) below: never (exp(x) - 1) + 1, which cancels."""
    return _form("elu1", x)


def sqrelu(x):
    """Neither the relu nor its double, the slope, is rounded."""
    return _form("square_relu", x)


def logsigmoid(x, temperature=1.0):
    return _form("log_sigmoid", x, scale=1.0 / temperature)


def swiglu(x, y):
    return _form("silu_gate", x, y)


def swiglu_linear(x, y, weight, bias):
    return F.linear(swiglu(x, y), weight, bias)


def sigmoidglu(x, y):
    return _form("sigmoid_gate", x, y)


def sigmoidglu_linear(x, y, weight, bias):
    return F.linear(sigmoidglu(x, y), weight, bias)


def powglu(x, y, power=3.0):
    """g(x) y, g(x) = x^(power / (sqrt(x) + 1)) sigmoid(x) above 0, x sigmoid(x) below
    (arXiv 2605.25704)."""
    return _form("power_gate", x, y, scale=power)


def powglu_linear(x, y, weight, bias, power=3.0):
    return F.linear(powglu(x, y, power), weight, bias)


def fast_gelu_impl(x):
    return F.gelu(x, approximate="tanh")


def bias_gelu_impl(y, bias):
    return _form("gelu", y, weight=bias)
