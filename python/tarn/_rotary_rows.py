"""Rows of the rotary tables as a configuration describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

# Keys of a configuration that scale the frequencies, and the operator's names for them.
_SCALING = {
    "rotary_scaling": "scaling",
    "rotary_factor": "factor",
    "rotary_original_positions": "original_positions",
    "rotary_low": "low",
    "rotary_high": "high",
    "rotary_magnitude": "magnitude",
    "rotary_truncate": "truncate",
}


def scaling_of(view: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `torch.ops.tarn.rotary_rows` that scale frequencies; empty without a
    scaling."""
    if view.get("rotary_scaling", "none") == "none":
        return {}
    return {option: view[key] for key, option in _SCALING.items()}


def rotary_rows(
    view: Mapping[str, Any], places: torch.Tensor, width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines [..., width / 2] of places [...], in float32."""
    cos, sin = torch.ops.tarn.rotary_rows(places, width, view["rotary_base"], **scaling_of(view))
    return cos, sin
