"""Recurrences with decay, the delta rule or a low-rank change: one state S [K, V] a value head
that forgets, takes in a key and a value a token, and is read by a query.
Three operators compute all of them; `_decay_families` and `_delta_families` have the
families' names for them."""

from typing import Any, Literal, TypedDict, Unpack, overload

import torch
from torch import Tensor

from tarn.ops import _checks as checks

__all__ = ["decay_attention", "delta_attention", "dplr_attention"]


# Options that overloads share; the docstrings say what they mean.
class SequenceOptions(TypedDict, total=False):
    lengths: Tensor | None
    cu_seqlens: Tensor | None
    initial_state: Tensor | None


class ScaledOptions(SequenceOptions, total=False):
    scale: float | None


class GateOptions(ScaledOptions, total=False):
    gates: Tensor | None


class DecayOptions(GateOptions, total=False):
    bonus: Tensor | None


def _call(
    op: str,
    operands: dict[str, Tensor],
    optional: dict[str, Tensor | None],
    scale: float | None,
    return_state: bool,
) -> Any:
    for name, tensor in operands.items():
        checks.want_tensor(op, name, tensor)
    for name, tensor in optional.items():
        if tensor is not None:
            checks.want_tensor(op, name, tensor)
    checks.warn_layout(op, operands["queries"])
    if scale is None:
        scale = operands["queries"].shape[-1] ** -0.5
    if not isinstance(scale, (int, float)):
        raise checks.type_error(op, "scale", "a number or None", type(scale).__name__)
    first = [operands["queries"], operands["keys"], operands["values"]]
    gates = optional["gates"]
    if "reads" in operands:
        function = torch.ops.tarn.dplr_attention
        first += [operands["reads"], operands["writes"], gates]
    elif "betas" in operands:
        function = torch.ops.tarn.delta_attention
        first += [gates, operands["betas"]]
    else:
        function = torch.ops.tarn.decay_attention
        first += [gates, optional["bonus"]]
    out, state, _ = function.default(
        *first,
        optional["lengths"],
        optional["cu_seqlens"],
        optional["initial_state"],
        float(scale),
        bool(return_state),
    )
    return (out, state) if return_state else out


@overload
def decay_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    return_state: Literal[False] = False,
    **options: Unpack[DecayOptions],
) -> Tensor: ...


@overload
def decay_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    return_state: Literal[True],
    **options: Unpack[DecayOptions],
) -> tuple[Tensor, Tensor]: ...


@overload
def decay_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    return_state: bool,
    **options: Unpack[DecayOptions],
) -> Tensor | tuple[Tensor, Tensor]: ...


def decay_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    gates: Tensor | None = None,
    bonus: Tensor | None = None,
    lengths: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    initial_state: Tensor | None = None,
    scale: float | None = None,
    return_state: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Linear attention whose state decays, without a denominator:
    ``S_t = Diag(exp(g_t)) S_{t-1} + k_t v_t^T``, ``out_t = scale S_t^T q_t``.

    Args:
        queries, keys: [B, T, H, K]; values: [B, T, HV, V], HV a multiple of H, value
            head h reading queries and keys of head h // (HV / H). One dtype out of
            float32, bfloat16, float16 and float64.
        gates: natural logarithms of the decay factors: [HV], one a value head;
            [B, T, HV], one a token too; or [B, T, HV, K], one a channel of the keys.
            Any number; -inf forgets exactly. None: no decay.
        bonus: [HV, K]. With it a token is read before it is taken in, and adds
            itself by its own factor: ``out_t = scale (S_{t-1} + Diag(u) k_t v_t^T)^T q_t``.
        lengths: [B] int32 or int64, tokens in use at the front of each row. Pads
            touch no state, whatever they hold, and their outputs are 0.
        cu_seqlens: [N + 1], 0 = first, T = last: N sequences packed along T with
            B = 1. It excludes `lengths`.
        initial_state: [B, HV, K, V] or [N, HV, K, V], float32 (float64 with
            float64 queries). None: zeros. It receives a gradient.
        scale: factor of the queries; None: K^-1/2.
        return_state: whether to return the state after the last token too.

    Returns:
        out [B, T, HV, V] in the dtype of values, or (out, state). T = 0 and B = 0
        are valid.

    Raises:
        ValueError: shapes, devices. TypeError: types and dtypes. Both before any work.

    O(B T HV K V) time; the gradient keeps the inputs and a state every 256 tokens.
    Kernels serve the three smaller dtypes on the CPU, with the same bits for any
    number of threads; the rest is composed from torch's operators. Differentiable to
    any order. Thread-safe. After Sun et al. 2023 (arXiv 2307.08621), Yang et al.
    2023 (arXiv 2312.06635), Dao and Gu 2024 (arXiv 2405.21060).

    Examples:
        >>> q, k, v = torch.randn(3, 2, 5, 4, 8)
        >>> gates = -torch.rand(2, 5, 4)
        >>> out, state = ops.decay_attention(q, k, v, gates=gates, return_state=True)
        >>> out.shape, state.shape
        (torch.Size([2, 5, 4, 8]), torch.Size([2, 4, 8, 8]))
    """
    return _call(
        "decay_attention",
        {"queries": queries, "keys": keys, "values": values},
        {
            "gates": gates,
            "bonus": bonus,
            "lengths": lengths,
            "cu_seqlens": cu_seqlens,
            "initial_state": initial_state,
        },
        scale,
        return_state,
    )


@overload
def delta_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    betas: Tensor,
    *,
    return_state: Literal[False] = False,
    **options: Unpack[GateOptions],
) -> Tensor: ...


@overload
def delta_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    betas: Tensor,
    *,
    return_state: Literal[True],
    **options: Unpack[GateOptions],
) -> tuple[Tensor, Tensor]: ...


@overload
def delta_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    betas: Tensor,
    *,
    return_state: bool,
    **options: Unpack[GateOptions],
) -> Tensor | tuple[Tensor, Tensor]: ...


def delta_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    betas: Tensor,
    *,
    gates: Tensor | None = None,
    lengths: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    initial_state: Tensor | None = None,
    scale: float | None = None,
    return_state: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """The delta rule: what the state holds at a key is replaced by the value, as far
    as beta says. ``W = Diag(exp(g_t)) S_{t-1}``,
    ``S_t = W + beta_t k_t (v_t - W^T k_t)^T``, ``out_t = scale S_t^T q_t``.

    betas: [B, T, HV], any number; keys are meant to have length 1
    (:func:`unit_norm`), where 0 to 1 forgets and up to 2 reflects. Everything else
    is as in :func:`decay_attention`. Differentiable to any order. After Yang et al.
    2024 (arXiv 2406.06484, and 2412.06464 with gates).

    Examples:
        >>> q, k, v = torch.randn(3, 2, 5, 4, 8)
        >>> k = torch.nn.functional.normalize(k, dim=-1)
        >>> ops.delta_attention(q, k, v, torch.rand(2, 5, 4)).shape
        torch.Size([2, 5, 4, 8])
    """
    return _call(
        "delta_attention",
        {"queries": queries, "keys": keys, "values": values, "betas": betas},
        {
            "gates": gates,
            "lengths": lengths,
            "cu_seqlens": cu_seqlens,
            "initial_state": initial_state,
        },
        scale,
        return_state,
    )


@overload
def dplr_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    reads: Tensor,
    writes: Tensor,
    *,
    return_state: Literal[False] = False,
    **options: Unpack[GateOptions],
) -> Tensor: ...


@overload
def dplr_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    reads: Tensor,
    writes: Tensor,
    *,
    return_state: Literal[True],
    **options: Unpack[GateOptions],
) -> tuple[Tensor, Tensor]: ...


@overload
def dplr_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    reads: Tensor,
    writes: Tensor,
    *,
    return_state: bool,
    **options: Unpack[GateOptions],
) -> Tensor | tuple[Tensor, Tensor]: ...


def dplr_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    reads: Tensor,
    writes: Tensor,
    *,
    gates: Tensor | None = None,
    lengths: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    initial_state: Tensor | None = None,
    scale: float | None = None,
    return_state: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """A state that changes by a diagonal plus a low-rank matrix:
    ``S_t = Diag(exp(g_t)) S_{t-1} + b_t (S_{t-1}^T c_t)^T + k_t v_t^T``,
    ``out_t = scale S_t^T q_t``. It stays bounded only where the transition
    ``Diag(exp(g)) + b c^T`` does not grow.

    reads (c), writes (b): [B, T, H, K] in the dtype of queries; c is applied before the
    decay. values have H heads. Everything else is as in :func:`decay_attention`.
    Differentiable to any order. After Peng et al. 2025 (arXiv 2503.14456).

    Examples:
        >>> q, k, v, reads = torch.randn(4, 2, 5, 4, 8)
        >>> reads = torch.nn.functional.normalize(reads, dim=-1)
        >>> out = ops.dplr_attention(q, k, v, reads, -reads, gates=-torch.rand(2, 5, 4, 8))
        >>> out.shape
        torch.Size([2, 5, 4, 8])
    """
    return _call(
        "dplr_attention",
        {"queries": queries, "keys": keys, "values": values, "reads": reads, "writes": writes},
        {
            "gates": gates,
            "lengths": lengths,
            "cu_seqlens": cu_seqlens,
            "initial_state": initial_state,
        },
        scale,
        return_state,
    )
