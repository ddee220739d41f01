"""What the layers of a stack hand to each other besides their rows."""

from __future__ import annotations

from typing import Any

import torch


class PassedRows:
    """Rows that the first layer of a stack with such a mixer makes for the later ones,
    during one call of the stack."""

    def __init__(self) -> None:
        self.rows: torch.Tensor | None = None

    @staticmethod
    def given(passed: PassedRows | None) -> dict[str, Any]:
        """The argument for what takes one; nothing where there is none."""
        return {} if passed is None else {"passed": passed}


def handed(layer: Any, passed: PassedRows) -> dict[str, Any]:
    """What a stack gives a layer besides its rows."""
    return {"passed": passed} if getattr(layer, "passes", False) else {}


def want_passed(kind: str, passed: PassedRows | None, shape: tuple[int, ...]) -> None:
    """Raises ValueError unless an earlier layer has passed rows of this shape on."""
    if passed is None or passed.rows is None:
        raise ValueError(
            f"{kind}: passed: want rows of an earlier layer, got none: a stack hands them to "
            "layers whose attribute passes is True, which a wrapper has to have too"
        )
    if passed.rows.shape != shape:
        raise ValueError(f"{kind}: passed: want {list(shape)}, got {list(passed.rows.shape)}")
