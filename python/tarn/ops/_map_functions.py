"""Feature maps that are the caller's own functions: applied before the operator, which then
reads their features as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from tarn.ops import _checks as checks
from tarn.ops._feature_maps import projected

FeatureFunction = Callable[[Tensor], Tensor]
FeatureMap = str | FeatureFunction | tuple[FeatureFunction, FeatureFunction]


def want_no_stabilise(op: str, stabilise: bool) -> None:
    if stabilise:
        raise checks.value_error(op, "stabilise", "False with a function", True)


def functions_of(
    op: str,
    feature_map: FeatureMap,
    omega: Tensor | None,
    softmax_temp: float | None,
    kernel_fn: str | FeatureFunction,
) -> tuple[str, tuple[FeatureFunction, FeatureFunction] | None]:
    """A map's name for the operator, and the pair of functions that map queries
    and keys before it, None where the operator maps them."""
    if feature_map == "grf" and callable(kernel_fn):
        temp = 1.0 if softmax_temp is None else softmax_temp
        if omega is None:
            raise checks.value_error(op, "omega", "[K, n_freq] for 'grf'", None)

        function: Any = kernel_fn

        def phi(x: Tensor) -> Tensor:
            return projected(x, omega, temp, function)

        return "identity", (phi, phi)
    checks.want_choice(op, "kernel_fn", kernel_fn, ("relu",))
    if isinstance(feature_map, str):
        return feature_map, None
    for argument, value in (("omega", omega), ("softmax_temp", softmax_temp)):
        if value is not None:
            raise checks.value_error(op, argument, "None with a function", "a value")
    pair: Any = feature_map if isinstance(feature_map, (tuple, list)) else (feature_map,) * 2
    if len(pair) != 2 or not all(callable(phi) for phi in pair):
        wanted = "a name, a function or a pair of functions"
        raise checks.type_error(op, "feature_map", wanted, type(feature_map).__name__)
    return "identity", tuple(pair)


def without_masked(keys: Tensor, key_mask: Tensor | None, key_lengths: Tensor | None) -> Tensor:
    """Keys with zeros where they are not read: NaN there must not reach the
    gradient of a function."""
    kept = checks.kept_keys(keys, key_mask, key_lengths)
    return keys if kept is None else keys.where(kept[:, :, None, None], 0)


def mapped(
    op: str,
    functions: tuple[FeatureFunction, FeatureFunction],
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
) -> tuple[Tensor, Tensor]:
    """Features of queries and keys, in the dtype of the values."""
    phi_q, phi_k = functions[0](queries), functions[1](keys)
    for argument, phi, x in (("queries", phi_q, queries), ("keys", phi_k, keys)):
        if not isinstance(phi, Tensor) or phi.shape[:-1] != x.shape[:-1]:
            given = checks.shape_text(phi.shape) if isinstance(phi, Tensor) else phi
            wanted = f"phi({argument}) of shape {checks.shape_text(x.shape[:-1])[:-1]}, C]"
            raise checks.value_error(op, "feature_map", wanted, given)
    return phi_q.to(values.dtype), phi_k.to(values.dtype)
