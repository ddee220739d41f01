"""Makes a feature map from what a user gives as feature_map."""

from __future__ import annotations

from typing import Any, Callable, Mapping

import torch

from tarn import _tables as tables
from tarn.feature_maps.base import (
    ActivationFunctionFeatureMap,
    ElementwiseFeatureMap,
    EluFeatureMap,
    FeatureMap,
    FeatureMapFactory,
    elu_feature_map,
)
from tarn.feature_maps.deterministic import (
    PolynomialFeatureMap,
    ReluFeatureMap,
    SquaredReluFeatureMap,
)
from tarn.feature_maps.fourier_features import (
    Favor,
    FavorPositive,
    GeneralizedRandomFeatures,
    RandomFourierFeatures,
    SmoothedRandomFourierFeatures,
)

# Maps with a class of their own; the rest are rows of the table.
_CLASSES: dict[str, type[FeatureMap]] = {
    "elu1": EluFeatureMap,
    "relu": ReluFeatureMap,
    "relu2": SquaredReluFeatureMap,
    "poly2": PolynomialFeatureMap,
    "favor": Favor,
    "favor-positive": FavorPositive,
    "rff": RandomFourierFeatures,
    "smoothed-rff": SmoothedRandomFourierFeatures,
    "grf": GeneralizedRandomFeatures,
}

# The methods that attentions call on a map that is no FeatureMap.
_METHODS = ("new_feature_map", "forward_queries", "forward_keys")


def by_name(name: str) -> FeatureMapFactory:
    """The factory of a map by the name that it has in model files. Raises
    ValueError."""
    if name in _CLASSES:
        return _CLASSES[name].factory()
    if name in tables.elementwise_maps():
        return ElementwiseFeatureMap.factory(name)
    names = ", ".join(repr(known) for known in tables.feature_maps())
    raise ValueError(f"feature_map: want one of {names}, got {name!r}")


def make_feature_map(
    feature_map: str | torch.nn.Module | Callable[..., Any] | None,
    query_dimensions: int,
    options: Mapping[str, Any] | None = None,
) -> FeatureMap:
    """The map that an attention owns.

    feature_map: None (elu + 1), a name, a FeatureMap, any other module on
        tensors, or a factory: called with query_dimensions it returns one of
        these or a function on tensors. (For a bare function use
        `activation_feature_map`.) An object with the methods of a FeatureMap
        is accepted as one, whatever its class.
    options: keyword arguments of the factory; None entries are left out.

    Raises ValueError, TypeError.
    """
    given = {name: value for name, value in (options or {}).items() if value is not None}
    if feature_map is None:
        feature_map = elu_feature_map
    elif isinstance(feature_map, str):
        feature_map = by_name(feature_map)
    if isinstance(feature_map, torch.nn.Module):
        if given:
            names = ", ".join(given)
            raise ValueError(f"{names}: want a feature_map that is a name or factory, got a module")
        made: Any = feature_map
    elif callable(feature_map):
        made = _call_factory(feature_map, query_dimensions, given)
    else:
        raise _not_a_map(feature_map)
    if isinstance(made, FeatureMap) or all(callable(getattr(made, m, None)) for m in _METHODS):
        return made
    if not callable(made) or isinstance(made, torch.Tensor):
        raise _not_a_map(made)
    function: Any = made
    return ActivationFunctionFeatureMap(query_dimensions, function)


def _call_factory(factory: Callable[..., Any], width: int, options: dict[str, Any]) -> Any:
    try:
        return factory(width, **options)
    except TypeError as error:
        raise TypeError(
            "feature_map: want a factory that makes a map of "
            f"{', '.join(['the width', *options])}, got {factory!r}: {error}"
        ) from error


def _not_a_map(value: Any) -> TypeError:
    return TypeError(
        f"feature_map: want a name, a module or a factory of a map, got {type(value).__name__}"
    )
