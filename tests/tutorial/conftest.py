"""Runs the blocks of a page in a folder that looks like a clone."""

import contextlib
import io
import os
import pathlib
import subprocess
import sys

import pytest
from checkout_copy import checkout_copy

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TARN_BUILD", ROOT / "build"))
for folder in ("scripts", "python"):
    sys.path.insert(0, str(ROOT / folder))

import make_notebook  # noqa: E402


class Runner:
    """Runs blocks in order: Python in one namespace, shell in one folder."""

    def __init__(self, folder):
        self.folder = folder
        self.names = {"__name__": "tutorial"}

    def python(self, text, page="tutorial.md", line=1):
        """Standard output. `line` makes a traceback name the line of the page."""
        told, before = io.StringIO(), pathlib.Path.cwd()
        os.chdir(self.folder)
        try:
            with contextlib.redirect_stdout(told):
                exec(compile("\n" * (line - 1) + text, page, "exec"), self.names)
        finally:
            os.chdir(before)
        return told.getvalue()

    def shell(self, text):
        done = subprocess.run(
            ["bash", "-euc", text],
            cwd=self.folder,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=600,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def block(self, code):
        """Runs a block of a page and compares what it prints with what is shown."""
        if code.name:
            (self.folder / code.name).write_text(code.text)
        if code.language == "python":
            told = self.python(code.text, line=code.line)
        elif code.language == "sh":
            told = self.shell(code.text)
        else:
            assert code.name, f"line {code.line}: a {code.language} block without a file name"
            return
        # A text may end without a newline, which the page cannot show.
        assert told.rstrip("\n") == (code.output or "").rstrip("\n"), f"line {code.line}"


@pytest.fixture
def fresh(tmp_path):
    """A runner in an empty folder."""
    return Runner(tmp_path)


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A runner in a folder that looks like a clone."""
    return Runner(checkout_copy(tmp_path_factory.mktemp("clone"), ROOT, BUILD))


@pytest.fixture(scope="session")
def page():
    return make_notebook.PAGE.read_text(encoding="utf-8")
