import os
import pathlib
import subprocess

import plain_model
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARN = os.environ.get("TARN_PROGRAM", str(ROOT / "build" / "tarn"))


@pytest.fixture(scope="session")
def tarn_program():
    return TARN


@pytest.fixture(scope="session")
def tarn():
    """Runs the program; returns the finished process, outputs as bytes."""

    def run(*arguments, stdin=b"", env=None, timeout=600):
        return subprocess.run(
            [TARN, *map(str, arguments)],
            input=stdin,
            capture_output=True,
            env={**os.environ, **(env or {})},
            timeout=timeout,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Folders with small random models, whose texts have no end: linear, full, char."""
    root = tmp_path_factory.mktemp("models")
    plain_model.write_model(root / "linear", seed=1, positions="none")
    plain_model.write_model(root / "full", seed=2, attention="full", positions="none")
    plain_model.write_model(
        root / "char", seed=3, characters="abc \n\u20ac\U0001f600", positions="none"
    )
    return root
