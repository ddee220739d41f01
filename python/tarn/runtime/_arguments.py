"""Arguments of the runtime's calls: checked here, so that errors name them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any


def whole(name: str, value: Any, low: int, high: int) -> int:
    """A whole number from low to high. Raises TypeError and ValueError."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: want a whole number, got {value!r}") from None
    if not low <= number <= high:
        raise ValueError(f"{name}: want {low} to {high}, got {number}")
    return number


def number(name: str, value: Any) -> float:
    """A number, whose range the library checks. Raises TypeError."""
    if not isinstance(value, (str, bytes, bytearray)):  # float() reads texts
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError):
            pass
    raise TypeError(f"{name}: want a number, got {value!r}")


def stop_texts(stop: str | bytes | Sequence[str | bytes]) -> list[bytes]:
    """Texts that end a text, as bytes. Raises TypeError."""
    texts = [stop] if isinstance(stop, (str, bytes)) else list(stop)
    for text in texts:
        if not isinstance(text, (str, bytes)):
            raise TypeError(f"stop: want texts, got {text!r}")
    return [text.encode() if isinstance(text, str) else text for text in texts]


def sampling(
    temperature: float, top_k: int, top_p: float, min_p: float, seed: int
) -> tuple[float, int, float, float, int]:
    """The arguments of a sampler, in the extension's order."""
    return (
        number("temperature", temperature),
        whole("top_k", top_k, 0, 2**63 - 1),
        number("top_p", top_p),
        number("min_p", min_p),
        whole("seed", seed, 0, 2**64 - 1),
    )
