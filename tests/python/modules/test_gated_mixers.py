"""Gated mixers, RWKV, Mamba-1, short convolutions, RG-LRU, mLSTM and the softmax attention of
hybrids as layers by themselves: gradients, composed forms, other dtypes, padding, first
values, refusals. Whole models of them stand in tests/python/models."""

import math

import pytest
import torch

from tarn import _tables as tables
from tarn import nn, ops
from tarn._fused import whole

D, H, N, L = 12, 4, 2, 11
FORMS = [name for name, row in tables.mixers().items() if row["form"] is not None]
RWKV = ["rwkv6", "rwkv7"]
SOFTMAX = "gated-full"
MAMBA = "mamba1"
CONVOLUTION, LRU, MLSTM = "short-conv", "rg-lru", "mlstm"
KINDS = [*FORMS, *RWKV, SOFTMAX, MAMBA, CONVOLUTION, LRU, MLSTM]


def sizes_of(kind):
    return dict(d_key=6, d_value=6 if kind in RWKV else 5)


def layer_of(kind, **options):
    torch.manual_seed(3)
    layer = nn.make_attention(D, H, kind, **sizes_of(kind), **options)
    with torch.no_grad():
        for weight in layer.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.1)
    return layer


def test_every_form_has_a_module():
    assert set(FORMS) >= {"retnet", "lightning", "mamba2", "gla", "hgrn2", "deltanet", "gdn", "kda"}
    assert "norm-linear" in FORMS
    assert all(type(layer_of(kind)) is nn.GatedMixer for kind in FORMS)
    assert all(type(layer_of(kind)) is nn.RwkvMixer for kind in RWKV)
    assert type(layer_of(SOFTMAX)) is nn.GatedSoftmaxMixer
    assert type(layer_of(MAMBA)) is nn.MambaMixer
    assert type(layer_of(CONVOLUTION)) is nn.ShortConvMixer
    assert type(layer_of(LRU)) is nn.RgLruMixer
    assert type(layer_of(MLSTM)) is nn.MlstmMixer


@pytest.mark.parametrize("kind", KINDS)
def test_gradcheck(kind):
    layer = layer_of(kind).double()
    weights = list(layer.parameters())
    x = torch.randn(1, 5, D, dtype=torch.float64, requires_grad=True)

    def rows(x, *weights):
        return layer(x)

    assert torch.autograd.gradcheck(rows, (x, *weights), atol=1e-6)


@pytest.mark.parametrize(
    "keys",
    [
        dict(qk_map="hadamard", unit_keys=True),
        dict(qk_map="t2r"),
        dict(qk_map="hedgehog", divided_sums=True),
        dict(qk_map="dpfp", unit_queries=True),
    ],
)
def test_gradcheck_of_feature_maps(keys):
    layer = layer_of("norm-linear", **keys).double()
    x = torch.randn(1, 5, D, dtype=torch.float64, requires_grad=True)
    weights = list(layer.parameters())
    assert torch.autograd.gradcheck(lambda x, *weights: layer(x), (x, *weights), atol=1e-6)


def test_hedgehog_begins_as_the_identity():
    layer = nn.make_attention(D, H, "norm-linear", d_key=6, qk_map="hedgehog")
    for side in ("query", "key"):
        first = getattr(layer, f"{side}_map_projection")
        assert torch.equal(first.weight, torch.eye(6)) and not first.bias.any()


@pytest.mark.parametrize("kind", KINDS)
def test_kernels_equal_the_composed_form(kind):
    layer, x = layer_of(kind), torch.randn(N, 37, D, requires_grad=True)
    readout = torch.randn(N, 37, D)

    def run():
        out = layer(x)
        return out, torch.autograd.grad((out * readout).sum(), [x, *layer.parameters()])

    given, gradients = run()
    with ops.composed_forms():
        wanted, wanted_gradients = run()
    torch.testing.assert_close(given, wanted, rtol=1e-5, atol=1e-5)
    for gradient, other in zip(gradients, wanted_gradients, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_may_be_nan(kind):
    """Between tokens too: a row that is not kept is no token of the recurrence."""
    layer = layer_of(kind)
    kept = torch.tensor([[False] * 2 + [True] * 7 + [False] * 2] * N)
    x = torch.randn(N, L, D)
    hole = torch.where(kept[..., None], x, float("nan"))
    given = whole(layer.unbiased(hole, kept))[:, 2:9]
    wanted = layer(x[:, 2:9])
    torch.testing.assert_close(given, wanted, rtol=0, atol=1e-5)
    ours = torch.autograd.grad(given.square().sum(), list(layer.parameters()))
    theirs = torch.autograd.grad(wanted.square().sum(), list(layer.parameters()))
    for gradient, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_lengths_leave_padding_out(kind):
    layer = layer_of(kind)
    x, after = torch.randn(3, 7, D), torch.randn(3, D)
    lengths = [7, 0, 2]
    for row, length in enumerate(lengths):
        x[row, length:] = float("nan")
    with torch.no_grad():
        _, state = layer.prefill(x, lengths=lengths)
        given, state = layer.step(after, state)
        for row, length in enumerate(lengths):
            wanted = layer(torch.cat([x[row, :length], after[row : row + 1]])[None])[0, -1]
            torch.testing.assert_close(given[row], wanted, rtol=0, atol=1e-5)
    assert state.steps.tolist() == [8, 1, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_states_of_16_bit_weights_are_float32(kind):
    layer, x = layer_of(kind), torch.randn(N, L, D)
    wanted = layer(x)
    layer = layer.bfloat16()
    given, state = layer.prefill(x.bfloat16())
    assert given.dtype == torch.bfloat16
    # A cache is no sum, and has the type of the rows.
    dtype = torch.bfloat16 if kind == SOFTMAX else torch.float32
    assert {tensor.dtype for tensor in state.tensors.values()} == {dtype}
    # A rounding of 2^-9 in each of a dozen numbers in sequence.
    torch.testing.assert_close(given.float(), wanted, rtol=0, atol=0.15)
    with torch.autocast("cpu", torch.bfloat16):
        # A bias of the output, which joins after the last product, stays float32.
        assert layer_of(kind)(x).dtype == (torch.float32 if kind == LRU else torch.bfloat16)


@pytest.mark.parametrize("kind", KINDS)
def test_layers_of_an_encoder(kind):
    """EncoderLayer takes them by name, in pieces too."""
    layer = nn.EncoderLayer(D, H, 20, mixer=kind, norm="pre", **sizes_of(kind)).eval()
    x = torch.randn(N, L, D)
    with torch.no_grad():
        first, state = layer.prefill(x[:, :4])
        rest, _ = layer.prefill(x[:, 4:], state)
        torch.testing.assert_close(torch.cat([first, rest], 1), layer(x), rtol=0, atol=1e-5)


def test_first_values():
    kda = nn.make_attention(D, H, "kda")
    steps = torch.nn.functional.softplus(kda.dt_bias)
    assert 0.99e-3 <= steps.min() and steps.max() <= 0.101
    assert 0 <= kda.A_log.min() and kda.A_log.max() <= math.log(16) + 1e-6
    torch.testing.assert_close(nn.make_attention(D, H, "retnet").log_decay, ops.retention_gates(H))
    view = dict(nn.make_attention(D, H, "lightning").view, n_layers=3)
    torch.testing.assert_close(nn.GatedMixer(view, 2).log_decay, ops.lightning_gates(H, 2, 3))
    bounds = nn.GatedMixer(dict(nn.make_attention(D, H, "hgrn2").view, n_layers=4), 3).lower_bound
    assert (bounds == 0.75).all() and not bounds.requires_grad
    assert (nn.make_attention(D, H, "gla").decay_up_projection.bias == 0).all()
    mamba = nn.make_attention(D, H, "mamba2")
    assert (mamba.D == 1).all() and mamba.convolution.weight.abs().max() <= 0.5
    first = nn.make_attention(D, H, MAMBA, d_key=6)
    assert (first.D == 1).all() and first.decay_down_projection.weight.shape == (1, D)
    torch.testing.assert_close(first.A_log.exp(), torch.arange(1.0, 7.0).expand(D, 6))


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("gdn", dict(causal=False), "causal: want True"),
        ("gdn", dict(key_heads=3), "key_heads: want 0 or a divisor of n_heads = 4"),
        ("kda", dict(conv_width=1), "conv_width: want 0, or from 2 to 8"),
        ("mamba2", dict(conv_width=9), "conv_width"),
        ("mamba2", dict(least_step=2.0, most_step=1.0), "most_step: want 0 or at least least_step"),
        (
            "mamba2",
            dict(mamba2_norm=False, mamba2_norm_first=True),
            "mamba2_norm_first: want false",
        ),
        (MAMBA, dict(d_key=129), "d_key: want at most 128"),
        (MAMBA, dict(conv_width=1), "conv_width: want 0, or from 2 to 8"),
        (CONVOLUTION, dict(conv_width=0), "conv_width: want from 2 to 8"),
        (LRU, dict(conv_width=1), "conv_width: want 0, or from 2 to 8"),
        ("rwkv7", dict(d_key=6, d_value=5), "d_value: want d_key = 6"),
        (SOFTMAX, dict(key_heads=3), "key_heads: want 0 or a divisor of n_heads = 4"),
        (SOFTMAX, dict(d_key=6, rotary_width=3), "rotary_width: want an even width up to d_key"),
    ],
)
def test_refusals(kind, options, words):
    with pytest.raises(ValueError, match=words):
        nn.make_attention(D, H, kind, **options)
