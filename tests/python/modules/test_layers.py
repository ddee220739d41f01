"""tarn.nn and the operators around attention against torch's own, in float64
and under the same dropout."""

import copy
import inspect

import pytest
import torch

import tarn
from tarn import ops
from tarn.masking import TriangularCausalMask


def close(given, wanted, bound=3e-6):
    """Checks the largest difference against the largest entry."""
    error = (given.double() - wanted.double()).abs().max().item()
    assert error <= bound * max(1.0, wanted.abs().max().item()), error


def run(layer, x, weights, seed):
    torch.manual_seed(seed)
    x = x.detach().clone().requires_grad_()
    y = layer(x)
    (y * weights.to(y.dtype)).sum().backward()
    return [y.detach(), x.grad, *(p.grad for p in layer.parameters())]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_layer_equals_composed_double(norm, activation, dropout, threads):
    """float32 runs the kernels, float64 plain operators under the same masks."""
    torch.set_num_threads(threads)
    layer = tarn.nn.EncoderLayer(24, 3, 40, dropout, activation, norm)
    x, weights = torch.randn(2, 101, 24), torch.randn(2, 101, 24)
    given = run(layer, x, weights, seed=5)
    wanted = run(copy.deepcopy(layer).double(), x.double(), weights, seed=5)
    for a, b in zip(given, wanted):
        close(a, b, 1e-5)


def plain_layer(layer, x):
    """The layer in eval mode, from torch's modules alone (weights as T x T)."""
    a = layer.attention

    def attend(u):
        def heads(linear, width):
            return linear(u).unflatten(2, (a.heads, width)).transpose(1, 2)

        q = torch.nn.functional.elu(heads(a.query_projection, a.d_key)) + 1
        k = torch.nn.functional.elu(heads(a.key_projection, a.d_key)) + 1
        scores = (q @ k.mT).tril()
        out = scores @ heads(a.value_projection, a.d_value) / scores.sum(-1, keepdim=True)
        return a.out_projection(out.transpose(1, 2).flatten(2))

    act = torch.relu if layer.activation == "relu" else torch.nn.functional.gelu

    def ffn(u):
        return layer.linear2(act(layer.linear1(u)))

    if layer.norm == "pre":
        x = x + attend(layer.norm1(x))
        return x + ffn(layer.norm2(x))
    x = layer.norm1(x + attend(x))
    return layer.norm2(x + ffn(x))


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_eval_layer_equals_torch(norm, activation):
    layer = tarn.nn.EncoderLayer(20, 4, 33, 0.5, activation, norm, d_key=3, d_value=7).eval()
    double = copy.deepcopy(layer).double()
    x, weights = torch.randn(3, 50, 20), torch.randn(3, 50, 20)
    given = run(layer, x, weights, seed=1)
    wanted = run(lambda_module(double), x.double(), weights, seed=1)
    for a, b in zip(given, wanted):
        close(a, b, 1e-5)


def lambda_module(layer):
    """A module with the parameters of `layer` and plain_layer as forward."""
    module = copy.deepcopy(layer)
    module.forward = lambda x: plain_layer(module, x)
    return module


def test_encoder_names_and_final_norm():
    encoder = tarn.nn.Encoder(2, 16, 2, d_ff=24, dropout=0.1)
    names = {name for name, _ in encoder.named_parameters()}
    for i in range(2):
        for part in ("query", "key", "value", "out"):
            assert f"layers.{i}.attention.{part}_projection.weight" in names
        assert f"layers.{i}.norm2.bias" in names and f"layers.{i}.linear1.weight" in names
    assert "norm.weight" in names and len(names) == 2 * 16 + 2
    encoder.eval()
    x = torch.randn(2, 9, 16)
    y = x
    for layer in encoder.layers:
        y = layer(y)
    close(encoder(x), encoder.norm(y))


def test_training_draws_and_seed_repeats():
    layer = tarn.nn.EncoderLayer(16, 2, 24, 0.5)
    x = torch.randn(2, 30, 16)
    torch.manual_seed(3)
    first, second = layer(x), layer(x)
    torch.manual_seed(3)
    again = layer(x)
    assert torch.equal(first, again) and not torch.equal(first, second)
    assert torch.equal(layer.eval()(x), layer(x))


def test_refuses():
    with pytest.raises(
        ValueError, match="activation: want one of 'relu', 'gelu', 'gelu-tanh', got 'tanh'"
    ):
        tarn.nn.EncoderLayer(16, 2, activation="tanh")
    with pytest.raises(ValueError, match="norm: want one of"):
        tarn.nn.EncoderLayer(16, 2, norm="mid")
    with pytest.raises(ValueError, match="dropout: want a number in"):
        tarn.nn.EncoderLayer(16, 2, dropout=1.0)
    with pytest.raises(ValueError, match="multiple of 3 heads, got 16"):
        tarn.nn.LinearAttention(16, 3)
    x = torch.randn(2, 5, 16)
    with pytest.raises(ValueError, match=r"affine: weight: want \[7, 16\], got \[7, 15\]"):
        ops.affine(x, torch.randn(7, 15))
    with pytest.raises(ValueError, match="residual_norm: residual: want"):
        ops.residual_norm(x, x[:1])
    with pytest.raises(ValueError, match="gamma, beta: want both or none"):
        ops.residual_norm(x, gamma=torch.ones(16))
    with pytest.raises(TypeError, match="residual: want Float, got Double"):
        ops.residual_norm(x, x.double())
    with pytest.raises(ValueError, match="seed: want a tensor with dropout > 0, got none"):
        ops.residual_norm(x, dropout=0.5)
    with pytest.raises(ValueError, match=r"probability: want a number in \[0, 1\)"):
        ops.residual_norm(x, dropout=1.5, seed=ops.draw_seed())
    with pytest.raises(ValueError, match="packed: want a last size of"):
        ops.linear_attention_packed(x, 2, 5)


def test_norms_come_first_as_in_the_models():
    """The layers of fast-transformers' paths keep that library's order."""
    model = tarn.models.LanguageModel(vocab_size=5, d_model=16, n_layers=1, n_heads=2, d_ff=24)
    layer = tarn.nn.EncoderLayer(16, 2, 24, activation=model.config["activation"]).eval()
    assert layer.norm == model.config["norm"] == "pre"
    assert [one.norm for one in tarn.nn.Encoder(2, 16, 2).layers] == ["pre", "pre"]
    layer.load_state_dict(model.layers[0].state_dict())
    x = torch.randn(2, 9, 16)
    mask = TriangularCausalMask(9)
    close(layer(x), model.layers[0].eval()(x, mask))
    own = tarn.attention.AttentionLayer(tarn.attention.FullAttention(), 16, 2)
    assert not tarn.transformers.TransformerEncoderLayer(own, 16).pre_norm


@pytest.mark.parametrize("mixer", ("linear", "full"))
def test_causal_is_an_argument(mixer):
    """By default a token reads itself and those before it; without, all tokens."""
    makers = (
        lambda **keys: tarn.nn.Encoder(2, 16, 2, mixer=mixer, **keys),
        lambda **keys: tarn.nn.EncoderLayer(16, 2, mixer=mixer, **keys),
        lambda **keys: tarn.nn.make_attention(16, 2, mixer, **keys),
        lambda **keys: tarn.nn.Attention(16, 2, mixer, **keys),
    )
    x = torch.randn(2, 5, 16)
    other = torch.cat([x[:, :4], torch.randn(2, 1, 16)], dim=1)
    for make in makers:
        for keys, causal in (({}, True), (dict(causal=True), True), (dict(causal=False), False)):
            module = make(**keys).eval()
            assert torch.equal(module(x)[:, :4], module(other)[:, :4]) == causal
            if causal:
                torch.testing.assert_close(module.prefill(x)[0], module(x), atol=1e-5, rtol=1e-5)
                continue
            for call in (lambda m=module: m.prefill(x), lambda m=module: m.step(x[:, 0])):
                with pytest.raises(ValueError, match="causal: want True for (prefill|step), got"):
                    call()
    for cls in (tarn.nn.Encoder, tarn.nn.EncoderLayer, tarn.nn.Attention):
        assert inspect.signature(cls).parameters["causal"].default is True
        assert "causal: True, the default" in cls.__doc__
    with pytest.raises(ValueError, match="causal: want True for 'gdn', got False"):
        tarn.nn.EncoderLayer(16, 2, mixer="gdn", causal=False)
