"""JSON files written whole or not at all, and read with care."""

import json
import math
import os
import pathlib
from typing import Any, NoReturn

from experiments.core.types import ExperimentError, JsonDict

MOST_BYTES = 64 << 20


def rounded(value: Any, digits: int = 6) -> Any:
    """Figures to six digits: more is noise, and lines of change in a
    repository. NaN and infinity, which JSON has not, become None."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): rounded(one, digits) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(one, digits) for one in value]
    return value


def write_bytes(path: pathlib.Path, content: bytes) -> None:
    """Writes the file whole or not at all: a stop leaves the old file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".new")
    temporary.write_bytes(content)
    os.replace(temporary, path)


def write_text(path: pathlib.Path, text: str) -> None:
    """Writes text in UTF-8 as write_bytes() does."""
    write_bytes(path, text.encode())


def write_json(path: pathlib.Path, value: JsonDict) -> None:
    """Writes JSON with rounded figures, keys in their order and one leaf list a line."""
    write_text(path, dumps(rounded(value)) + "\n")


def dumps(value: Any, indent: int = 0) -> str:
    """JSON with one line a key and flat lists on one line."""
    pad = " " * (indent + 1)
    if isinstance(value, dict) and value:
        lines = [f"{pad}{json.dumps(k)}: {dumps(v, indent + 1)}" for k, v in value.items()]
        return "{\n" + ",\n".join(lines) + "\n" + " " * indent + "}"
    nested = isinstance(value, list) and any(isinstance(v, (dict, list)) for v in value)
    if nested and not all(
        isinstance(v, list) and not any(isinstance(w, (dict, list)) for w in v) for v in value
    ):
        flat = [_line(v) if _is_flat(v) else dumps(v, indent + 1) for v in value]
        return "[\n" + ",\n".join(pad + v for v in flat) + "\n" + " " * indent + "]"
    return _line(value)


def _is_flat(value: Any) -> bool:
    """A record of plain values, which reads best on one line."""
    inner = value.values() if isinstance(value, dict) else []
    return not any(isinstance(v, (dict, list)) for v in inner) and isinstance(value, dict)


def _line(value: Any) -> str:
    return json.dumps(value, allow_nan=False)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def read_json(path: pathlib.Path) -> JsonDict:
    """An object from a file. ExperimentError (3) where it is none."""
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise ExperimentError(f"{path}: want at most {MOST_BYTES} bytes, got {size}", 3)
        value = json.loads(path.read_text("utf-8"), parse_constant=_refuse)
    except (OSError, ValueError, RecursionError) as error:
        raise ExperimentError(f"{path}: want a JSON object, got: {error}", 3) from error
    if not isinstance(value, dict):
        raise ExperimentError(f"{path}: want a JSON object, got a {type(value).__name__}", 3)
    return value
