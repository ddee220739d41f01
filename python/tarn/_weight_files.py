"""The weights of a model directory: one file, or shards and their index."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import torch

from tarn._files import read_tensors
from tarn._json import strict
from tarn._paths import shown

# As src/weights/shard_index.h has them.
_MAX_INDEX = 1 << 26  # bytes
_MAX_SHARDS = 4096
_MAX_TENSORS = 1 << 18
_MAX_NAME = 255  # bytes of a file's name


def read_weights(folder: pathlib.Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """All tensors of a directory's weights, on the CPU, and the file of each, as
    messages name it. A single file wins over an index, as it does for the
    runtime. Raises ValueError for files that are not what they must be, and
    OSError."""
    single = folder / "model.safetensors"
    index = folder / "model.safetensors.index.json"
    if os.path.lexists(single) or not os.path.lexists(index):
        tensors, _ = read_tensors(single)
        return tensors, dict.fromkeys(tensors, shown(single))
    wanted_of: dict[str, set[str]] = {}
    for tensor, name in _shards(index).items():
        wanted_of.setdefault(name, set()).add(tensor)
    tensors, files = {}, {}
    for name, wanted in sorted(wanted_of.items()):
        path = folder / name
        found, _ = read_tensors(path)
        for tensor in sorted(found.keys() ^ wanted):
            raise ValueError(
                f"{shown(path)}: {ascii(tensor)}: want the tensors that {shown(index)} finds in "
                f"this file, got {'one more' if tensor in found else 'none of this name'}"
            )
        tensors |= found
        files |= dict.fromkeys(found, shown(path))
    return tensors, files


def _shards(index: pathlib.Path) -> dict[str, str]:
    """Tensor name -> name of a file in the same folder."""
    where = shown(index)
    size = index.stat().st_size
    if size > _MAX_INDEX:
        raise ValueError(f"{where}: want at most {_MAX_INDEX} bytes, got {size}")
    document = strict(index.read_bytes(), where)
    shards: Any = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(shards, dict) or not shards:
        raise ValueError(
            f"{where}: weight_map: want an object of tensor names and file names, got none"
        )
    for tensor, name in shards.items():
        if not isinstance(name, str) or not _is_bare(name):
            raise ValueError(
                f"{where}: weight_map: {ascii(tensor)}: want the name of a file in the same "
                f"folder, got {ascii(name)}"
            )
    for count, most, what in (
        (len(shards), _MAX_TENSORS, "tensors"),
        (len(set(shards.values())), _MAX_SHARDS, "files"),
    ):
        if count > most:
            raise ValueError(f"{where}: want at most {most} {what}, got {count}")
    return shards


def _is_bare(name: str) -> bool:
    return (
        name not in ("", ".", "..")
        and len(os.fsencode(name)) <= _MAX_NAME
        and not any(mark in name for mark in "/\\\0")
    )
