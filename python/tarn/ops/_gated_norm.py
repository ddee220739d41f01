"""The norm after a recurrence, with its output gate."""

import torch
from torch import Tensor

from tarn.ops import _checks as checks

__all__ = ["gated_norm"]

_NAME = "gated_norm"


def gated_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    gate: Tensor | None = None,
    *,
    eps: float = 1e-5,
    centred: bool = False,
    activation: str = "silu",
    gate_first: bool = False,
) -> Tensor:
    """``(n(x) * weight + bias) * a(gate)``, or with `gate_first`
    ``n(x * a(gate)) * weight + bias``, over the last axis, where
    ``n(u) = u / sqrt(mean(u^2) + eps)``, centred ``(u - mean) / sqrt(var + eps)``.

    Args:
        x: [B, T, G, W], float32, bfloat16, float16 or float64: T tokens of G groups,
            each of which is normed by itself.
        weight: [W], shared by the groups, or [G, W].
        bias: as weight; None: zeros.
        gate: as x, of its dtype; None: no gate, and the two options below mean nothing.
        eps: inside the root, at least 0.
        centred: whether the mean is removed (a group norm, as in RWKV).
        activation: a, "silu" or "sigmoid".
        gate_first: the gate meets x before the norm, as in Mamba-2, not its result.

    Returns:
        As x, dense. B = 0 and T = 0 are valid.

    Raises:
        ValueError: shapes, devices, an unknown activation, eps below 0. TypeError:
        types and dtypes. Both before any work.

    O(B T G W) time; the gradient keeps the inputs alone. The kernel serves the three
    smaller dtypes on the CPU, with arithmetic in float32 and the same bits for any number
    of threads; the rest is composed from torch's operators. Differentiable to any order.
    Thread-safe. After the layers of Gated DeltaNet (arXiv 2412.06464), Mamba-2
    (arXiv 2405.21060) and RWKV-7 (arXiv 2503.14456).

    Examples:
        >>> x, gate = torch.randn(2, 2, 5, 4, 8)
        >>> ops.gated_norm(x, torch.ones(8), gate=gate).shape
        torch.Size([2, 5, 4, 8])
    """
    for name, tensor in {"x": x, "weight": weight, "bias": bias, "gate": gate}.items():
        if tensor is not None or name in ("x", "weight"):
            checks.want_tensor(_NAME, name, tensor)
    if activation not in ("silu", "sigmoid"):
        raise checks.value_error(_NAME, "activation", '"silu" or "sigmoid"', repr(activation))
    return torch.ops.tarn.gated_norm.default(
        x, weight, bias, gate, float(eps), bool(centred), activation, bool(gate_first)
    )
