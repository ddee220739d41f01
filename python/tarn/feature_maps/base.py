"""The interface of feature maps, and maps that act on each number."""

from __future__ import annotations

from typing import Any, Callable

import torch

from tarn import _tables as tables


class FeatureMapFactory:
    """Makes feature maps of one kind: called with the width of queries and
    keys, and optionally with further keyword arguments of the class."""

    def __init__(self, cls: type[FeatureMap], args: tuple[Any, ...], kwargs: dict[str, Any]):
        self._cls, self._args, self._kwargs = cls, args, kwargs

    def __call__(self, query_dims: int, **options: Any) -> FeatureMap:
        return self._cls(query_dims, *self._args, **{**self._kwargs, **options})

    def __repr__(self) -> str:
        return f"{self._cls.__name__}.factory(...)"


class FeatureMap(torch.nn.Module):
    """A map [..., E] -> [..., C] of queries and keys.

    query_dims: E. A derived class defines `forward`, or `forward_queries` and
    `forward_keys` where the two differ.

    signed: whether features may be negative; then the denominator is clamped
        (`tarn.ops.linear_attention`, denominator "signed").
    compat: whether the numbers are those of fast-transformers 0.4; set by the
        attention that owns the map.
    """

    signed: bool = True
    compat: bool = False
    _replaced = False

    def __init__(self, query_dims: int):
        super().__init__()
        self.query_dims = query_dims

    def new_feature_map(self, device: torch.device | str | None = None) -> None:
        """Called before every sequence: random maps draw here. Does nothing in
        maps without randomness."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [..., E] -> [..., C]."""
        raise NotImplementedError(f"{type(self).__name__}: forward is not defined")

    def forward_queries(self, x: torch.Tensor) -> torch.Tensor:
        """Features of queries."""
        return self(x)

    def forward_keys(self, x: torch.Tensor) -> torch.Tensor:
        """Features of keys."""
        return self(x)

    def arguments(self) -> dict[str, Any]:
        """The arguments under which `tarn.ops.mapped_linear_attention` computes
        this map: a name that its kernels know where there is one, else this
        module's own functions."""
        named = self._named_arguments() if self._is_plain() else None
        if named is None:
            return {"feature_map": (self.forward_queries, self.forward_keys)}
        return named

    def _named_arguments(self) -> dict[str, Any] | None:
        """The arguments of a map that the operators know, else None."""
        return None

    def _is_plain(self) -> bool:
        """Whether the functions are those of the class that names the map, and its
        calls have no hooks: only then may the operator replace them."""
        return not (self._replaced or self._forward_hooks or self._forward_pre_hooks)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        functions = ("forward", "forward_queries", "forward_keys")
        if "_named_arguments" in vars(cls):
            cls._replaced = False
        elif any(name in vars(cls) for name in functions):
            cls._replaced = True

    @classmethod
    def factory(cls, *args: Any, **kwargs: Any) -> FeatureMapFactory:
        """A factory that attentions take as feature_map: called with the width of the
        queries, it makes a map with these further arguments."""
        return FeatureMapFactory(cls, args, kwargs)


def map_arguments(feature_map: Any) -> dict[str, Any]:
    """`FeatureMap.arguments` of a FeatureMap, or of another object with its
    methods."""
    if isinstance(feature_map, FeatureMap):
        return feature_map.arguments()
    return {"feature_map": (feature_map.forward_queries, feature_map.forward_keys)}


class ActivationFunctionFeatureMap(FeatureMap):
    """A function of each number. activation_function: [..., E] -> [..., E]."""

    def __init__(
        self, query_dims: int, activation_function: Callable[[torch.Tensor], torch.Tensor]
    ):
        super().__init__(query_dims)
        self.activation_function = activation_function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.activation_function(x)


def activation_feature_map(
    activation_function: Callable[[torch.Tensor], torch.Tensor],
) -> FeatureMapFactory:
    """The factory of a map that applies activation_function, any function or
    module on tensors."""
    return ActivationFunctionFeatureMap.factory(activation_function)


def elu_plus_one(x: torch.Tensor) -> torch.Tensor:
    """x + 1 above 0, else exp(x). Computed as elu(x) + 1 it would cancel, and be 0
    below -17.3 in float32."""
    return torch.where(x > 0, x + 1, x.clamp(max=0).exp())


class ElementwiseFeatureMap(FeatureMap):
    """An elementwise map by its name in model files: a row of the table of maps,
    computed inside the kernels."""

    def __init__(self, query_dims: int, name: str):
        super().__init__(query_dims)
        self.name = name
        self.signed: bool = tables.feature_maps()[name]["signed"]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.tarn.elementwise_features(x, self.name)

    def _named_arguments(self) -> dict[str, Any] | None:
        return {"feature_map": self.name}

    def extra_repr(self) -> str:
        return f"name={self.name!r}"


class EluFeatureMap(ActivationFunctionFeatureMap):
    """elu(x) + 1 (Katharopoulos et al. 2020, eq. (7)), fused into the kernels."""

    signed = False

    def __init__(self, query_dims: int):
        super().__init__(query_dims, elu_plus_one)

    def _named_arguments(self) -> dict[str, Any] | None:
        return {"feature_map": "elu1"}


elu_feature_map: FeatureMapFactory = EluFeatureMap.factory()
