"""Linear attention with any feature map: by name, or the caller's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict, Unpack, overload

import torch
from torch import Tensor

from tarn.ops import _checks as checks
from tarn.ops import _fla
from tarn.ops._map_functions import (
    FeatureFunction,
    FeatureMap,
    functions_of,
    mapped,
    want_no_stabilise,
    without_masked,
)
from tarn.ops._state import LinearState, StateLike

__all__ = [
    "causal_dot_product",
    "mapped_linear_attention",
    "mapped_linear_attention_step",
]

_OP = "mapped_linear_attention"
_STEP = "mapped_linear_attention_step"


# Options that the overloads share; the docstring says what they mean.
class _Options(TypedDict, total=False):
    feature_map: FeatureMap
    omega: Tensor | None
    softmax_temp: float | None
    coefficients: Sequence[float]
    smoothing: float
    stabilise: bool
    kernel_fn: str | FeatureFunction
    causal: bool
    causal_offset: int
    key_mask: Tensor | None
    key_lengths: Tensor | None
    cu_seqlens: Tensor | None
    denominator: str | None
    eps: float
    scale: float
    initial_state: StateLike | None
    chunk_size: int | None


@overload
def mapped_linear_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    return_state: Literal[False] = False,
    return_clamped: Literal[False] = False,
    **options: Unpack[_Options],
) -> Tensor: ...


@overload
def mapped_linear_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    return_state: Literal[True],
    return_clamped: Literal[False] = False,
    **options: Unpack[_Options],
) -> tuple[Tensor, LinearState]: ...


@overload
def mapped_linear_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    return_state: Literal[False] = False,
    return_clamped: Literal[True],
    **options: Unpack[_Options],
) -> tuple[Tensor, Tensor]: ...


@overload
def mapped_linear_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    return_state: Literal[True],
    return_clamped: Literal[True],
    **options: Unpack[_Options],
) -> tuple[Tensor, LinearState, Tensor]: ...


@overload
def mapped_linear_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    return_state: bool,
    return_clamped: Literal[False] = False,
    **options: Unpack[_Options],
) -> Tensor | tuple[Tensor, LinearState]: ...


@overload
def mapped_linear_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    return_state: bool = False,
    return_clamped: bool = False,
    **options: Unpack[_Options],
) -> Tensor | tuple[Tensor | LinearState, ...]: ...


def mapped_linear_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    feature_map: FeatureMap = "elu1",
    omega: Tensor | None = None,
    softmax_temp: float | None = None,
    coefficients: Sequence[float] = (1.0, 2.0, 1.0),
    smoothing: float = 1.0,
    stabilise: bool = False,
    kernel_fn: str | FeatureFunction = "relu",
    causal: bool = True,
    causal_offset: int = 0,
    key_mask: Tensor | None = None,
    key_lengths: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    denominator: str | None = None,
    eps: float = 1e-6,
    scale: float = 1.0,
    initial_state: StateLike | None = None,
    return_state: bool = False,
    return_clamped: bool = False,
    chunk_size: int | None = None,
) -> Tensor | tuple[Tensor | LinearState, ...]:
    """`linear_attention` with any feature map.

    Args:
        feature_map: a name: "elu1", "identity", "relu", "relu2", "softplus"
            (inside the kernel), "poly2", "favor", "favor-positive", "rff", "smoothed-rff",
            "grf" (features first, then the same kernel); or a function or
            Module of x [..., K] -> [..., C]; or a pair of them, for queries and
            for keys.
        omega: [K, n_freq], "favor" to "grf" only; see draw_omega.
        softmax_temp: lambda of x~ = sqrt(lambda) x, >= 0. None: 1 / sqrt(K), or
            1 for "grf". Maps without a temperature take None only.
        coefficients, smoothing, kernel_fn: options of "poly2", "smoothed-rff", "grf".
        stabilise: "favor" and "favor-positive": exponents are taken relative to
            the query's and to a running maximum of the keys, kept in the state,
            so that nothing overflows or underflows. Exact denominator only.
        denominator: "exact", "compat", "none" as in linear_attention; "signed":
            d = phi(q).z is kept at least 1e-6 B away from 0, B = |phi(q_i)|
            sum_j |phi(k_j)|, and is a constant for the gradient where it was
            not; None: "signed" for "identity", "poly2", "rff", "smoothed-rff"
            and functions, "exact" for the others.
        initial_state: LinearState, its `extra` where the map has one: [B, H] sum
            of |phi(k)| under "signed", [B, H, C] running maximum under
            `stabilise`; [N, ...] with cu_seqlens.
        return_clamped: whether to return the number of denominators that
            "signed" clamped, a scalar int64 tensor, as the last result.
        The rest, shapes and errors: as in linear_attention.

    Returns:
        out [B, T, HV, V], or a tuple of out, LinearState (return_state), count
        (return_clamped). prefill(a) then prefill(b) from its state equals
        prefill(ab), and steps continue it.

    Thread-safe. O(T C) memory for features of maps outside the kernel; under
    `stabilise` causal calls take 16 exponentials per feature and token, kept for
    the gradient. Differentiable to any order, as `linear_attention`.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 5, 4, 8)
        >>> omega = ops.draw_omega(8, 16, orthogonal=True, seed=1)
        >>> ops.mapped_linear_attention(q, k, v, feature_map="favor", omega=omega).shape
        torch.Size([2, 5, 4, 8])
        >>> ops.mapped_linear_attention(q, k, v, feature_map=torch.sigmoid).shape
        torch.Size([2, 5, 4, 8])
    """
    checks.want_sequence_call(
        _OP, queries, keys, values, causal_offset, key_mask, key_lengths, cu_seqlens
    )
    checks.want_choice(_OP, "chunk_size", chunk_size, checks.CHUNK_SIZES)
    _want_options(_OP, denominator, eps, scale)
    name, functions = functions_of(_OP, feature_map, omega, softmax_temp, kernel_fn)
    if functions is not None:
        omega = softmax_temp = None  # the functions hold theirs
        want_no_stabilise(_OP, stabilise)
        keys = without_masked(keys, key_mask, key_lengths)
        queries, keys = mapped(_OP, functions, queries, keys, values)
    # Left to the map, the denominator of identity is the signed one.
    divided = denominator in checks.DIVIDED and (denominator or name) != "identity"
    plain = omega is None and softmax_temp is None and not stabilise
    elementwise = name in checks.FEATURE_MAPS and divided and plain
    if elementwise and _fla.serves(queries, keys, causal, causal_offset, cu_seqlens, chunk_size):
        out, state = _fla.linear_attention(
            queries, keys, values, checks.kept_keys(keys, key_mask, key_lengths), name,
            denominator or "exact", float(eps), float(scale),
            checks.state_of(
                _OP, "initial_state", initial_state,
                (keys.shape[0], values.shape[2], keys.shape[3], values.shape[3]), queries,
            )[:2],
        )  # fmt: skip
        none = torch.zeros((), dtype=torch.int64, device=queries.device)
        results = (out,) + (state,) * return_state + (none,) * return_clamped
        return results if len(results) > 1 else out
    out, S, z, extra, clamped = torch.ops.tarn.mapped_linear_attention.default(
        queries,
        keys,
        values,
        key_mask,
        key_lengths,
        cu_seqlens,
        *_state_parts(_OP, "initial_state", initial_state),
        omega,
        bool(causal),
        causal_offset,
        name,
        denominator,
        float(eps),
        float(scale),
        0 if chunk_size is None else chunk_size,
        softmax_temp,
        [float(a) for a in coefficients],
        float(smoothing),
        bool(stabilise),
        bool(return_state),
    )
    results = (out,)
    if return_state:
        results += (_state(S, z, extra),)
    if return_clamped:
        results += (clamped,)
    return results if len(results) > 1 else out


def mapped_linear_attention_step(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    state: StateLike | None = None,
    *,
    feature_map: FeatureMap = "elu1",
    omega: Tensor | None = None,
    softmax_temp: float | None = None,
    coefficients: Sequence[float] = (1.0, 2.0, 1.0),
    smoothing: float = 1.0,
    stabilise: bool = False,
    kernel_fn: str | FeatureFunction = "relu",
    denominator: str | None = None,
    eps: float = 1e-6,
    scale: float = 1.0,
) -> tuple[Tensor, LinearState]:
    """`linear_attention_step` with any feature map: one token per row.

    Args:
        queries, keys: [B, H, K]. values: [B, HV, V].
        state: LinearState of mapped_linear_attention or of an earlier step with
            the same map and denominator. None: empty. Not modified.
        The rest: as in mapped_linear_attention.

    Returns: (out [B, HV, V] with the dtype of queries, new LinearState).
    Raises: ValueError, TypeError. Thread-safe. O(B HV C V) time.
    Differentiable to any order, as `linear_attention`.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 4, 8)
        >>> out, state = ops.mapped_linear_attention_step(q, k, v, feature_map="poly2")
        >>> out.shape, state.S.shape
        (torch.Size([2, 4, 8]), torch.Size([2, 4, 45, 8]))
    """
    checks.want_step_call(_STEP, queries, keys, values)
    _want_options(_STEP, denominator, eps, scale)
    name, functions = functions_of(_STEP, feature_map, omega, softmax_temp, kernel_fn)
    if functions is not None:
        omega = softmax_temp = None  # the functions hold theirs
        want_no_stabilise(_STEP, stabilise)
        queries, keys = mapped(_STEP, functions, queries, keys, values)
    out, S, z, extra, _ = torch.ops.tarn.mapped_linear_attention_step.default(
        queries,
        keys,
        values,
        *_state_parts(_STEP, "state", state),
        omega,
        name,
        denominator,
        float(eps),
        float(scale),
        softmax_temp,
        [float(a) for a in coefficients],
        float(smoothing),
        bool(stabilise),
    )
    return out, _state(S, z, extra)


def causal_dot_product(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """out_i = sum over j <= i of (q_i . k_j) v_j: the numerator of causal linear
    attention, heads before time.

    Args:
        queries: [N, H, L, E], float32, float64, bfloat16 or float16, already
            through the feature map. keys: [N, H, S, E]. values: [N, H, S, M].

    Returns: [N, H, L, M], dtype of queries; rows i >= S read all keys.
    Raises: ValueError, TypeError. Thread-safe. O(N H L E M) time.
        Differentiable to any order, as `linear_attention`.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 4, 5, 8)  # heads before time
        >>> ops.causal_dot_product(q, k, v).shape
        torch.Size([2, 4, 5, 8])
    """
    op = "causal_dot_product"
    checks.want_operands(op, ("N", "H", "L", "E"), queries, keys, values)
    batch, heads = queries.shape[:2]
    width, seq_len_k = queries.shape[3], keys.shape[2]
    checks.want_shape(op, "keys", keys, (batch, heads, seq_len_k, width))
    checks.want_shape(op, "values", values, (batch, heads, seq_len_k, values.shape[3]))
    return torch.ops.tarn.causal_dot_product.default(queries, keys, values)


def _state_parts(
    op: str, argument: str, state: StateLike | None
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """S, z and extra as the operators take them; they check the tensors."""
    if state is None:
        return None, None, None
    if not isinstance(state, (tuple, list)) or len(state) not in (2, 3):
        wanted = "None, a LinearState or a pair (S, z)"
        raise checks.type_error(op, argument, wanted, type(state).__name__)
    for name, part in zip(("S", "z", "extra"), state):
        if part is not None or name != "extra":
            checks.want_tensor(op, f"{argument}.{name}", part)
    return LinearState(state[0], state[1], state[2] if len(state) == 3 else None)


def _state(S: Tensor, z: Tensor, extra: Tensor) -> LinearState:
    # Maps without further state return an extra of one axis and no entries.
    return LinearState(S, z, extra if extra.dim() > 1 else None)


def _want_options(op: str, denominator: str | None, eps: float, scale: float) -> None:
    if denominator is not None:
        checks.want_choice(op, "denominator", denominator, checks.DENOMINATORS)
    checks.want_number(op, "eps", eps, positive=denominator == "compat")
    checks.want_number(op, "scale", scale, positive=True)
