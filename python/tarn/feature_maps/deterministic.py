"""Maps without randomness that fast-transformers does not have."""

from __future__ import annotations

from typing import Any

import torch

from tarn import ops
from tarn.feature_maps.base import ActivationFunctionFeatureMap, FeatureMap, FeatureMapFactory


class ReluFeatureMap(ActivationFunctionFeatureMap):
    """max(x, 0). A query without positive entries reads nothing and gets 0; a key
    without positive entries adds nothing."""

    signed = False

    def __init__(self, query_dims: int):
        super().__init__(query_dims, torch.relu)

    def _named_arguments(self) -> dict[str, Any] | None:
        return {"feature_map": "relu"}


def squared_relu(x: torch.Tensor) -> torch.Tensor:
    """max(x, 0)^2."""
    return torch.relu(x).square()


class SquaredReluFeatureMap(ActivationFunctionFeatureMap):
    """max(x, 0)^2, otherwise as ReluFeatureMap."""

    signed = False

    def __init__(self, query_dims: int):
        super().__init__(query_dims, squared_relu)

    def _named_arguments(self) -> dict[str, Any] | None:
        return {"feature_map": "relu2"}


class PolynomialFeatureMap(FeatureMap):
    """phi(q) . phi(k) = a0 + a1 y + a2 y^2 with y = softmax_temp q . k.

    query_dims: E. softmax_temp: None is 1/sqrt(E). coefficients: (a0, a1, a2),
    not negative; (0, 0, 1) is the pure square, (1, 1, 1/2) Taylor's.
    Output [..., 1 + E + E(E+1)/2], without the parts whose coefficient is 0.
    """

    signed = True  # the kernel is not negative, but its features may be

    def __init__(
        self,
        query_dims: int,
        softmax_temp: float | None = None,
        coefficients: tuple[float, float, float] = (1.0, 2.0, 1.0),
    ):
        super().__init__(query_dims)
        self.softmax_temp = softmax_temp
        self.coefficients = coefficients

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ops.poly2(x, softmax_temp=self.softmax_temp, coefficients=self.coefficients)

    def _named_arguments(self) -> dict[str, Any] | None:
        return {
            "feature_map": "poly2",
            "softmax_temp": self.softmax_temp,
            "coefficients": self.coefficients,
        }


relu_feature_map: FeatureMapFactory = ReluFeatureMap.factory()
relu2_feature_map: FeatureMapFactory = SquaredReluFeatureMap.factory()
poly2_feature_map: FeatureMapFactory = PolynomialFeatureMap.factory()
