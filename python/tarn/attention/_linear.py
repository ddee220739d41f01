"""What the linear kinds share, in batch and recurrent form."""

from __future__ import annotations

from typing import Any, Callable

import torch

from tarn import _tables as tables
from tarn.attention_registry import (
    Bool,
    Choice,
    EventDispatcherInstance,
    Float,
    Int,
    Optional,
    Spec,
)
from tarn.attention_registry import Callable as CallableSpec
from tarn.events import EventDispatcher
from tarn.feature_maps import FeatureMap, make_feature_map
from tarn.feature_maps.base import map_arguments

DENOMINATORS = tables.words_of("denominator")

# The parameters of linear kinds in the registries: one list, so that batch and
# recurrent builders take the same settings.
LINEAR_PARAMETERS: list[tuple[str, Spec]] = [
    ("query_dimensions", Int),
    ("feature_map", Optional(CallableSpec)),
    ("event_dispatcher", Optional(EventDispatcherInstance, "")),
    ("eps", Optional(Float, 1e-6)),
    ("denominator", Optional(Choice(DENOMINATORS))),
    ("compat", Optional(Bool, False)),
    ("n_dims", Optional(Int)),
    ("orthogonal", Optional(Bool)),
    ("stabilise", Optional(Bool)),
    ("stabilize", Optional(Bool)),  # the same, as fast-transformers' maps spell it
    ("smoothing", Optional(Float)),
    ("redraw", Optional(Int)),
    ("deterministic_eval", Optional(Bool)),
    ("redraw_in_eval", Optional(Bool)),
]

# The parameters among them that fast-transformers does not have.
LINEAR_OWN = [
    name
    for name, _ in LINEAR_PARAMETERS
    if name not in ("query_dimensions", "feature_map", "event_dispatcher")
]


class LinearAttentionBase(torch.nn.Module):
    """A feature map and a denominator; arguments as in
    `tarn.attention.LinearAttention`."""

    def __init__(
        self,
        query_dimensions: int,
        feature_map: str | torch.nn.Module | Callable[..., Any] | None = None,
        eps: float = 1e-6,
        event_dispatcher: str | EventDispatcher = "",
        *,
        denominator: str | None = None,
        compat: bool = False,
        **feature_options: Any,
    ):
        super().__init__()
        if denominator is not None and denominator not in DENOMINATORS:
            raise ValueError(
                f"{type(self).__name__}: denominator: want one of {DENOMINATORS}, "
                f"got {denominator!r}"
            )
        self.feature_map: FeatureMap = make_feature_map(
            feature_map, query_dimensions, feature_options
        )
        if compat and isinstance(self.feature_map, FeatureMap):
            self.feature_map.compat = True
        self.eps = eps
        self.compat = compat
        self.denominator = denominator
        self.event_dispatcher: EventDispatcher = EventDispatcher.get(event_dispatcher)

    def arguments(self) -> dict[str, Any]:
        """feature_map and what belongs to it, denominator and eps: arguments of
        `tarn.ops.mapped_linear_attention` and its step."""
        denominator = self.denominator
        if denominator is None:
            exact = "signed" if getattr(self.feature_map, "signed", True) else "exact"
            denominator = "compat" if self.compat else exact
        return {
            **map_arguments(self.feature_map),
            "denominator": denominator,
            "eps": self.eps,
        }

    def extra_repr(self) -> str:
        return f"denominator={self.denominator!r}, compat={self.compat}"
