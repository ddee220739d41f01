"""Scaled rotary positions against the numbers of transformers
(tests/golden/rotary_scaling.json, by make_rotary_scaling.py)."""

import json
import math
import pathlib

import pytest
import torch

import tarn  # noqa: F401 (registers the operators)

GOLDEN = json.loads(
    (pathlib.Path(__file__).parents[2] / "golden" / "rotary_scaling.json").read_text()
)["cases"]


def options_of(case):
    """The operator's options for rope_parameters of a published configuration."""
    given = dict(case["parameters"])
    found = {"scaling": given.pop("rope_type"), "factor": given.pop("factor", 1.0)}
    names = {
        "original_max_position_embeddings": "original_positions",
        "low_freq_factor": "low",
        "high_freq_factor": "high",
        "beta_slow": "low",
        "partial_rotary_factor": "low",
        "beta_fast": "high",
        "truncate": "truncate",
    }
    if "mscale" in given:  # one number in place of two
        found["magnitude"] = case["magnitude"]
        del given["mscale"], given["mscale_all_dim"]
    return found | {names[key]: value for key, value in given.items()}


@pytest.mark.parametrize("name", GOLDEN)
def test_equals_transformers(name):
    case = GOLDEN[name]
    places = torch.tensor([0, 1, 5, 1000])
    cos, sin = torch.ops.tarn.rotary_rows(places, case["d_key"], case["base"], **options_of(case))
    frequencies = torch.tensor(case["frequencies"], dtype=torch.float64)
    assert cos.shape == (4, case["d_key"] // 2)
    angles = places[:, None].double() * frequencies
    # transformers computes the frequencies in float32: 1000 times its error.
    for place, bound in ((0, 1e-7), (1, 5e-7), (2, 3e-6), (3, 5e-4)):
        for given, wanted in ((cos, angles.cos()), (sin, angles.sin())):
            difference = given[place].double() - case["magnitude"] * wanted[place]
            assert difference.abs().max() < bound * case["magnitude"]
    # The first pair rotates by the same angle in all forms but those that scale all.
    if case["parameters"]["rope_type"] not in ("linear", "proportional"):
        assert frequencies[0] == 1 and frequencies[-1] < 1.001 * frequencies[-2]


def test_default_is_no_scaling_and_errors_name_the_argument():
    places = torch.arange(9)
    plain = torch.ops.tarn.rotary_rows(places, 8, 100.0)
    given = torch.ops.tarn.rotary_rows(places, 8, 100.0, scaling="none", factor=7.0)
    half = torch.ops.tarn.rotary_rows(2 * places, 8, 100.0, scaling="linear", factor=2.0)
    assert all(torch.equal(a, b) for a, b in zip(plain, given))
    assert all(torch.equal(a, b) for a, b in zip(plain, half))
    stretched = torch.ops.tarn.rotary_rows(
        places, 8, 100.0, scaling="yarn", factor=4.0, original_positions=64
    )
    length = (stretched[0] ** 2 + stretched[1] ** 2).sqrt()
    torch.testing.assert_close(length, torch.full_like(length, 0.1 * math.log(4) + 1))
    for wrong, name in (
        (dict(scaling="ntk"), "scaling"),
        (dict(scaling="linear", factor=0.5), "factor"),
        (dict(scaling="llama3", factor=2.0), "original_positions"),
        (dict(scaling="llama3", factor=2.0, original_positions=9, low=4.0), "low"),
        (dict(scaling="proportional", low=1.5), "low"),
        (dict(scaling="yarn", factor=2.0, original_positions=9, magnitude=-1.0), "magnitude"),
    ):
        with pytest.raises(ValueError, match=name):
            torch.ops.tarn.rotary_rows(places, 8, 100.0, **wrong)
        with pytest.raises(ValueError, match=name):
            torch.ops.tarn.rotary_rows(places.to("meta"), 8, 100.0, **wrong)
