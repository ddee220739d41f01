"""Packed files, read with a bound on what they unpack to."""

from __future__ import annotations

import ctypes
import gzip
import io
import pathlib
import zlib

from experiments.core.types import ExperimentError


def unpacked(path: pathlib.Path, most: int) -> bytes:
    """A file's content, plain or packed with gzip or zstd, as its first bytes say.
    ExperimentError (3) where it holds more than `most` bytes or is broken; no
    more than that is unpacked."""
    with path.open("rb") as stream:
        # Packing makes small files larger, but not by this.
        content = stream.read(most + 4097)
    for suffix, magic, unpack in (
        (".gz", b"\x1f\x8b", _gzip),
        (".zst", b"\x28\xb5\x2f\xfd", _zstd),
    ):
        if content.startswith(magic):
            content = unpack(path, _within(path, content, most + 4096), most)
            break
        if path.suffix == suffix:
            raise _broken(path, suffix[1:])
    return _within(path, content, most)


def _within(path: pathlib.Path, content: bytes, most: int) -> bytes:
    if len(content) > most:
        raise ExperimentError(f"{path.name}: want at most {most:,} bytes, got more", 3)
    return content


def _broken(path: pathlib.Path, kind: str) -> ExperimentError:
    return ExperimentError(f"{path.name}: want a whole {kind} file, got a broken one", 3)


def _gzip(path: pathlib.Path, packed: bytes, most: int) -> bytes:
    try:
        with gzip.open(io.BytesIO(packed)) as stream:  # of any number of members
            return stream.read(most + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _broken(path, "gzip") from error


def _zstd(path: pathlib.Path, packed: bytes, most: int) -> bytes:
    """Unpacks zstd with the library that the programs read with, too."""
    try:
        library = ctypes.CDLL("libzstd.so.1")
    except OSError as error:
        raise ExperimentError(f"{path.name}: want libzstd to unpack it, got: {error}", 3) from error
    library.ZSTD_decompress.restype = ctypes.c_size_t
    library.ZSTD_decompress.argtypes = [
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.c_char_p,
        ctypes.c_size_t,
    ]
    library.ZSTD_isError.argtypes = [ctypes.c_size_t]
    room = ctypes.create_string_buffer(most + 1)
    count = library.ZSTD_decompress(room, most + 1, packed, len(packed))
    if not packed or library.ZSTD_isError(count):
        raise ExperimentError(
            f"{path.name}: want a whole zstd file of at most {most:,} bytes, got "
            "a broken or larger one",
            3,
        )
    return ctypes.string_at(room, count)
