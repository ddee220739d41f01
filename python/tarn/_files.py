"""Tensor files: safetensors in and out, written by rename."""

from __future__ import annotations

import os
import pathlib
import tempfile
from collections.abc import Mapping

import safetensors.torch
import torch

from tarn._json import strict
from tarn._paths import AnyPath, shown

_MAX_HEADER = 100_000_000  # bytes, the format's own bound


def write_bytes(data: bytes, path: AnyPath) -> None:
    """Writes a file that is complete or does not appear at all. Raises OSError."""
    target = pathlib.Path(os.fsdecode(path))
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


def write_tensors(
    tensors: Mapping[str, torch.Tensor],
    path: AnyPath,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes tensors of any device and any strides. Raises OSError."""
    dense = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    write_bytes(safetensors.torch.save(dense, dict(metadata or {})), path)


def read_tensors(
    path: AnyPath,
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """All tensors of a file, on the CPU, and its metadata. Raises OSError, and
    ValueError for a file that is no safetensors file."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length <= _MAX_HEADER:  # else the library refuses the file
            header = file.read(length)
            # The library takes the last of two entries of one name.
            if len(header) == length > 0:
                strict(header, f"{shown(path)}: header")
        name = os.fsdecode(path)
        if not name.isascii() and os.fsencode(path).decode(errors="replace") != name:
            # The library opens names in UTF-8 alone; this is one, of the same file.
            name = f"/proc/self/fd/{file.fileno()}"
        return _read_all(name, path)


def _read_all(name: str, path: AnyPath) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    try:
        with safetensors.safe_open(name, framework="pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}
            return tensors, file.metadata() or {}
    except safetensors.SafetensorError as error:
        raise ValueError(f"{shown(path)}: want a safetensors file, got: {error}") from None
