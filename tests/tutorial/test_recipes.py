"""Every block of docs/recipes.md, unchanged, in a separate process."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest
from conftest import ROOT

PAGE = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
BLOCKS = [
    (title, language, code)
    for title, text in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    for language, code in re.findall(r"^```(\w+)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
]


def test_every_recipe_has_a_program_and_a_place_in_the_list():
    titles = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    assert [title for title, _, _ in BLOCKS] == titles
    listed = re.findall(r"\]\(#(.+?)\) \|$", PAGE, re.MULTILINE)
    slugs = [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]
    assert listed == slugs


@pytest.mark.parametrize(("title", "language", "code"), BLOCKS, ids=[title for title, *_ in BLOCKS])
def test_runs(title, language, code, tmp_path):
    for package in ("transformers", "peft", "accelerate"):
        if re.search(rf"^from {package}\b", code, re.MULTILINE):
            if importlib.util.find_spec(package) is None:
                pytest.skip(f"{package} is not installed")
    command = [sys.executable, "-c", code] if language == "python" else ["sh", "-ec", code]
    programs = pathlib.Path(sys.executable).parent
    environment = {
        **os.environ, "OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1",
        "PATH": f"{programs}:{os.environ['PATH']}",
    }  # fmt: skip
    folder = tmp_path if language == "python" else ROOT
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=600)  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
