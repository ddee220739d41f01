"""Linear attention: whole sequences and single tokens (Katharopoulos et al.
2020, arXiv 2006.16236)."""

from __future__ import annotations

from typing import Literal, TypedDict, Unpack, overload

import torch
from torch import Tensor

from tarn.ops import _checks as checks
from tarn.ops import _fla
from tarn.ops._mapped_attention import (
    mapped_linear_attention,
    mapped_linear_attention_step,
)
from tarn.ops._state import LinearState, StateLike

__all__ = ["linear_attention", "linear_attention_step"]

_OP = "linear_attention"
_STEP = "linear_attention_step"


# Options that the overloads share; the docstring says what they mean.
class _Options(TypedDict, total=False):
    causal: bool
    causal_offset: int
    feature_map: str
    key_mask: Tensor | None
    key_lengths: Tensor | None
    cu_seqlens: Tensor | None
    denominator: str
    eps: float
    scale: float
    initial_state: StateLike | None
    chunk_size: int | None


@overload
def linear_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    return_state: Literal[False] = False,
    **options: Unpack[_Options],
) -> Tensor: ...


@overload
def linear_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    return_state: Literal[True],
    **options: Unpack[_Options],
) -> tuple[Tensor, LinearState]: ...


@overload
def linear_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    return_state: bool,
    **options: Unpack[_Options],
) -> Tensor | tuple[Tensor, LinearState]: ...


def linear_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    causal: bool = True,
    causal_offset: int = 0,
    feature_map: str = "elu1",
    key_mask: Tensor | None = None,
    key_lengths: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    denominator: str = "exact",
    eps: float = 1e-6,
    scale: float = 1.0,
    initial_state: StateLike | None = None,
    return_state: bool = False,
    chunk_size: int | None = None,
) -> Tensor | tuple[Tensor, LinearState]:
    """Linear attention over whole sequences, in chunked form.

    Query i reads the keys A(i): all kept keys, if causal those with
    j <= i + causal_offset. With (S_0, z_0) the initial state,
    ``out_i = phi(q_i)^T (S_0 + sum phi(k_j) v_j^T) / phi(q_i)^T (z_0 + sum phi(k_j))``.
    A query that reads nothing gets 0 and sends no gradient.

    Shapes: B batch, T queries, S keys, H heads, HV value heads (a multiple of
    H; value head h reads query and key head h // (HV / H)), K and V widths, C
    the feature map's output width (K for these maps).

    Args:
        queries: [B, T, H, K], float32, bfloat16, float16 or float64. Any
            strides; only a last axis that is not dense is copied.
        keys: [B, S, H, K], dtype of queries.
        values: [B, S, HV, V], dtype of queries.
        causal: whether a query reads only keys up to its own position.
        causal_offset: tokens by which queries come later than keys; may be
            negative. S - T aligns the last query with the last key.
        feature_map: phi, "elu1" (elu(x) + 1), "identity", "relu" (max(x, 0)),
            "relu2" (its square) or "softplus" (log(1 + exp(x))).
            mapped_linear_attention takes more.
        key_mask: [B, S] bool, True = keep. None keeps all. What is masked, NaN
            included, has no influence. Combines with key_lengths.
        key_lengths: [B] int32 or int64, keys kept at the front of each row.
        cu_seqlens: [N + 1] int32 or int64, 0 = first, S = T = last: N sequences
            packed along T with B = 1. None: one sequence per row.
        denominator: "exact" (a weighted average; no eps, no scale), "compat"
            (eps added to it, as idiap/fast-transformers does), "none" (the sum
            undivided) or "signed" (kept away from 0, for "identity" features of
            both signs; see mapped_linear_attention).
        eps: positive, used by "compat".
        scale: positive factor of phi(q); cancels under "exact".
        initial_state: LinearState or pair (S [B, HV, C, V], z [B, HV, C]),
            float32 (float64 with float64 queries); [N, ...] with cu_seqlens.
            None: zeros. Not modified; receives a gradient.
        return_state: whether to return the state after all kept keys too.
        chunk_size: tokens in one matrix step, 16, 32, 64 or None (best). Results
            differ by rounding only.

    Returns:
        out [B, T, HV, V] with the dtype of queries, or (out, LinearState).
        T = 0, S = 0 and B = 0 are valid.

    Raises:
        ValueError: shapes, ranges, devices. TypeError: types and dtypes. Both
        before any work.

    CPU kernels serve the three smaller dtypes: the same bits for any number of
    threads, O(B T HV K V) time and O(K V) memory per worker; the gradient keeps
    inputs, output and B T HV denominators. float64, other devices, torch.func and
    gradients of gradients are composed from torch's operators, chunk by chunk, in
    linear time and memory; there an unmasked NaN spreads over its sequence and
    head. Differentiable to any order. Where flash-linear-attention is installed
    its kernel serves the calls on CUDA that it computes. Thread-safe.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 5, 4, 8)
        >>> ops.linear_attention(q, k, v).shape
        torch.Size([2, 5, 4, 8])
        >>> out, state = ops.linear_attention(q, k, v, return_state=True)
        >>> state.S.shape, state.z.shape
        (torch.Size([2, 4, 8, 8]), torch.Size([2, 4, 8]))
    """
    nothing = key_mask is key_lengths is cu_seqlens is initial_state is chunk_size is None
    if (
        nothing
        and not return_state
        and type(causal_offset) is int
        and checks.is_fast_path(queries, keys, values)
        and checks.has_default_options(feature_map, denominator, eps, scale)
    ):
        return torch.ops.tarn.linear_attention.default(
            queries, keys, values, None, None, None, None, None, bool(causal), causal_offset
        )[0]
    states = checks.want_sequence_call(
        _OP, queries, keys, values, causal_offset, key_mask, key_lengths, cu_seqlens
    )
    checks.want_options(_OP, feature_map, denominator, eps, scale)
    checks.want_choice(_OP, "chunk_size", chunk_size, checks.CHUNK_SIZES)
    if denominator == "signed":
        return mapped_linear_attention(
            queries,
            keys,
            values,
            feature_map=feature_map,
            causal=causal,
            causal_offset=causal_offset,
            key_mask=key_mask,
            key_lengths=key_lengths,
            cu_seqlens=cu_seqlens,
            denominator=denominator,
            initial_state=initial_state,
            return_state=return_state,
            chunk_size=chunk_size,
        )
    state_S, state_z, _ = checks.state_of(
        _OP,
        "initial_state",
        initial_state,
        (states, values.shape[2], keys.shape[3], values.shape[3]),
        queries,
    )
    if _fla.serves(queries, keys, causal, causal_offset, cu_seqlens, chunk_size):
        out, state = _fla.linear_attention(
            queries, keys, values, checks.kept_keys(keys, key_mask, key_lengths), feature_map,
            denominator, float(eps), float(scale), (state_S, state_z),
        )  # fmt: skip
        return (out, state) if return_state else out
    out, final_S, final_z, _ = torch.ops.tarn.linear_attention.default(
        queries,
        keys,
        values,
        key_mask,
        key_lengths,
        cu_seqlens,
        state_S,
        state_z,
        bool(causal),
        causal_offset,
        feature_map,
        denominator,
        float(eps),
        float(scale),
        0 if chunk_size is None else chunk_size,
        bool(return_state),
    )
    return (out, LinearState(final_S, final_z)) if return_state else out


def linear_attention_step(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    state: StateLike | None = None,
    *,
    feature_map: str = "elu1",
    denominator: str = "exact",
    eps: float = 1e-6,
    scale: float = 1.0,
) -> tuple[Tensor, LinearState]:
    """Linear attention of one new token per row, in recurrent form.

    ``S += phi(k) v^T; z += phi(k); out = S^T phi(q) / z . phi(q)``: the token
    reads itself and everything in the state.

    Args:
        queries, keys: [B, H, K], float32, bfloat16, float16 or float64.
        values: [B, HV, V], HV a multiple of H, dtype of queries.
        state: LinearState or pair (S [B, HV, C, V], z [B, HV, C]), float32
            (float64 with float64 queries). None: zeros. Not modified.
        feature_map, denominator, eps, scale: as in linear_attention.

    Returns:
        (out [B, HV, V] with the dtype of queries, new LinearState). B = 0 is
        valid. Where an input requires a gradient the step is computed as a
        sequence of one token, and is differentiable.

    Raises:
        ValueError: shapes, ranges, devices. TypeError: types and dtypes. Both
        before any work.

    O(B HV K V) time. Thread-safe. Same bits for any number of threads. Differentiable
    to any order.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 4, 8)
        >>> out, state = ops.linear_attention_step(q, k, v)
        >>> out, state = ops.linear_attention_step(q, k, v, state)
        >>> out.shape, state.S.shape
        (torch.Size([2, 4, 8]), torch.Size([2, 4, 8, 8]))
    """
    checks.want_step_call(_STEP, queries, keys, values)
    checks.want_options(_STEP, feature_map, denominator, eps, scale)
    if denominator == "signed":
        return mapped_linear_attention_step(
            queries,
            keys,
            values,
            state,
            feature_map=feature_map,
            denominator=denominator,
        )
    batch = queries.shape[0]
    state_S, state_z, _ = checks.state_of(
        _STEP,
        "state",
        state,
        (batch, values.shape[1], keys.shape[2], values.shape[2]),
        queries,
    )
    out, new_S, new_z = torch.ops.tarn.linear_attention_step.default(
        queries,
        keys,
        values,
        state_S,
        state_z,
        feature_map,
        denominator,
        float(eps),
        float(scale),
    )
    return out, LinearState(new_S, new_z)
