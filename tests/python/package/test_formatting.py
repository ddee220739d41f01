"""The sources are as `make format` writes them: clang-format for C++, by .clang-format, and
ruff for Python, by the settings of pyproject.toml."""

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


def test_cpp_sources_pass():
    program = pathlib.Path(sys.executable).with_name("clang-format")
    if not program.exists():
        pytest.skip("no clang-format next to this Python")
    sources = sorted(
        path
        for folder in ("bench", "examples", "include", "src", "tests")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".h", ".cc", ".c", ".hpp", ".cu", ".cuh")
    )
    assert len(sources) > 500
    done = subprocess.run(
        [program, "--dry-run", "-Werror", *sources], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, f"want what `make format` writes, got\n{done.stderr[:4000]}"


def test_one_version_is_pinned():
    found = [
        version
        for name in ("requirements.txt", "requirements-docs.txt", "pyproject.toml")
        for version in re.findall(
            r'^(?:ruff|required-version = ")==([\d.]+)', (ROOT / name).read_text(), re.MULTILINE
        )
    ]
    assert len(found) == 3 and len(set(found)) == 1, found
