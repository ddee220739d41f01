"""What the layers of a stack hand to each other besides their rows."""

from __future__ import annotations

from typing import Any

import torch


class PassedRows:
    """What the first layer of a stack with such a mixer makes for the later ones, during
    one call of the stack: rows [B, T, W], or a table [layers, W] of a row for each."""

    def __init__(self) -> None:
        self.rows: torch.Tensor | None = None
        self.table: torch.Tensor | None = None

    @staticmethod
    def given(passed: PassedRows | None) -> dict[str, Any]:
        """The argument for what takes one; nothing where there is none."""
        return {} if passed is None else {"passed": passed}


def handed(layer: Any, passed: PassedRows) -> dict[str, Any]:
    """What a stack gives a layer besides its rows."""
    return {"passed": passed} if getattr(layer, "passes", False) else {}


def want_passed(kind: str, found: torch.Tensor | None, shape: tuple[int, ...]) -> torch.Tensor:
    """What an earlier layer passed on. Raises ValueError unless it is of this shape."""
    if found is None:
        raise ValueError(
            f"{kind}: passed: want what an earlier layer makes, got none: a stack hands it to "
            "layers whose attribute passes is True, which a wrapper has to have too"
        )
    if found.shape != shape:
        raise ValueError(f"{kind}: passed: want {list(shape)}, got {list(found.shape)}")
    return found
