"""Finds and loads the shared library that registers ``torch.ops.tarn``."""

from __future__ import annotations

import importlib.metadata
import mmap
import os
import pathlib
import re
import sys

_NAME = "libtarn_pytorch.so"


def _candidates():
    """Where the library may be, in order; TARN_LIBRARY allows no other."""
    named = os.environ.get("TARN_LIBRARY")
    if named:
        return [pathlib.Path(named)]
    package = pathlib.Path(__file__).resolve().parent
    return [package / "lib" / _NAME, package.parents[1] / "build" / _NAME]


def _find():
    candidates = _candidates()
    for path in candidates:
        if path.is_file():
            return path
    raise ImportError(
        "tarn: want the operator library at "
        + " or ".join(str(path) for path in candidates)
        + ", got no such file (build it with `make build`, or set TARN_LIBRARY)"
    )


def _built_with(path):
    """The torch version the library was built with, read without loading it:
    another version may lack symbols and end the load halfway."""
    try:
        with open(path, "rb") as file:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                found = re.search(rb"TARN_BUILT_WITH_TORCH=([0-9.]+);", data)
                version = found and found.group(1).decode()
    except (OSError, ValueError) as error:
        raise ImportError(f"tarn: {path}: {error}") from None
    if version is None:
        raise ImportError(f"tarn: {path}: want a library built by tarn, got another file")
    return version


def _torch_version() -> str | None:
    """Version of the installed torch, without importing it; None if there is none."""
    loaded = sys.modules.get("torch")
    if loaded is not None:
        return loaded.__version__.split("+")[0]
    try:
        return importlib.metadata.version("torch").split("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return None


def _check(path: pathlib.Path, given: str) -> None:
    """Patch releases keep torch's binary interface, minor ones do not."""
    wanted = _built_with(path)
    if given.split(".")[:2] != wanted.split(".")[:2]:
        raise ImportError(
            f"tarn: {path}: want torch {wanted}, which it was built with, "
            f"got torch {given} "
            "(build again with TARN_PYTHON naming this Python)"
        )


def check_torch() -> None:
    """Raises ImportError where operators and torch are both installed and do not fit
    each other; without one of them the runtime part still works."""
    given = _torch_version()
    path = next((path for path in _candidates() if path.is_file()), None)
    if given is not None and path is not None:
        _check(path, given)


def load() -> None:
    """Loads the library once. Raises ImportError in one line: missing file,
    unreadable file, or a torch other than the one it was built with."""
    given = _torch_version()
    if given is None:
        raise ImportError(
            "tarn: want torch (2.11 or newer) for operators and layers, got none "
            "(tarn.runtime and tarn.accounting need none)"
        )
    path = _find()
    _check(path, given)
    import torch

    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        line = " ".join(str(error).split())
        raise ImportError(f"tarn: {path} does not load: {line}") from None
    try:
        torch.ops.tarn.use_simd_target_from_environment()
    except ValueError as error:
        raise ImportError(f"tarn: TARN_FORCE_TARGET: {error}") from None


_loaded = False


def ensure() -> None:
    """load(), unless it has been done."""
    global _loaded
    if not _loaded:
        load()
        _loaded = True
