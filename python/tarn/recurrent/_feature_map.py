"""What self and cross linear attention share: the feature map, its words for
the operators and the facts a state records of it."""

from __future__ import annotations

import zlib
from typing import Any

import torch

from tarn import ops
from tarn.feature_maps import elu_feature_map
from tarn.recurrent._state import AttentionState


def feature_map_version(feature_map: torch.nn.Module) -> str:
    """Name of the map and a checksum of its random matrix: a state written
    under one matrix means nothing under another. Read once a drawing."""
    name = type(feature_map).__name__
    omega = getattr(feature_map, "omega", None)
    if omega is None:
        return getattr(feature_map, "name", None) or name
    drawn = (omega.data_ptr(), omega._version)
    cached = getattr(feature_map, "_tarn_version", None)
    if cached is None or cached[0] != drawn:
        data = omega.detach().float().cpu().contiguous().numpy().tobytes()
        cached = (drawn, f"{name}:{zlib.crc32(data):08x}")
        object.__setattr__(feature_map, "_tarn_version", cached)
    return cached[1]


class MappedAttention(torch.nn.Module):
    """Holds the feature map and the choice of denominator."""

    def __init__(self, query_dimensions: int, feature_map, eps: float, compat: bool) -> None:
        super().__init__()
        make = feature_map or elu_feature_map
        self.feature_map = make(query_dimensions)
        self.eps = eps
        self.compat = compat

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of ops.mapped_linear_attention*."""
        arguments = dict(self.feature_map.arguments())
        if self.compat:
            arguments.update(denominator="compat", eps=self.eps)
        return arguments

    def facts(self, keys: torch.Tensor, values: torch.Tensor) -> dict[str, Any]:
        return {
            "feature_map": feature_map_version(self.feature_map),
            "denominator": "compat" if self.compat else "default",
            "eps": self.eps if self.compat else None,
            "heads": keys.shape[-2],
            "d_key": keys.shape[-1],
            "d_value": values.shape[-1],
        }

    @staticmethod
    def held(state: AttentionState | None) -> ops.LinearState | None:
        if state is None:
            return None
        return ops.LinearState(state["S"], state["z"], state.tensors.get("extra"))
