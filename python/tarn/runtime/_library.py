"""Finds and loads the extension module of the runtime: inside an installed
package, or in the build directory of a source tree."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import types

_NAME = "_tarn_runtime"
_FILE = _NAME + ".abi3.so"  # Python 3.11 and newer


def _candidates() -> list[pathlib.Path]:
    here = pathlib.Path(__file__).resolve().parent
    folders = [here, here.parents[2] / "build"]
    named = os.environ.get("TARN_LIBRARY")
    if named:  # next to the operators of that build
        folders.insert(1, pathlib.Path(named).parent)
    return [folder / _FILE for folder in folders]


def _load() -> types.ModuleType:
    for path in _candidates():
        if path.is_file():
            spec = importlib.util.spec_from_file_location(f"tarn.runtime.{_NAME}", path)
            assert spec is not None and spec.loader is not None
            loaded = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(loaded)
            return loaded
    raise ImportError(
        f"tarn.runtime: want the extension {_NAME} in {pathlib.Path(__file__).parent} "
        "or in the build directory, got no such file (build with Python's headers installed)"
    )


module = _load()
