"""Feature maps of linear attention: phi in phi(q)^T phi(k)."""

from tarn.feature_maps.base import (
    ActivationFunctionFeatureMap,
    ElementwiseFeatureMap,
    EluFeatureMap,
    FeatureMap,
    activation_feature_map,
    elu_feature_map,
)
from tarn.feature_maps.deterministic import (
    PolynomialFeatureMap,
    ReluFeatureMap,
    SquaredReluFeatureMap,
    poly2_feature_map,
    relu2_feature_map,
    relu_feature_map,
)
from tarn.feature_maps.fourier_features import (
    Favor,
    FavorPositive,
    GeneralizedRandomFeatures,
    RandomFourierFeatures,
    SmoothedRandomFourierFeatures,
)
from tarn.feature_maps.selection import by_name, make_feature_map

__all__ = [
    "ActivationFunctionFeatureMap",
    "ElementwiseFeatureMap",
    "EluFeatureMap",
    "Favor",
    "FavorPositive",
    "FeatureMap",
    "GeneralizedRandomFeatures",
    "PolynomialFeatureMap",
    "RandomFourierFeatures",
    "ReluFeatureMap",
    "SmoothedRandomFourierFeatures",
    "SquaredReluFeatureMap",
    "activation_feature_map",
    "by_name",
    "elu_feature_map",
    "make_feature_map",
    "poly2_feature_map",
    "relu2_feature_map",
    "relu_feature_map",
]
