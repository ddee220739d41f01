"""The formulas around recurrences: decay gates, rows of length 1, rows mixed with the one
before them, scaled heads, and RWKV's feed-forward part."""

import math
from typing import Literal, overload

import torch
from torch import Tensor

from tarn.ops import _checks as checks

__all__ = ["channel_mix", "decay_gate", "depth_bounds", "head_scale", "token_shift", "unit_norm"]

GateForm = Literal["softplus", "log_sigmoid", "bounded", "exponential", "sigmoid"]


def _want_tensors(op: str, **tensors: Tensor | None) -> None:
    for name, tensor in tensors.items():
        if tensor is not None:
            checks.want_tensor(op, name, tensor)


@overload
def decay_gate(
    x: Tensor,
    A_log: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    form: GateForm = "softplus",
    scale: float = 1.0,
    least: float = 0.0,
    most: float = math.inf,
    return_second: Literal[False] = False,
) -> Tensor: ...


@overload
def decay_gate(
    x: Tensor,
    A_log: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    form: GateForm = "softplus",
    scale: float = 1.0,
    least: float = 0.0,
    most: float = math.inf,
    return_second: Literal[True],
) -> tuple[Tensor, Tensor]: ...


@overload
def decay_gate(
    x: Tensor,
    A_log: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    form: GateForm = "softplus",
    scale: float = 1.0,
    least: float = 0.0,
    most: float = math.inf,
    return_second: bool,
) -> Tensor | tuple[Tensor, Tensor]: ...


def decay_gate(
    x: Tensor,
    A_log: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    form: GateForm = "softplus",
    scale: float = 1.0,
    least: float = 0.0,
    most: float = math.inf,
    return_second: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """The logarithms of decay factors from projected numbers, as each family makes them;
    with ``u = x + bias`` and ``rate = exp(A_log)``:

    ============= ================================= ==================================
    form          gate                              of
    ============= ================================= ==================================
    "softplus"    ``-rate softplus(u)``             Mamba-2, Gated DeltaNet, KDA
    "log_sigmoid" ``scale log sigma(u)``            GLA
    "bounded"     ``log(l + (1 - l) sigma(x))``     HGRN2, ``l = bias`` in [0, 1)
    "exponential" ``-exp(u)``                       RWKV-6
    "sigmoid"     ``-scale sigma(rate u)``          RWKV-7, KDA with a lower bound
    ============= ================================= ==================================

    Args:
        x: [..., N], float32, bfloat16, float16 or float64.
        A_log: [H], H a divisor of N: each number belongs to N / H entries side by side.
            None: zeros. Of "softplus" and "sigmoid" alone.
        bias: [N]. None: zeros; "bounded" needs it. Any floating dtype, as A_log.
        scale: of "log_sigmoid" and "sigmoid".
        least, most: limits of the steps softplus(u), of "softplus" alone, in its gates as
            well: Mamba-2's time_step_limit. 0 <= least <= most.
        return_second: whether to return the second result too, of "softplus" and
            "bounded" alone.

    Returns:
        The gates [..., N], at most 0, in float32 (float64 for float64), as their sums
        decide over a whole sequence; or (gates, second): the steps ``softplus(u)`` in that
        dtype, or the keys ``1 - exp(gate) = (1 - l) sigma(-x)`` in that of x.

    Raises:
        ValueError: shapes, devices, an unknown form, a tensor that the form does not take.
        TypeError: types and dtypes. Both before any work.

    O(N) time a row; the gradient keeps the inputs alone. The kernel serves the three
    smaller dtypes on the CPU, with the same bits for any number of threads; the rest is
    composed from torch's operators. Nothing cancels for any size of x. Differentiable to
    any order. Thread-safe. After arXiv 2405.21060, 2412.06464, 2510.26692, 2312.06635,
    2404.07904, 2404.05892 and 2503.14456.

    Examples:
        >>> x, A_log = torch.randn(2, 5, 4), torch.zeros(4)
        >>> ops.decay_gate(x, A_log, torch.zeros(4)).shape
        torch.Size([2, 5, 4])
        >>> bound = torch.full((4,), 0.25)
        >>> gates, keys = ops.decay_gate(x, None, bound, form="bounded", return_second=True)
        >>> torch.allclose(keys, 1 - gates.exp(), atol=1e-6)
        True
    """
    op = "decay_gate"
    checks.want_tensor(op, "x", x)
    _want_tensors(op, A_log=A_log, bias=bias)
    gates, second = torch.ops.tarn.decay_gate.default(
        x,
        A_log,
        bias,
        form,
        float(scale),
        bool(return_second),
        float(least),
        None if most == math.inf else float(most),
    )
    return (gates, second) if return_second else gates


def depth_bounds(logits: Tensor) -> Tensor:
    """Lower bounds of HGRN2's decay factors (Qin et al. 2024, arXiv 2404.07904, section
    3.1), which rise over the layers of a model: with ``p = softmax(logits, 0)`` the bounds
    of layer i are ``p_1 + ... + p_i``, those of layer 0 are 0.

    Args:
        logits: [layers, N], float32, bfloat16, float16 or float64.

    Returns: as logits, in [0, 1): row i is the `bias` of :func:`decay_gate` in its form
        "bounded" in layer i. Equal logits give i / layers.
    Raises: ValueError, TypeError, before any work.

    Arithmetic is float32 at least. Differentiable to any order, on any device. O(layers N).
    Thread-safe.

    Examples:
        >>> ops.depth_bounds(torch.zeros(4, 1)).flatten()
        tensor([0.0000, 0.2500, 0.5000, 0.7500])
    """
    checks.want_tensor("depth_bounds", "logits", logits)
    return torch.ops.tarn.depth_bounds.default(logits)


def unit_norm(x: Tensor, *, eps: float = 1e-6) -> Tensor:
    """Rows of length 1: ``x / sqrt(sum(x^2) + eps)`` over the last axis, as the delta rule
    wants its keys.

    Args:
        x: [..., K], float32, bfloat16, float16 or float64.
        eps: under the root, at least 0; a row of zeros stays.

    Returns: as x, dense.
    Raises: ValueError, TypeError, before any work.

    Arithmetic is float32 at least, with one rounding. Differentiable to any order; the
    kernel serves the three smaller dtypes on the CPU, with the same bits for any number of
    threads. Thread-safe.

    Examples:
        >>> keys = ops.unit_norm(torch.randn(2, 5, 4, 8))
        >>> torch.allclose(keys.norm(dim=-1), torch.ones(2, 5, 4), atol=1e-3)
        True
    """
    checks.want_tensor("unit_norm", "x", x)
    return torch.ops.tarn.unit_norm.default(x, float(eps))


def token_shift(
    x: Tensor,
    weight: Tensor | None = None,
    *,
    before: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
) -> Tensor:
    """Each row mixed with the one before it in its sequence, x': ``x + weight * (x' - x)``,
    or without a weight the change ``x' - x`` alone.

    Args:
        x: [B, T, D], float32, bfloat16, float16 or float64.
        weight: [D], of any floating dtype.
        before: the row in front of the first, [B, D], or [N, D] with cu_seqlens, which is
            cast to the dtype of x. None: zeros.
        cu_seqlens: [N + 1], 0 = first, T = last: N sequences packed along T with B = 1.

    Returns: as x, dense.
    Raises: ValueError, TypeError, before any work.

    O(B T D) time. Arithmetic is float32 at least, with one rounding. Differentiable to any
    order; the kernel serves the three smaller dtypes on the CPU, with the same bits for any
    number of threads. Thread-safe. After Peng et al. 2024 (arXiv 2404.05892).

    Examples:
        >>> x = torch.tensor([[[1.0], [2.0], [4.0]]])
        >>> ops.token_shift(x).flatten().tolist()
        [-1.0, -1.0, -2.0]
        >>> ops.token_shift(x, torch.tensor([0.5])).flatten().tolist()
        [0.5, 1.5, 3.0]
    """
    checks.want_tensor("token_shift", "x", x)
    _want_tensors("token_shift", weight=weight, before=before, cu_seqlens=cu_seqlens)
    return torch.ops.tarn.token_shift.default(x, before, weight, cu_seqlens)


def head_scale(values: Tensor, factors: Tensor, base: Tensor | None = None) -> Tensor:
    """``base + factors * values``, a factor for each head: Mamba-2's steps times values,
    and its skip.

    Args:
        values: [..., H, V], float32, bfloat16, float16 or float64.
        factors: [H], or [..., H], a number for each row too; any floating dtype.
        base: as values; None: zeros.

    Returns: as values, dense; in the dtype of the base, where one is given.
    Raises: ValueError, TypeError, before any work.

    Arithmetic is float32 at least, with one rounding. Differentiable to any order; the
    kernel serves the three smaller dtypes on the CPU, with the same bits for any number of
    threads. Thread-safe.

    Examples:
        >>> values = torch.ones(2, 5, 3, 4)
        >>> ops.head_scale(values, torch.tensor([1.0, 2.0, 3.0]))[0, 0, :, 0].tolist()
        [1.0, 2.0, 3.0]
    """
    checks.want_tensor("head_scale", "values", values)
    checks.want_tensor("head_scale", "factors", factors)
    _want_tensors("head_scale", base=base)
    return torch.ops.tarn.head_scale.default(values, factors, base)


def channel_mix(
    x: Tensor,
    shift: Tensor,
    weight1: Tensor,
    weight2: Tensor,
    *,
    before: Tensor | None = None,
    dropout: float = 0.0,
    seed: Tensor | None = None,
) -> Tensor:
    """RWKV's feed-forward part: ``drop(max(z @ weight1.T, 0)^2) @ weight2.T`` with
    ``z = x + shift * (x' - x)``, x' the row before x.

    Args:
        x: [B, T, D]; shift: [D]; weight1: [F, D]; weight2: [E, F].
        before: the row in front of the first, [B, D]. None: zeros.
        dropout: probability in [0, 1). seed: of `draw_seed`, wanted above 0.

    Returns: [B, T, E].
    Raises: ValueError, TypeError. Thread-safe.

    A composition of `token_shift`, two products and one pass for the square, each with its
    kernel and gradient. Differentiable to any order. After Peng et al. 2025
    (arXiv 2503.14456).

    Examples:
        >>> x, shift = torch.randn(2, 5, 16), torch.full((16,), 0.5)
        >>> weight1, weight2 = torch.randn(64, 16), torch.randn(16, 64)
        >>> ops.channel_mix(x, shift, weight1, weight2).shape
        torch.Size([2, 5, 16])
    """
    op = "channel_mix"
    for name, tensor in {"x": x, "shift": shift, "weight1": weight1, "weight2": weight2}.items():
        checks.want_tensor(op, name, tensor)
    _want_tensors(op, before=before, seed=seed)
    return torch.ops.tarn.channel_mix.default(
        x, before, shift, weight1, weight2, float(dropout), seed
    )
