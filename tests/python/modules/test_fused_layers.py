"""Layers end each part in one fused pass where no caller could see it: the numbers are
those of the modules one by one, which run if a listener is attached, a module is of
another class, or the tensors are of another kind."""

import copy

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tarn.attention import AttentionLayer, CausalLinearAttention, FullAttention
from tarn.masking import LengthMask, TriangularCausalMask
from tarn.transformers import (
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)

N, L, S, D, H = 2, 17, 5, 24, 3
FORMS = [
    dict(norm=norm, norm_kind=norm_kind, feed_forward=feed_forward)
    for norm in ("pre", "post")
    for norm_kind in ("layer", "rms")
    for feed_forward in ("mlp", "swiglu")
]


def words(form):
    return "-".join(form.values())


def attention(inner):
    return AttentionLayer(inner, D, H)


def encoder(**form):
    layers = [
        TransformerEncoderLayer(attention(inner), D, 40, dropout=0.0, **form)
        for inner in (CausalLinearAttention(D // H), FullAttention(attention_dropout=0.0))
    ]
    return TransformerEncoder(layers, torch.nn.LayerNorm(D))


def decoder(**form):
    inner = CausalLinearAttention(D // H), FullAttention(attention_dropout=0.0)
    layer = TransformerDecoderLayer(*map(attention, inner), D, 40, dropout=0.0, **form)
    return TransformerDecoder([layer])


def heard(model):
    """A copy with a listener on each of its modules, so that nothing is fused."""
    model = copy.deepcopy(model)
    for module in model.modules():
        module.register_forward_hook(lambda *_: None)
    return model


def operators(call):
    """Names of the operators that a call runs."""
    names = []

    class Listed(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            names.append(str(func))
            return func(*args, **(kwargs or {}))

    with Listed(), torch.no_grad():
        call()
    return names


def gradients(model, out):
    (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
    return {name: weight.grad for name, weight in model.named_parameters()}


def same_numbers(fused, plain, call):
    given, wanted = call(fused), call(plain)
    torch.testing.assert_close(given, wanted, rtol=0, atol=1e-5)
    of_plain = gradients(plain, wanted)
    for name, grad in gradients(fused, given).items():
        torch.testing.assert_close(grad, of_plain[name], rtol=1e-4, atol=2e-5, msg=name)
    ours = ("tarn.residual_norm", "tarn.layer_rest")
    assert any(name.startswith(ours) for name in operators(lambda: call(fused)))
    assert not any(name.startswith(ours) for name in operators(lambda: call(plain)))


@pytest.mark.parametrize("form", FORMS, ids=words)
def test_encoders_give_the_numbers_of_their_modules(form):
    model = encoder(**form)
    x = torch.randn(N, L, D)
    same_numbers(model, heard(model), lambda m: m(x, TriangularCausalMask(L)))


@pytest.mark.parametrize("form", FORMS, ids=words)
def test_decoders_give_the_numbers_of_their_modules(form):
    model = decoder(**form)
    x, memory = torch.randn(N, L, D), torch.randn(N, S, D)
    mask = LengthMask(torch.tensor([S, 2]), max_len=S)

    def call(m):
        return m(x, memory, TriangularCausalMask(L), memory_length_mask=mask)

    same_numbers(model, heard(model), call)


def test_one_product_makes_queries_keys_and_values():
    layer = attention(FullAttention())
    x, memory = torch.randn(N, L, D), torch.randn(N, S, D)

    def products(call):
        ours = ("tarn.affine", "tarn.layer_heads")
        return sum(name.startswith(ours) for name in operators(call))

    assert products(lambda: layer(x, x, x)) == 2
    assert products(lambda: layer(x, memory, memory)) == 3
    # For a token, putting weights side by side would cost as much as the products.
    assert products(lambda: layer.step(x[:, 0])) == 4


def test_the_rest_of_a_layer_is_one_call():
    x, memory = torch.randn(N, L, D), torch.randn(N, S, D)

    def rests(model, *tensors):
        return sum("layer_rest" in name for name in operators(lambda: model(*tensors)))

    for norm in ("pre", "post"):
        model = encoder(norm=norm)
        assert rests(model, x, TriangularCausalMask(L)) == 2
        assert rests(decoder(norm=norm), x, memory, TriangularCausalMask(L)) == 1
        # What the operator does not compute, or is too small for it, goes part by part.
        assert rests(model, x[:, :3], TriangularCausalMask(3)) == 0
        model.layers[0].norm2.eps = 1e-3
        model.layers[1].linear3 = torch.nn.Linear(D, 40, bias=False)
        expected = 1 if norm == "pre" else 0  # where norm2 comes after norm1
        assert rests(model, x, TriangularCausalMask(L)) == expected
    assert rests(encoder(feed_forward="swiglu"), x, TriangularCausalMask(L)) == 0


def test_an_attention_of_one_row_is_spread_over_all():
    def pooled(queries, keys, values, *masks):
        return values.mean(1, keepdim=True)

    for length in (3, L):
        layer = TransformerEncoderLayer(attention(pooled), D, 40, dropout=0.0)
        x = torch.randn(N, length, D)
        torch.testing.assert_close(heard(layer)(x), layer(x), rtol=0, atol=1e-5)


def test_a_listener_is_called():
    model = encoder(norm="pre")
    x = torch.randn(N, L, D)
    for name in ("attention", "attention.out_projection", "linear1", "norm2", "dropout"):
        calls = []
        module = model.layers[0].get_submodule(name)
        handle = module.register_forward_hook(lambda *_: calls.append(1))
        wanted = model(x, TriangularCausalMask(L))
        assert calls, name
        handle.remove()
        torch.testing.assert_close(model(x, TriangularCausalMask(L)), wanted, rtol=0, atol=1e-5)


def test_modules_of_other_classes_are_called():
    class Doubled(torch.nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    for path in ("attention.key_projection", "attention.out_projection", "linear1", "linear2"):
        model = encoder(norm="post")
        x = torch.randn(N, L, D)
        other = copy.deepcopy(model)
        plain = other.layers[0].get_submodule(path)
        doubled = Doubled(plain.in_features, plain.out_features)
        doubled.load_state_dict(plain.state_dict())
        other.layers[0].set_submodule(path, doubled)
        with torch.no_grad():
            for weight in model.layers[0].get_submodule(path).parameters():
                weight.mul_(2)
        wanted = model(x, TriangularCausalMask(L))
        given = other(x, TriangularCausalMask(L))
        torch.testing.assert_close(given, wanted, rtol=0, atol=1e-5)


def test_other_norms_activations_and_parametrisations_are_called():
    x = torch.randn(N, L, D)
    model = encoder(norm="pre")
    model.layers[0].norm1 = torch.nn.Identity()
    model.layers[1].norm2 = torch.nn.LayerNorm(D, elementwise_affine=False)
    model.layers[0].activation = torch.tanh
    torch.nn.utils.parametrizations.weight_norm(model.layers[1].linear1)
    out = model(x, TriangularCausalMask(L))
    torch.testing.assert_close(heard(model)(x, TriangularCausalMask(L)), out, rtol=0, atol=1e-5)


def test_float64_and_autocast_run_the_modules():
    model = encoder(norm="pre", norm_kind="rms", feed_forward="swiglu")
    x = torch.randn(N, L, D)
    wanted = model(x, TriangularCausalMask(L))
    with torch.autocast("cpu", torch.bfloat16):
        given = model(x, TriangularCausalMask(L))
    torch.testing.assert_close(given.float(), wanted, rtol=0, atol=0.15)
    wide = copy.deepcopy(model).double()
    torch.testing.assert_close(
        wide(x.double(), TriangularCausalMask(L)).float(), wanted, rtol=0, atol=1e-5
    )
    layer = wide.layers[1].eval()
    small = torch.randn(1, 3, D, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda y: layer._feed_forward(y)[0], small)


@pytest.mark.parametrize("feed_forward", ["mlp", "swiglu"])
def test_dropout_is_a_function_of_the_generator(feed_forward):
    layer = TransformerEncoderLayer(
        attention(FullAttention()), D, 40, dropout=0.4, feed_forward=feed_forward
    )
    x = torch.randn(N, L, D)

    def run():
        torch.manual_seed(7)
        return layer(x)

    assert torch.equal(run(), run()) and not torch.equal(layer(x), layer(x))
    assert torch.equal(layer.eval()(x), layer(x))
    ours = "residual_norm" if feed_forward == "swiglu" else "layer_rest"
    assert any(ours in name for name in operators(lambda: layer.train()(x)))
    layer.dropout.p = 1.0  # the kernels take less than 1; all parts vanish
    layer.norm1, layer.norm2 = torch.nn.Identity(), torch.nn.Identity()
    assert torch.equal(layer(x), x)
