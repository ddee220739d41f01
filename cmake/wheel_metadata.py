"""Version and dependencies of the wheel, which follow the torch that it is built for:
0.1.0+torch2.13 has operators for torch 2.13, 0.1.0 has the runtime part alone."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

__all__ = ["dynamic_metadata", "torch_version"]
_HERE = pathlib.Path(__file__).resolve().parent


def torch_version() -> str | None:
    """Of this Python's torch; None for a wheel without operators."""
    if os.environ.get("TARN_RUNTIME_ONLY", "0") not in ("", "0"):
        return None
    done = subprocess.run([sys.executable, _HERE / "find_torch.py"], text=True, capture_output=True)
    return done.stdout.split(";")[0] if done.returncode == 0 else None


def dynamic_metadata(field: str, settings: Mapping[str, Any]) -> str | list[str]:
    """What scikit-build-core asks for."""
    del settings
    torch = torch_version()
    major, minor = torch.split(".")[:2] if torch else ("", "")
    if field == "dependencies":
        # Patch releases of torch keep its binary interface, minor ones do not.
        needed = [f"torch>={major}.{minor},<{major}.{int(minor) + 1}"] if torch else []
        return ["numpy>=1.26", *needed]
    if field != "version":
        raise RuntimeError(f"wheel_metadata: want version or dependencies, got {field}")
    lists = (_HERE.parent / "CMakeLists.txt").read_text(encoding="utf-8")
    found = re.search(r"project\(tarn VERSION ([0-9.]+)", lists)
    if found is None:
        raise RuntimeError("CMakeLists.txt names no version")
    return found.group(1) + (f"+torch{major}.{minor}" if torch else "")
