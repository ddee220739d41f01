"""`tarn.nn.ShortConvMixer`, `RgLruMixer` and `MlstmMixer` against the layers of LFM2,
RecurrentGemma and xLSTM that transformers has: values, steps and gradients with the same
weights."""

import pytest
import torch

from tarn import nn

D, HEADS, WIDTH = 12, 4, 3


def lfm2(biased):
    """Ours and theirs with the same weights, none of which is as it begins."""
    lfm = pytest.importorskip("transformers.models.lfm2.modeling_lfm2")
    config = pytest.importorskip("transformers").Lfm2Config(
        hidden_size=D, num_hidden_layers=1, layer_types=["conv"], conv_bias=biased, conv_L_cache=5
    )
    torch.manual_seed(5)
    theirs = lfm.Lfm2ShortConv(config, layer_idx=0)
    ours = nn.make_attention(D, HEADS, "short-conv", conv_width=5, conv_bias=biased)
    disturb(theirs)
    copied = {}
    for part in ["weight", "bias"] if biased else ["weight"]:
        taken = theirs.in_proj.get_parameter(part).chunk(3)
        for name, piece in zip(["key", "query", "value"], taken, strict=True):
            copied[f"{name}_projection.{part}"] = piece
        copied[f"out_projection.{part}"] = theirs.out_proj.get_parameter(part)
    copied["convolution.weight"] = theirs.conv.weight[:, 0]
    if biased:
        copied["convolution.bias"] = theirs.conv.bias
    ours.load_state_dict(copied)  # strict: these are all
    ours.double(), theirs.double().eval()
    pairs = {
        "convolution.weight": theirs.conv.weight,
        "out_projection.weight": theirs.out_proj.weight,
    }
    return ours, theirs, pairs


def griffin(biased):
    gemma = pytest.importorskip("transformers.models.recurrent_gemma.modeling_recurrent_gemma")
    config = pytest.importorskip("transformers").RecurrentGemmaConfig(
        hidden_size=D, num_attention_heads=HEADS, lru_width=HEADS * WIDTH, conv1d_width=4
    )
    torch.manual_seed(6)
    theirs = gemma.RecurrentGemmaRecurrentBlock(config, layer_idx=0)
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.normal_(std=0.4)
        theirs.rg_lru.recurrent_param.uniform_(-5.0, -2.0)
    ours = nn.make_attention(D, HEADS, "rg-lru", d_value=WIDTH)
    unit = theirs.rg_lru
    outer = {"value": theirs.linear_x, "gate": theirs.linear_y, "out": theirs.linear_out}
    copied = {
        f"{name}_projection.{part}": tensor
        for name, module in outer.items()
        for part, tensor in module.named_parameters()
    }
    copied["convolution.weight"] = theirs.conv_1d.weight[:, 0]
    copied["convolution.bias"] = theirs.conv_1d.bias
    copied["input_gate.weight"] = unit.input_gate_weight.transpose(1, 2)
    copied["input_gate.bias"] = unit.input_gate_bias.flatten()
    copied["recurrence_gate.weight"] = unit.recurrent_gate_weight.transpose(1, 2)
    copied["recurrence_gate.bias"] = unit.recurrent_gate_bias.flatten()
    copied["Lambda"] = unit.recurrent_param
    ours.load_state_dict(copied)
    ours.double(), theirs.double().eval()
    pairs = {
        "Lambda": unit.recurrent_param,
        "input_gate.bias": unit.input_gate_bias,
        "recurrence_gate.bias": unit.recurrent_gate_bias,
        "convolution.weight": theirs.conv_1d.weight,
        "gate_projection.weight": theirs.linear_y.weight,
    }

    def called(x):
        places = torch.arange(x.shape[1])[None]
        return theirs(x, places, None, use_cache=False)[0]

    return ours, called, pairs


def xlstm(_):
    lstm = pytest.importorskip("transformers.models.xlstm.modeling_xlstm")
    config = pytest.importorskip("transformers").xLSTMConfig(
        hidden_size=D, num_heads=HEADS, qk_dim_factor=2.0, v_dim_factor=1.0,
        autocast_kernel_dtype="float32", chunk_size=16,
    )  # fmt: skip
    torch.manual_seed(7)
    theirs = lstm.xLSTMLayer(config)
    disturb(theirs)
    ours = nn.make_attention(D, HEADS, "mlstm", d_key=6, d_value=3, norm_eps=config.norm_eps)
    names = {
        "query": "q", "key": "k", "value": "v", "gate": "ogate_preact", "input": "igate_preact",
        "forget": "fgate_preact", "out": "out_proj",
    }  # fmt: skip
    copied = {
        f"{name}_projection.{part}": tensor
        for name, published in names.items()
        for part, tensor in theirs.get_submodule(published).named_parameters()
    }
    copied["norm.weight"] = theirs.multihead_norm.weight
    ours.load_state_dict(copied)
    ours.double(), theirs.double().eval()
    pairs = {
        "input_projection.bias": theirs.igate_preact.bias,
        "forget_projection.weight": theirs.fgate_preact.weight,
        "norm.weight": theirs.multihead_norm.weight,
        "value_projection.weight": theirs.v.weight,
    }
    return ours, lambda x: theirs(x)[0], pairs


@torch.no_grad()
def disturb(module):
    for weight in module.parameters():
        weight.add_(torch.randn_like(weight), alpha=0.2)


BOTH = pytest.mark.parametrize(
    "pair, biased", [(lfm2, False), (lfm2, True), (griffin, True), (xlstm, False)], ids=str
)


@BOTH
@pytest.mark.parametrize("length", [1, 3, 37])
def test_values_are_those_of_transformers(pair, biased, length):
    ours, theirs, _ = pair(biased)
    x = torch.randn(2, length, D, dtype=torch.float64)
    with torch.no_grad():
        wanted = theirs(x)
        torch.testing.assert_close(ours(x), wanted, rtol=0, atol=1e-6)
        ours.float()
        torch.testing.assert_close(ours(x.float()), wanted.float(), rtol=0, atol=2e-5)
        first, state = ours.prefill(x[:, : length // 2].float())
        rows = [first]
        for row in x[:, length // 2 :].float().unbind(1):
            out, state = ours.step(row, state)
            rows.append(out[:, None])
        torch.testing.assert_close(torch.cat(rows, 1), wanted.float(), rtol=0, atol=2e-5)


@BOTH
def test_gradients_are_those_of_transformers(pair, biased):
    ours, theirs, pairs = pair(biased)
    x = torch.randn(2, 21, D, dtype=torch.float64)
    readout = torch.randn_like(x)
    given, wanted = x.clone().requires_grad_(), x.clone().requires_grad_()
    (ours(given) * readout).sum().backward()
    (theirs(wanted) * readout).sum().backward()
    torch.testing.assert_close(given.grad, wanted.grad, rtol=1e-5, atol=1e-5)
    for name, weight in pairs.items():
        own = ours.get_parameter(name).grad
        torch.testing.assert_close(own, weight.grad.reshape(own.shape), rtol=1e-5, atol=1e-5)


def test_padding_between_tokens_moves_the_first_token():
    """The first token that counts writes without the root, wherever it is in the row."""
    ours, _, _ = griffin(True)
    x = torch.randn(1, 6, D, dtype=torch.float64)
    kept = torch.tensor([[False, False, True, True, True, True]])
    with torch.no_grad():
        # Zeros before the first token, as the convolution of the shorter row has them.
        shifted = ours(x, key_mask=kept)[:, 2:]
        torch.testing.assert_close(shifted, ours(x[:, 2:]), rtol=0, atol=1e-12)
