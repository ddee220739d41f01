"""Model directories of formats 1 to 3, written by an earlier build
(tests/golden/make_old_models.py), still mean the same."""
import json
import pathlib

import numpy as np
import pytest
import torch

import tarn
import tarn.runtime

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "golden" / "old_models"
MODELS = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())
TOKENS = [7, 31, 64, 3, 99, 12, 0, 45, 77, 101, 5, 5]
# On the machine that wrote them the logits are the same bits. Another SIMD
# target sums in another order: float32 rounding of logits of size 3.
TOLERANCE = 5e-6


def test_every_format_is_there():
    versions = {json.loads((FOLDER / name / "config.json").read_text())["format_version"]
                for name in MODELS}
    assert versions == {1, 2, 3}


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
