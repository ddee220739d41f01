"""Options of flash-linear-attention's models after tarn.install_as_fla(): models that have them
train, and prefill and steps give the whole. What the options compute is checked in
test_fla_package_forms.py."""

import pytest
import torch
from fla_options import OPTIONS, REFUSED
from test_fla_package import FOLDER, distance, installed, program

MODELS = ("retnet", "gla", "hgrn", "hgrn2", "delta_net", "gated_deltanet", "kda", "linear_attn")


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    path = tmp_path_factory.mktemp("fla") / "told"
    done = program(FOLDER / "fla_options.py", path, *MODELS)
    assert done.returncode == 0, done.stderr
    return torch.load(path)


@installed
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("name", MODELS)
def test_option(told, name, option):
    if (name, option) in REFUSED:
        pytest.skip("the package refuses it")
    found = told[name, option]
    assert distance(found["steps"], found["whole"]) < 1e-5
    torch.testing.assert_close(found["loss"], found["plain"], rtol=1e-5, atol=0)
    # The first layer has one residual alone, so nothing to choose by these weights.
    unused = {"model.layers.0.attn_res_proj.weight", "model.layers.0.attn_res_norm.weight"}
    assert set(found["without gradient"]) <= unused
