import os
import pathlib
import subprocess
import sys

import pytest
import toy

from experiments import registry
from experiments.core.progress import Progress
from experiments.core.settings import Settings

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@pytest.fixture(autouse=True)
def only_toy(monkeypatch):
    monkeypatch.setattr(registry, "MODULES", {"scaling": "toy"})
    monkeypatch.delenv("TARN_DATA", raising=False)
    toy.CALLS.clear()


@pytest.fixture
def text(tmp_path):
    """A data folder as --data names it."""
    folder = tmp_path / "text"
    folder.mkdir()
    line = "It was the best of times, it was the worst of times.\n"
    (folder / "input.txt").write_text("".join(f"{i} {line}" for i in range(400)))
    return folder


@pytest.fixture
def settings(tmp_path, text):
    return Settings(
        toy.EXPERIMENT,
        "quick",
        tmp_path / "out" / "scaling",
        threads=1,
        data_paths={"text-shakespeare": text},
    )


@pytest.fixture
def progress():
    return Progress("scaling", quiet=True)


@pytest.fixture
def command(tmp_path, text):
    """Starts `tarn experiment` on the toy as a separate process."""

    def start(*arguments, stdout=subprocess.PIPE, **environment):
        words = [sys.executable, str(HERE / "run_toy.py"), *map(str, arguments)]
        path = os.pathsep.join([str(ROOT), str(HERE), os.environ.get("PYTHONPATH", "")])
        return subprocess.Popen(
            words,
            cwd=tmp_path,
            text=True,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env=dict(os.environ, PYTHONPATH=path, **environment),
        )

    return start
