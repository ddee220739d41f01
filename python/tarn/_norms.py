"""The norms of layers, by their words in a configuration."""

from __future__ import annotations

import torch
import torch.nn.functional as F

KINDS = {"layer": torch.nn.LayerNorm, "rms": torch.nn.RMSNorm}


class _OffsetLayerNorm(torch.nn.LayerNorm):
    """A layer norm whose factor is weight + offset."""

    def __init__(self, d_model: int, eps: float, offset: float) -> None:
        super().__init__(d_model, eps=eps)
        self.offset = offset
        torch.nn.init.constant_(self.weight, 1.0 - offset)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shape = self.normalized_shape
        return F.layer_norm(x, shape, self.weight + self.offset, self.bias, self.eps)


class _OffsetRMSNorm(torch.nn.RMSNorm):
    """A root mean square norm whose factor is weight + offset."""

    def __init__(self, d_model: int, eps: float, offset: float) -> None:
        super().__init__(d_model, eps=eps)
        self.offset = offset
        torch.nn.init.constant_(self.weight, 1.0 - offset)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, list(self.normalized_shape), self.weight + self.offset, self.eps)


_OFFSET_KINDS = {"layer": _OffsetLayerNorm, "rms": _OffsetRMSNorm}


def kind_of(norm: torch.nn.Module) -> str | None:
    """The word of a norm's class; None for a class from elsewhere."""
    for kinds in (KINDS, _OFFSET_KINDS):
        for word, kind in kinds.items():
            if type(norm) is kind:
                return word
    return None


def make_norm(kind: str, d_model: int, eps: float, offset: float = 0.0) -> torch.nn.Module:
    """The norm of a kind: "layer" has weight and bias, "rms" a weight alone. The factor
    of an entry is weight + offset, which begins as 1."""
    if offset == 0.0:
        return KINDS[kind](d_model, eps=eps)
    return _OFFSET_KINDS[kind](d_model, eps, offset)
