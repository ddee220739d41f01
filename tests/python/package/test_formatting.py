"""ruff's view of the Python sources, by the settings of pyproject.toml."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]


def folders():
    (named,) = re.findall(
        r"^PYTHON_FOLDERS := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    return named.split()


@pytest.mark.parametrize("command", [["format", "--check"], ["check"]], ids=" ".join)
def test_sources_pass(command):
    pytest.importorskip("ruff")
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *command, "--no-cache", *folders()],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"want what `make format` writes, got\n{done.stdout}{done.stderr}"


def test_one_version_is_pinned():
    found = [
        version
        for name in ("requirements.txt", "requirements-docs.txt", "pyproject.toml")
        for version in re.findall(
            r'^(?:ruff|required-version = ")==([\d.]+)', (ROOT / name).read_text(), re.MULTILINE
        )
    ]
    assert len(found) == 3 and len(set(found)) == 1, found
