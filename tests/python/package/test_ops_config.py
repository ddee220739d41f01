"""The configuration table from Python: torch.ops.tarn.finish_config and
weight_shapes."""

import json

import pytest
import torch

import tarn.ops  # noqa: F401  loads the operators


def finish(**keys):
    return json.loads(torch.ops.tarn.finish_config(json.dumps(keys)))


def test_absent_keys_take_defaults():
    config = finish()
    assert config["format_version"] == 4
    assert config["arch"] == "decoder" and config["task"] == "lm"
    assert config["d_key"] == 32 and config["d_ff"] == 512
    assert finish(**config) == config


def test_derived_keys_follow_the_given_ones():
    config = finish(arch="seq2seq", attention="exact-topk", d_model=24, n_heads=3, d_key=0)
    assert config["task"] == "seq2seq"
    assert config["cross_attention"] == "full"
    assert config["d_key"] == 8 and config["n_decoder_layers"] == 4


@pytest.mark.parametrize(
    "text, key",
    [
        ('{"n_heads": 3}', "n_heads"),
        ('{"d_modle": 3}', "d_modle"),
        ('{"arch": "encoder"}', "n_classes"),
        ('{"attention": "softmax"}', "attention"),
        ('{"format_version": 5}', "format_version"),
        ("[]", "config.json"),
        ("{", "config.json"),
    ],
)
def test_errors_name_the_key(text, key):
    for operator in (torch.ops.tarn.finish_config, torch.ops.tarn.weight_shapes):
        with pytest.raises(ValueError, match=key):
            operator(text)


def test_weight_shapes_are_those_of_the_model():
    keys = {"arch": "lstm", "d_model": 6, "n_layers": 2, "vocab_size": 5}
    shapes = json.loads(torch.ops.tarn.weight_shapes(json.dumps(keys)))
    lstm = torch.nn.LSTM(6, 6, num_layers=2)
    assert shapes["value_embedding.weight"] == [5, 6]
    for name, parameter in lstm.named_parameters():
        assert shapes["rnn." + name] == list(parameter.shape)
    assert list(shapes)[-1] == "predictor.bias"
    assert len(shapes) == 1 + 8 + 2
