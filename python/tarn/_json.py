"""JSON from outside, by the rules of the runtime (src/core/json.h)."""

from __future__ import annotations

import json
import math
from typing import Any

_MAX_DEPTH = 64


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"want each key once, got {ascii(twice)} twice")
    return members


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"want strict JSON, got {text}")
    return value


def _check(root: Any) -> None:
    """Refuses deep values and lone surrogates, without recursion."""
    left = [(root, 1)]
    while left:
        value, depth = left.pop()
        if isinstance(value, str):
            value.encode()  # UnicodeEncodeError is a ValueError
        elif isinstance(value, (dict, list)):
            if depth > _MAX_DEPTH:
                raise ValueError(f"want at most {_MAX_DEPTH} levels of nesting, got more")
            if isinstance(value, dict):
                left += [(key, depth) for key in value]
                value = list(value.values())
            left += [(item, depth + 1) for item in value]


def strict(data: bytes, where: str) -> Any:
    """The value of a document in UTF-8. Duplicate keys, NaN, Infinity, numbers beyond
    double, lone surrogates and anything after the document are a ValueError, which
    begins with `where`."""
    try:
        value = json.loads(
            data.decode(), object_pairs_hook=_once, parse_constant=_finite, parse_float=_finite
        )
        _check(value)
    except RecursionError:
        raise ValueError(f"{where}: want at most {_MAX_DEPTH} levels of nesting, got more") from None
    except UnicodeError:
        raise ValueError(f"{where}: want JSON in UTF-8, got another encoding") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{where}: want JSON, got: {error}") from None
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return value
