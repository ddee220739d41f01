"""transformers' own models after tarn.accelerate_transformers(): logits, gradients of all
weights and 30 generated tokens are those of its own forms in torch."""

import os
import pathlib
import subprocess
import sys

import pytest
import torch

pytest.importorskip("transformers")
PROGRAM = pathlib.Path(__file__).with_name("transformers_models.py")
MODELS = (
    "qwen3_5",
    "olmo_hybrid",
    "kimi_linear",
    "mamba2",
    "granitemoehybrid",
    "falcon_h1",
    "nemotron_h",
    "mamba",
    "falcon_mamba",
    "jamba",
)


def program(*arguments):
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=1200,
        env=dict(os.environ, HF_HUB_OFFLINE="1"),
    )


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    found = {}
    for way in ("plain", "tarn"):
        path = tmp_path_factory.mktemp("models") / way
        done = program(PROGRAM, way, path)
        assert done.returncode == 0, done.stderr
        found[way] = torch.load(path)
    return found


def distance(ours, theirs):
    return float((ours - theirs).norm() / theirs.norm())


@pytest.mark.parametrize("name", MODELS)
def test_models_agree(told, name):
    ours, theirs = told["tarn"][name], told["plain"][name]
    assert not torch.equal(ours["logits"], theirs["logits"]), "tarn's kernels were not called"
    assert distance(ours["logits"], theirs["logits"]) < 2e-5
    assert torch.equal(ours["tokens"], theirs["tokens"])
    assert distance(ours["steps"], theirs["steps"]) < 2e-5
    assert ours["gradients"].keys() == theirs["gradients"].keys()
    for weight, gradient in theirs["gradients"].items():
        if gradient.norm() > 0:
            # Their chunk form sums logarithms of gates in float32.
            assert distance(ours["gradients"][weight], gradient) < 2e-4, weight


def test_a_second_call_does_nothing():
    done = program(
        "-c",
        "import tarn, sys; tarn.accelerate_transformers(); fla = sys.modules['fla']; "
        "tarn.accelerate_transformers(); assert sys.modules['fla'] is fla",
    )
    assert done.returncode == 0, done.stderr


def test_too_late_is_refused():
    done = program(
        "-c",
        "import transformers.models.mamba2.modeling_mamba2, tarn\n"
        "try: tarn.accelerate_transformers()\n"
        "except RuntimeError as error: print(error)\n"
        "import sys; assert 'fla' not in sys.modules",
    )
    assert done.returncode == 0, done.stderr
    assert "want it called before these modules are imported, got " in done.stdout
    assert "modeling_mamba2" in done.stdout
