"""Layers of tarn.nn and tarn.transformers with norms in every place, against the formulas."""

import pytest
import torch
import torch.nn.functional as F

from tarn import nn
from tarn.attention import AttentionLayer, LinearAttention
from tarn.masking import FullMask, LengthMask
from tarn.transformers import TransformerDecoderLayer, TransformerEncoderLayer

PLACES = ("post", "pre", "after", "both", "none")


def summed(layer, number, x, part, factor=1.0):
    """The residual sum of a part by the definition of its layer's norms."""
    place = getattr(layer, "norm_place", None) or layer.norm
    norm = getattr(layer, f"norm{number}", None)
    if place == "post":
        return norm(x + factor * part(x))
    if place == "pre":
        return x + factor * part(norm(x))
    if place == "after":
        return x + factor * norm(part(x))
    if place == "both":
        return x + factor * getattr(layer, f"norm{number}_after")(part(norm(x)))
    return x + factor * part(x)


def feed_forward(layer, x):
    return layer.linear2(F.relu(layer.linear1(x)))


def drawn(layer):
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return layer.eval()


@pytest.mark.parametrize("part", ["mlp", "none"])
@pytest.mark.parametrize("place", PLACES)
def test_layers_of_nn(place, part):
    torch.manual_seed(1)
    layer = drawn(nn.EncoderLayer(24, 3, norm=place, feed_forward=part))
    x = torch.randn(2, 9, 24)
    wanted = summed(layer, 1, x, layer.attention)
    if part != "none":
        wanted = summed(layer, 2, wanted, lambda y: feed_forward(layer, y))
    out = layer(x)
    torch.testing.assert_close(out, wanted, atol=2e-5, rtol=1e-5)
    first, state = layer.prefill(x[:, :4])
    rows = [first]
    for t in range(4, 9):
        row, state = layer.step(x[:, t], state)
        rows.append(row[:, None])
    torch.testing.assert_close(torch.cat(rows, 1), out, atol=2e-5, rtol=1e-5)


def attention():
    return AttentionLayer(LinearAttention(8), 24, 3)


@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("place", PLACES)
def test_layers_of_transformers(place, kind, offset):
    torch.manual_seed(2)
    options = dict(norm=place, norm_kind=kind, residual_factor=0.4, norm_offset=offset, dropout=0.0)
    layer = TransformerEncoderLayer(attention(), 24, **options)
    for name, parameter in layer.named_parameters():
        if name.startswith("norm") and name.endswith("weight"):
            assert (parameter == 1 - offset).all()
    drawn(layer)
    x = torch.randn(2, 9, 24)

    def norms_by_definition(module):
        """F's norms with the weight that the offset makes."""
        weight = module.weight + offset
        if kind == "layer":
            return lambda y: F.layer_norm(y, (24,), weight, module.bias, module.eps)
        return lambda y: F.rms_norm(y, (24,), weight, module.eps)

    class View:
        norm_place = place

    for name in ("norm1", "norm2", "norm1_after", "norm2_after"):
        if name in layer._modules:
            setattr(View, name, staticmethod(norms_by_definition(getattr(layer, name))))
    mask, lengths = FullMask(9), LengthMask(torch.tensor([9, 9]))
    wanted = summed(View, 1, x, lambda y: layer.attention(y, y, y, mask, lengths, lengths), 0.4)
    wanted = summed(View, 2, wanted, lambda y: feed_forward(layer, y), 0.4)
    torch.testing.assert_close(layer(x), wanted, atol=2e-5, rtol=1e-5)
    grad = torch.randn_like(x)
    names = [name for name, _ in layer.named_parameters()]
    ours = torch.autograd.grad(layer(x), list(layer.parameters()), grad)
    double = [one.detach() for one in ours]
    theirs = torch.autograd.grad(wanted, list(layer.parameters()), grad)
    for name, a, b in zip(names, double, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=2e-4, rtol=1e-4, msg=name)


@pytest.mark.parametrize("place", PLACES)
def test_layers_that_read_a_memory(place):
    torch.manual_seed(3)
    options = dict(norm=place, residual_factor=0.7, dropout=0.0)
    layer = drawn(TransformerDecoderLayer(attention(), attention(), 24, **options))
    x, memory = torch.randn(2, 7, 24), torch.randn(2, 5, 24)
    lengths, kept = LengthMask(torch.tensor([7, 7])), LengthMask(torch.tensor([5, 5]))
    wanted = summed(
        layer, 1, x, lambda y: layer.self_attention(y, y, y, FullMask(7), lengths, lengths), 0.7
    )
    wanted = summed(
        layer,
        2,
        wanted,
        lambda y: layer.cross_attention(y, memory, memory, FullMask(7, 5), lengths, kept),
        0.7,
    )
    wanted = summed(layer, 3, wanted, lambda y: feed_forward(layer, y), 0.7)
    torch.testing.assert_close(layer(x, memory), wanted, atol=2e-5, rtol=1e-5)


def test_unknown_places_are_refused():
    for make in (
        lambda: nn.EncoderLayer(24, 3, norm="middle"),
        lambda: TransformerEncoderLayer(attention(), 24, norm="middle"),
    ):
        with pytest.raises(ValueError, match="norm: want one of .*'both'.* got 'middle'"):
            make()
