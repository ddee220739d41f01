"""transformers' own models after tarn.accelerate_transformers(): logits, gradients of all
weights, generated tokens and beams are those of its own forms in torch, with padding on the
left and without."""

import os
import pathlib
import subprocess
import sys

import pytest
import torch
from transformers_table import MODELS, WITHOUT_BEAMS

pytest.importorskip("transformers")
PROGRAM = pathlib.Path(__file__).with_name("transformers_models.py")


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


@pytest.mark.parametrize("padded", ["", "padded "])
@pytest.mark.parametrize("name", MODELS)
def test_logits_and_gradients_agree(told, name, padded):
    ours, theirs = told["tarn"][name], told["plain"][name]
    assert distance(ours[padded + "logits"], theirs[padded + "logits"]) < 2e-5
    ours, theirs = ours[padded + "gradients"], theirs[padded + "gradients"]
    assert ours.keys() == theirs.keys()
    for weight, gradient in theirs.items():
        if gradient.norm() > 0:
            # Their chunk form sums logarithms of gates in float32.
            assert distance(ours[weight], gradient) < 4e-4, weight


@pytest.mark.parametrize("way", ["generated", "padded, generated", "beams"])
@pytest.mark.parametrize("name", MODELS)
def test_generation_agrees(told, name, way):
    ours, theirs = told["tarn"][name][way], told["plain"][name][way]
    refused = way == "beams" and name in WITHOUT_BEAMS
    assert ("refusal" in theirs) == refused, theirs
    if refused:
        assert ours == theirs
        return
    assert torch.equal(ours["tokens"], theirs["tokens"])
    assert distance(ours["values"], theirs["values"]) < 2e-5


@pytest.mark.parametrize("name", MODELS)
def test_kernels_are_called(told, name):
    assert told["tarn"][name]["kernels"]
    assert not told["plain"][name]["kernels"]


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
