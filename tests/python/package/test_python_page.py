"""Runs docs/python.md: its Python blocks, in order, in a folder that holds the
models they name; those that do not need torch run without it."""

import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest
from programs import BUILD

pytest.importorskip("tarn.runtime", exc_type=ImportError)

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "python.md"
MODELS = {"demo": "linear", "names": "seq2seq", "topics": "encoder"}


def test_blocks(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    with_torch = [block for block in blocks if "import torch" in block]
    blocks = [block for block in blocks if block not in with_torch]
    assert len(blocks) == 5 and len(with_torch) == 2
    for name, kind in MODELS.items():
        command = [BUILD / "write_random_model", tmp_path / "models" / name, kind]
        subprocess.run(command, check=True)
    if importlib.util.find_spec("torch") is not None:
        subprocess.run([sys.executable, "-c", with_torch[0]], cwd=tmp_path, check=True)
        assert (tmp_path / "models" / "mine" / "config.json").is_file()
    if importlib.util.find_spec("transformers") is not None:
        subprocess.run([sys.executable, "-c", with_torch[1]], cwd=tmp_path, check=True)
        assert (tmp_path / "models" / "shared" / "config.json").is_file()
    program = "import sys; sys.modules['torch'] = None\n" + "\n".join(blocks)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        errors="replace",
    )
    assert done.returncode == 0, done.stderr
    last = done.stdout.strip().splitlines()[-2:]
    assert re.fullmatch(r"\d+ times the arithmetic, \d+ times the memory", last[0])
    softmax, linear = map(int, last[1].split())
    assert softmax > linear


def test_every_part_is_named():
    import tarn

    page = PAGE.read_text()
    for part in set(tarn._PARTS) - {"attention_registry", "causal_product", "utils"}:
        assert f"`tarn.{part}`" in page or f"`{part}`" in page, part
