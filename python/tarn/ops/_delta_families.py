"""Families of :func:`delta_attention` and :func:`dplr_attention`."""

from typing import Any, Literal, Unpack, overload

from torch import Tensor

from tarn.ops._gated import (
    ScaledOptions,
    SequenceOptions,
    delta_attention,
    dplr_attention,
)
from tarn.ops._rows import unit_norm

__all__ = ["delta_rule", "gated_delta_rule", "kda", "rwkv7"]


@overload
def rwkv7(
    queries: Tensor,
    gates: Tensor,
    keys: Tensor,
    values: Tensor,
    reads: Tensor,
    writes: Tensor,
    *,
    scale: float | None = 1.0,
    return_state: Literal[False] = False,
    **options: Unpack[SequenceOptions],
) -> Tensor: ...


@overload
def rwkv7(
    queries: Tensor,
    gates: Tensor,
    keys: Tensor,
    values: Tensor,
    reads: Tensor,
    writes: Tensor,
    *,
    scale: float | None = 1.0,
    return_state: Literal[True],
    **options: Unpack[SequenceOptions],
) -> tuple[Tensor, Tensor]: ...


@overload
def rwkv7(
    queries: Tensor,
    gates: Tensor,
    keys: Tensor,
    values: Tensor,
    reads: Tensor,
    writes: Tensor,
    *,
    scale: float | None = 1.0,
    return_state: bool,
    **options: Unpack[SequenceOptions],
) -> Tensor | tuple[Tensor, Tensor]: ...


def rwkv7(
    queries: Tensor,
    gates: Tensor,
    keys: Tensor,
    values: Tensor,
    reads: Tensor,
    writes: Tensor,
    *,
    scale: float | None = 1.0,
    **options: Any,
) -> Tensor | tuple[Tensor, Tensor]:
    """RWKV-7 (Peng et al. 2025, arXiv 2503.14456): :func:`dplr_attention` with the order of
    its r, w, k, v, a, b: queries are its receptance, gates [B, T, H, K] its log decay, reads
    its -kappa and writes its kappa * alpha. Differentiable to any order.

    Examples:
        >>> q, k, v, kappa = torch.randn(4, 2, 5, 4, 8)
        >>> kappa = torch.nn.functional.normalize(kappa, dim=-1)
        >>> gates = -torch.rand(2, 5, 4, 8)
        >>> ops.rwkv7(q, gates, k, v, reads=-kappa, writes=kappa * 0.5).shape
        torch.Size([2, 5, 4, 8])
    """
    return dplr_attention(queries, keys, values, reads, writes, gates=gates, scale=scale, **options)


@overload
def delta_rule(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    betas: Tensor,
    *,
    return_state: Literal[False] = False,
    **options: Unpack[ScaledOptions],
) -> Tensor: ...


@overload
def delta_rule(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    betas: Tensor,
    *,
    return_state: Literal[True],
    **options: Unpack[ScaledOptions],
) -> tuple[Tensor, Tensor]: ...


@overload
def delta_rule(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    betas: Tensor,
    *,
    return_state: bool,
    **options: Unpack[ScaledOptions],
) -> Tensor | tuple[Tensor, Tensor]: ...


def delta_rule(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    betas: Tensor,
    **options: Any,
) -> Tensor | tuple[Tensor, Tensor]:
    """DeltaNet: :func:`delta_attention` without gates. Differentiable to any order.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 5, 4, 8)
        >>> k = torch.nn.functional.normalize(k, dim=-1)
        >>> ops.delta_rule(q, k, v, torch.rand(2, 5, 4)).shape
        torch.Size([2, 5, 4, 8])
    """
    return delta_attention(queries, keys, values, betas, **options)


@overload
def gated_delta_rule(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    gates: Tensor,
    betas: Tensor,
    *,
    normalize: bool = False,
    return_state: Literal[False] = False,
    **options: Unpack[ScaledOptions],
) -> Tensor: ...


@overload
def gated_delta_rule(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    gates: Tensor,
    betas: Tensor,
    *,
    normalize: bool = False,
    return_state: Literal[True],
    **options: Unpack[ScaledOptions],
) -> tuple[Tensor, Tensor]: ...


@overload
def gated_delta_rule(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    gates: Tensor,
    betas: Tensor,
    *,
    normalize: bool = False,
    return_state: bool,
    **options: Unpack[ScaledOptions],
) -> Tensor | tuple[Tensor, Tensor]: ...


def gated_delta_rule(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    gates: Tensor,
    betas: Tensor,
    *,
    normalize: bool = False,
    **options: Any,
) -> Tensor | tuple[Tensor, Tensor]:
    """Gated DeltaNet: :func:`delta_attention` with gates [B, T, HV]. normalize: queries
    and keys are normalised to length 1 first. Differentiable to any order.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 5, 4, 8)
        >>> gates, betas = -torch.rand(2, 5, 4), torch.rand(2, 5, 4)
        >>> ops.gated_delta_rule(q, k, v, gates, betas, normalize=True).shape
        torch.Size([2, 5, 4, 8])
    """
    if normalize:
        queries, keys = unit_norm(queries), unit_norm(keys)
    return delta_attention(queries, keys, values, betas, gates=gates, **options)


@overload
def kda(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    gates: Tensor,
    betas: Tensor,
    *,
    normalize: bool = False,
    return_state: Literal[False] = False,
    **options: Unpack[ScaledOptions],
) -> Tensor: ...


@overload
def kda(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    gates: Tensor,
    betas: Tensor,
    *,
    normalize: bool = False,
    return_state: Literal[True],
    **options: Unpack[ScaledOptions],
) -> tuple[Tensor, Tensor]: ...


@overload
def kda(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    gates: Tensor,
    betas: Tensor,
    *,
    normalize: bool = False,
    return_state: bool,
    **options: Unpack[ScaledOptions],
) -> Tensor | tuple[Tensor, Tensor]: ...


def kda(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    gates: Tensor,
    betas: Tensor,
    *,
    normalize: bool = False,
    **options: Any,
) -> Tensor | tuple[Tensor, Tensor]:
    """Kimi delta attention (arXiv 2510.26692): :func:`gated_delta_rule` with a gate a
    channel, gates [B, T, HV, K]. Differentiable to any order.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 5, 4, 8)
        >>> gates, betas = -torch.rand(2, 5, 4, 8), torch.rand(2, 5, 4)
        >>> ops.kda(q, k, v, gates, betas, normalize=True).shape
        torch.Size([2, 5, 4, 8])
    """
    return gated_delta_rule(queries, keys, values, gates, betas, normalize=normalize, **options)
