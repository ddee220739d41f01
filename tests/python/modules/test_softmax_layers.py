"""The attention layers of published models against those of transformers
(tests/golden/softmax_layers.safetensors, by make_softmax_layers.py): whole sequences, pieces
and steps, and the latent variant in the form that keeps one row a token."""

import pathlib

import pytest
import torch
from safetensors.torch import load_file

from tarn import nn

GOLDEN = load_file(pathlib.Path(__file__).parents[2] / "golden" / "softmax_layers.safetensors")
ROTARY = dict(positions="rotary", rotary_base=100.0, d_key=8, d_value=8, key_heads=2)
LLAMA3 = dict(
    rotary_scaling="llama3", rotary_factor=4.0, rotary_original_positions=16, rotary_low=1.0,
    rotary_high=4.0,
)  # fmt: skip
YARN = dict(
    rotary_scaling="yarn", rotary_factor=4.0, rotary_original_positions=16, rotary_low=1.0,
    rotary_high=4.0, rotary_truncate=False,
)  # fmt: skip
NO_BIAS = dict(qkv_bias=False, out_bias=False)
CASES = {
    "llama": ROTARY | LLAMA3 | NO_BIAS,
    "qwen2": ROTARY | dict(out_bias=False),
    "qwen3": ROTARY | NO_BIAS | dict(d_key=10, d_value=10, head_norm="head", norm_eps=1e-6),
    "olmo2": ROTARY | NO_BIAS | dict(head_norm="full"),
    "mistral": ROTARY | NO_BIAS | dict(key_heads=1, window=5),
    "gemma2": ROTARY | NO_BIAS | dict(window=7, softcap=0.4, score_scale=5**-0.5),
    "gpt_oss": ROTARY | YARN | dict(window=6, sinks=True),
    "deepseek": NO_BIAS
    | dict(
        positions="rotary", rotary_base=100.0, rotary_width=4, d_key=10, d_value=7,
        latent_width=10, query_latent_width=12, shared_key_width=4, norm_eps=1e-6,
    ),
}  # fmt: skip


def halves(weight, heads, own, shared):
    """Rows of the rotated channels of each head from pairs side by side to two halves."""
    rows = weight.unflatten(0, (heads, own + shared))
    first, last = rows[:, :own], rows[:, own:]
    last = last.unflatten(1, (shared // 2, 2)).transpose(1, 2).flatten(1, 2)
    return torch.cat([first, last], 1).flatten(0, 1)


def deepseek_weights(given):
    """DeepSeek's tensors by tarn's names."""
    keys_values = given["kv_b_proj.weight"].unflatten(0, (4, 6 + 7))
    return {
        "query_down_projection.weight": given["q_a_proj.weight"],
        "query_down_norm.weight": given["q_a_layernorm.weight"],
        "query_projection.weight": halves(given["q_b_proj.weight"], 4, 6, 4),
        "latent_projection.weight": halves(given["kv_a_proj_with_mqa.weight"], 1, 10, 4),
        "latent_norm.weight": given["kv_a_layernorm.weight"],
        "key_projection.weight": keys_values[:, :6].flatten(0, 1),
        "value_projection.weight": keys_values[:, 6:].flatten(0, 1),
        "out_projection.weight": given["o_proj.weight"],
    }


def weights_of(name):
    given = {
        key.removeprefix(name + "."): value
        for key, value in GOLDEN.items()
        if key.startswith(name + ".") and not key.endswith(("input", "output"))
    }
    if name == "deepseek":
        return deepseek_weights(given)
    owners = {"q": "query", "k": "key", "v": "value", "o": "out"}
    found = {}
    for key, value in given.items():
        owner, _, rest = key.partition("_")
        rest = rest.replace("proj.", "projection.")
        found[f"{owners[owner]}_{rest}" if owner in owners else key] = value
    return found


def layer_of(name):
    layer = nn.make_attention(32, 4, "full", **CASES[name]).eval()
    layer.load_state_dict(weights_of(name), strict=True)
    return layer, GOLDEN[name + ".input"], GOLDEN[name + ".output"]


def difference(a, b):
    return ((a - b).abs().max() / b.abs().max()).item()


@pytest.mark.parametrize("name", CASES)
def test_whole_sequences_are_those_of_transformers(name):
    layer, x, wanted = layer_of(name)
    with torch.no_grad():
        assert difference(layer(x), wanted) < 3e-6


@pytest.mark.parametrize("name", CASES)
def test_pieces_and_steps_are_the_sequence(name):
    layer, x, wanted = layer_of(name)
    with torch.no_grad():
        first, state = layer.prefill(x[:, :9])
        rows = [first]
        for t in range(9, 14):
            row, state = layer.step(x[:, t], state)
            rows.append(row[:, None])
        # Sequences of unequal lengths, each with its own rows.
        lengths = torch.tensor([10, 4])
        last, state = layer.prefill(x[:, 14:], state, lengths)
        assert difference(torch.cat(rows, 1), wanted[:, :14]) < 3e-6
        assert difference(last[0], wanted[0, 14:]) < 3e-6
        assert difference(last[1, :4], wanted[1, 14:18]) < 3e-6
        x2 = torch.stack([x[0, 23], x[1, 18]])
        row, _ = layer.step(x2, state)
        assert difference(row[1], wanted[1, 18]) < 3e-6


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_float64(name):
    layer, x, _ = layer_of(name)
    wide = nn.make_attention(32, 4, "full", **CASES[name]).double()
    wide.load_state_dict(layer.state_dict())
    grad = torch.randn_like(x)
    wanted = torch.autograd.grad(wide(x.double()), list(wide.parameters()), grad.double())
    given = torch.autograd.grad(layer(x), list(layer.parameters()), grad)
    for (key, _), a, b in zip(layer.named_parameters(), given, wanted, strict=True):
        assert difference(a, b) < 2e-5, key


def test_plain_full_is_the_attention_of_the_builders():
    assert type(nn.make_attention(32, 4, "full")) is nn.Attention
    assert type(nn.make_attention(32, 4, "full", attention_dropout=0.1)) is nn.Attention
    assert type(nn.make_attention(32, 4, "full", key_heads=2)) is nn.SoftmaxMixer
    assert type(nn.make_attention(32, 4, "full", **CASES["deepseek"])) is nn.LatentMixer


def test_padding_and_other_rows_have_no_influence():
    x = torch.randn(2, 11, 32)
    for options in (CASES["gpt_oss"], CASES["deepseek"]):
        layer = nn.make_attention(32, 4, "full", **options).eval()
        kept = torch.ones(2, 11, dtype=torch.bool)
        kept[1, 7:] = False
        dirty = x.clone()
        dirty[1, 7:] = float("nan")
        with torch.no_grad():
            given = layer.unbiased(dirty, kept).rows
            alone = layer.unbiased(x[1:, :7]).rows
        torch.testing.assert_close(given[1, :7], alone[0], atol=1e-6, rtol=0)


@pytest.mark.parametrize("mixer", ["full", "local"])
def test_encoders_have_grouped_heads_too(mixer):
    context = dict(local_context=5) if mixer == "local" else {}
    options = dict(key_heads=2, head_norm="head", head_gate=True, sinks=True) | context
    layer = nn.make_attention(32, 4, mixer, causal=False, **options).eval()
    x = torch.randn(1, 9, 32)
    with torch.no_grad():
        out = layer(x)
        later = torch.cat([x[:, :8], torch.randn(1, 1, 32)], 1)
        changed = (layer(later) - out).abs().amax(-1)[0]
    assert changed[7] > 0 and (changed[0] > 0) == (mixer == "full")
