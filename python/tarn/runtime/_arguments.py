"""Arguments of the runtime's calls: checked here, so that errors name them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np


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


def token_array(tokens: Any) -> np.ndarray:
    """Tokens as [n] int32; refuses anything but whole numbers of that range."""
    array = np.asarray(tokens)
    if array.size == 0:
        array = array.astype(np.int32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError(f"tokens: want one axis of integers, got {array.dtype} {list(array.shape)}")
    if array.size and not (-(2**31) <= int(array.min()) and int(array.max()) < 2**31):
        raise ValueError("tokens: want 32-bit integers, got larger ones")
    return np.ascontiguousarray(array, dtype=np.int32)
