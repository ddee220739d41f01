"""Model directories of an early build (tests/golden/make_stored_models.py) still mean the
same: their logits stay."""

import pathlib

import numpy as np
import pytest
import torch

import tarn
import tarn.runtime

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "golden" / "stored_models"
MODELS = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())
TOKENS = [7, 31, 64, 3, 99, 12, 0, 45, 77, 101, 5, 5]
# On the machine that wrote them the logits are the same bits. Another SIMD
# target sums in another order: float32 rounding of logits of size 3.
TOLERANCE = 5e-6


def test_the_models_are_there():
    assert MODELS == ["classify", "full", "linear", "poly2", "rotary-after", "seq2seq"]


def _runtime_logits(folder):
    model = tarn.runtime.Model(folder, threads=1)
    arch = model.config["arch"]
    if arch == "encoder":
        return model.classify(["abc3", "def11, odd"])
    if arch == "seq2seq":
        return model.score(model.encode_source("abc7"), [10, 120, 121, 122, 55])
    return model.score(model.state(), TOKENS)


@pytest.mark.parametrize("name", MODELS)
def test_runtime_gives_the_same_logits(name):
    want = np.load(FOLDER / name / "logits.npy")
    got = np.asarray(_runtime_logits(FOLDER / name))
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= TOLERANCE


@pytest.mark.parametrize("name", [m for m in MODELS if "classify" not in m and "seq2seq" not in m])
def test_torch_gives_the_same_logits(name):
    model = tarn.load_model(FOLDER / name)
    with torch.no_grad():
        got = model(torch.tensor([TOKENS]))[0]
    want = torch.from_numpy(np.load(FOLDER / name / "logits.npy"))
    assert (got - want).abs().max() <= 3e-5  # another order of sums
