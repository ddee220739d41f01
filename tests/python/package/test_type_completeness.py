"""What the package tells type checkers: pyright counts the public names whose types are
all written down."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("pyright")

SOURCES = pathlib.Path(__file__).resolve().parents[3] / "python"
LEAST = 0.98  # of the public names


def test_public_names_have_types(tmp_path):
    # pyright asks the first python on PATH for its search path; torch must be there.
    path = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = [sys.executable, "-m", "pyright", "--verifytypes", "tarn"]
    done = subprocess.run(
        [*command, "--ignoreexternal", "--outputjson"],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith("{"), done.stdout + done.stderr
    report = json.loads(done.stdout)["typeCompleteness"]
    assert pathlib.Path(report["moduleRootDirectory"]) == SOURCES / "tarn"
    untyped = [
        "\n  ".join([symbol["name"], *(d["message"] for d in symbol["diagnostics"])])
        for symbol in report["symbols"]
        if symbol["isExported"] and not symbol["isTypeKnown"]
    ]
    assert sum(report["exportedSymbolCounts"].values()) > 700
    assert report["completenessScore"] >= LEAST, "\n".join(untyped)
