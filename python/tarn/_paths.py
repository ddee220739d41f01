"""Names of files: what the file system takes, UTF-8 or not."""

from __future__ import annotations

import os

# str may hold bytes that are not UTF-8 as os.fsdecode leaves them (surrogateescape).
AnyPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]


def shown(path: AnyPath) -> str:
    """A path for a message, which any stream can write: bytes that are not UTF-8
    become \\xNN."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
