"""Tensor files: safetensors in and out, written by rename."""

from __future__ import annotations

import os
import pathlib
import tempfile
from collections.abc import Mapping

import safetensors.torch
import torch


def write_bytes(data: bytes, path: str | os.PathLike[str]) -> None:
    """Writes a file that is complete or does not appear at all. Raises OSError."""
    target = pathlib.Path(path)
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
    path: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes tensors of any device and any strides. Raises OSError."""
    dense = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    write_bytes(safetensors.torch.save(dense, dict(metadata or {})), path)


def read_tensors(
    path: str | os.PathLike[str],
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """All tensors of a file, on the CPU, and its metadata. Raises OSError, and
    ValueError for a file that is no safetensors file."""
    try:
        with safetensors.safe_open(str(path), framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}
            return tensors, file.metadata() or {}
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path}: want a safetensors file, got: {error}") from None
