"""Layers of tarn.nn piece by piece: `prefill` and `step` are one function with the
whole-sequence form, for every kind of attention that has a recurrent form."""

import pytest
import torch

from tarn import nn, recurrent
from tarn._fused import whole

N, L, D, H = 3, 13, 24, 3
GATED = (
    "retnet", "lightning", "mamba2", "gla", "hgrn2", "deltanet", "gdn", "kda", "rwkv6", "rwkv7",
    "gated-full", "mamba1", "short-conv", "rg-lru", "mlstm", "norm-linear",
)  # fmt: skip
MAPS = ("elu1", "identity", "relu", "relu2", "softplus", "poly2", "favor", "rff")
KINDS = [
    *(dict(feature_map=name) for name in MAPS),
    dict(feature_map="favor", stabilise=True),
    dict(denominator="compat"),
    dict(denominator="none"),
    dict(mixer="full"),
    dict(mixer="local", local_context=5),
    dict(mixer="exact-topk", topk=3),
    dict(mixer="aft-full", max_sequence_length=20, aft_parameterization=3),
    dict(mixer="aft-simple"),
    dict(d_key=5, d_value=7),
    *(dict(mixer=kind) for kind in GATED),
    dict(mixer="gdn", d_key=5, d_value=7, key_heads=1, conv_width=2),
    dict(mixer="retnet", positions="rotary"),
    dict(mixer="gated-full", key_heads=1, positions="rotary", rotary_width=4),
    dict(mixer="gated-full", output_gate=False, query_key_norm=False, d_key=5, d_value=7),
]


def words(keys):
    return "-".join(str(value) for value in keys.values())


def in_pieces(layer, x, at):
    """The rows of two prefills, and of one step per row; both last states."""
    first, state = layer.prefill(x[:, :at])
    kept = recurrent.clone(state)
    rest, filled = layer.prefill(x[:, at:], state)
    stepped, rows = None, []
    for t in range(x.shape[1]):
        row, stepped = layer.step(x[:, t], stepped)
        rows.append(row)
    assert state == kept  # a state is a value: nothing changed the one in the middle
    return torch.cat([first, rest], 1), torch.stack(rows, 1), filled, stepped


@pytest.mark.parametrize("at", [0, 1, 6, L])
@pytest.mark.parametrize("keys", KINDS, ids=words)
def test_an_attention_in_pieces_is_the_whole(keys, at):
    layer = nn.make_attention(D, H, **keys).eval()
    x = torch.randn(N, L, D)
    wanted = layer(x)
    filled, stepped, one, other = in_pieces(layer, x, at)
    # Without a map, and with rff's cosines, a denominator may come close to 0.
    bound = 2e-3 if keys.get("feature_map") in ("identity", "rff") else 2e-5
    torch.testing.assert_close(filled, wanted, rtol=bound, atol=bound)
    torch.testing.assert_close(stepped, wanted, rtol=bound, atol=bound)
    # Control: the past has an effect.
    alone, _ = layer.step(x[:, -1])
    assert (alone - wanted[:, -1]).abs().max() > 1e-3
    assert one.kind == other.kind and one.steps.tolist() == other.steps.tolist() == [L] * N
    for name, tensor in one.tensors.items():
        torch.testing.assert_close(tensor, other[name], rtol=1e-4, atol=1e-4)


MIXING = [
    dict(**keys, feed_forward="channel-mix")
    for keys in (dict(), dict(mixer="full"), dict(mixer="rwkv7"), dict(mixer="gated-full"))
]


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize(
    "keys", [dict(), *KINDS[7:], dict(feed_forward="swiglu"), *MIXING], ids=words
)
def test_an_encoder_in_pieces_is_the_whole(keys, norm):
    encoder = nn.Encoder(2, D, H, d_ff=40, dropout=0.1, norm=norm, **keys).eval()
    x = torch.randn(N, L, D)
    wanted = encoder(x)
    filled, stepped, one, other = in_pieces(encoder, x, 6)
    # Undivided sums grow with the tokens; rff's cosines may bring a denominator near 0.
    wide = keys.get("denominator") == "none" or keys.get("feature_map") == "rff"
    bound = 2e-4 if wide else 2e-5
    torch.testing.assert_close(filled, wanted, rtol=0, atol=bound)
    torch.testing.assert_close(stepped, wanted, rtol=0, atol=bound)
    assert len(one) == len(other) == 2
    # Rows of different lengths; each continues from its own end.
    lengths = torch.tensor([5, 0, 3])
    _, ragged = encoder.prefill(x[:, :5], lengths=lengths)
    given, _ = encoder.step(x[torch.arange(N), lengths], ragged)
    torch.testing.assert_close(given, wanted[torch.arange(N), lengths], rtol=0, atol=bound)


@pytest.mark.parametrize("keys", KINDS, ids=words)
def test_masked_keys_have_no_influence(keys):
    layer = nn.make_attention(D, H, **keys).eval()
    x = torch.randn(N, L, D)
    key_mask = torch.arange(L) < torch.tensor([L, 4, 9])[:, None]
    wanted = whole(layer.unbiased(x, key_mask))
    other = torch.where(key_mask[..., None], x, 7.0)
    given = whole(layer.unbiased(other, key_mask))
    assert torch.equal(given[key_mask], wanted[key_mask])


def test_gradients_reach_every_weight_through_states():
    encoder = nn.Encoder(2, D, H, d_ff=40, final_norm=False)
    x = torch.randn(N, L, D)

    def gradients(run):
        encoder.zero_grad()
        run().square().sum().backward()
        return [p.grad.clone() for p in encoder.parameters()]

    def pieces():
        first, state = encoder.prefill(x[:, :9])
        rows = [first]
        for t in range(9, L):
            row, state = encoder.step(x[:, t], state)
            rows.append(row[:, None])
        return torch.cat(rows, 1)

    for given, wanted in zip(gradients(pieces), gradients(lambda: encoder(x)), strict=True):
        torch.testing.assert_close(given, wanted, rtol=1e-3, atol=1e-4)


def test_what_a_layer_refuses():
    one = nn.LinearAttention(D, H, causal=False)
    with pytest.raises(ValueError, match="LinearAttention: causal: want True for step, got False"):
        one.step(torch.randn(N, D))
    with pytest.raises(ValueError, match="feature_map: want one of 'elu1'.*got 'favor'"):
        nn.LinearAttention(D, H, feature_map="favor")
    with pytest.raises(ValueError, match="tarn.nn.Attention takes the others"):
        nn.LinearAttention(D, H, feature_map="favor")
    with pytest.raises(ValueError, match="mixer: want one of .*'linear'.*got 'softmax'"):
        nn.make_attention(D, H, "softmax")
    for kind in ("gdn", "mamba2", "rwkv7", "gated-full", "full", "reformer"):  # it takes these
        with pytest.raises(ValueError, match=f"mixer: want one of .*'{kind}'.*got 'softmax'"):
            nn.EncoderLayer(D, H, mixer="softmax")
    with pytest.raises(ValueError, match="mixer: want one of .*'reformer'.*got 'softmax'") as found:
        nn.Attention(D, H, "softmax")
    assert "gdn" not in str(found.value)  # has no mixers with parameters of their own
    with pytest.raises(ValueError, match="topk: want a key of 'full', got 3"):
        nn.make_attention(D, H, "full", topk=3)
    layer = nn.make_attention(D, H, "full")
    _, state = layer.prefill(torch.randn(N, L, D))
    with pytest.raises(ValueError, match="state: want 1 sequences, as the input has, got 3"):
        layer.step(torch.randn(1, D), state)
    with pytest.raises(ValueError, match="state: want one of kind 'linear', got 'full'"):
        nn.LinearAttention(D, H).step(torch.randn(N, D), state)
    encoder = nn.Encoder(2, D, H)
    with pytest.raises(ValueError, match="state: want a list of 2 states, one a layer, got 1"):
        encoder.step(torch.randn(N, D), [None])
