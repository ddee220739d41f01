"""torch.ops.tarn.decoder_layers_step: one call against the operators that it replaces,
in float64, and what it refuses."""

import pytest
import torch
from test_full_layers_step import D_KEY, D_VALUE, HEADS, WIDTH, make, widened

from tarn import ops

steps = torch.ops.tarn.decoder_layers_step.default


def decoder(batch, mixer, cross, dtype=torch.float32, layers=2):
    """Arguments up to the weights: x, states and memories of each kind."""
    generator = torch.Generator().manual_seed(batch)

    def random(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    x, _, _, plain = make(batch, 0, dtype, layers)
    weights = []
    for layer in range(layers):
        weights += plain[17 * layer : 17 * layer + 17]
        weights += [random(HEADS * D_KEY, WIDTH), random(HEADS * D_KEY)]
        weights += [random(WIDTH, HEADS * D_VALUE), random(WIDTH), random(WIDTH), random(WIDTH)]

    def held(kind, tokens):
        if kind == "full":
            return [random(batch, tokens, HEADS, width) for width in (D_KEY, D_VALUE)]
        S, z = random(batch, HEADS, D_KEY, D_VALUE), random(batch, HEADS, D_KEY)
        return [S, z.square() + 1]

    lists = [[], [], [], []]
    for _ in range(layers):
        for into, tensor in zip(lists, held(mixer, 5) + held(cross, 9), strict=True):
            into.append(tensor)
    return x, *lists, weights


def step(x, S, z, memory_S, memory_z, weights, mixer, cross, **options):
    kinds = dict(attention=mixer, cross_attention=cross)
    return steps(x, S, z, memory_S, memory_z, weights, None, None, HEADS, **kinds, **options)


KINDS = [(one, other) for one in ("linear", "full") for other in ("linear", "full")]


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("batch", (0, 1, 3, 33))
@pytest.mark.parametrize(
    "options",
    (dict(), dict(pre_norm=True, activation="gelu", softmax_temp=0.1, denominator="compat")),
)
def test_equals_the_operators_in_float64(kinds, batch, options):
    x, *lists, weights = decoder(batch, *kinds)
    before = [[t.clone() for t in part] for part in lists]
    got = step(x, *lists, weights, *kinds, **options)
    wide = [widened(part) for part in lists]
    want = step(x.double(), *wide, widened(weights), *kinds, **options)
    # Six norms of rows that random weights make large: each may magnify a rounding.
    near = dict(atol=2e-4, rtol=2e-4)
    torch.testing.assert_close(got[0].double(), want[0], **near)
    for a, b in zip(got[1] + got[2], want[1] + want[2], strict=True):
        torch.testing.assert_close(a.double(), b, **near)
    for part, held in zip(lists, before, strict=True):
        assert all(map(torch.equal, part, held))


@pytest.mark.parametrize("kinds", KINDS)
def test_the_memory_is_read_between_the_others(kinds):
    """Compares the composed form with the sublayers called by hand."""
    x, *lists, weights = decoder(2, *kinds, dtype=torch.float64, layers=1)
    (S,), (z,), (memory_S,), (memory_z,) = lists
    map_rows, norm = torch.nn.functional.linear, torch.nn.functional.layer_norm

    def attend(kind, queries, S, z):
        if kind == "full":
            attention = torch.nn.functional.scaled_dot_product_attention
            rows = attention(queries[:, :, None], S.transpose(1, 2), z.transpose(1, 2))
            return rows.flatten(1)
        features = torch.nn.functional.elu(queries) + 1
        rows = torch.einsum("bhk,bhkv->bhv", features, S)
        return (rows / torch.einsum("bhk,bhk->bh", features, z)[..., None]).flatten(1)

    def heads(weight, bias, x):
        return map_rows(x, weight, bias).unflatten(-1, (HEADS, -1))

    out, (new_S,), (new_z,) = step(x, *lists, weights, *kinds)
    y = attend(kinds[0], heads(*weights[:2], x), new_S, new_z)
    y = norm(x + map_rows(y, *weights[6:8]), (WIDTH,), *weights[8:10])
    read = attend(kinds[1], heads(*weights[17:19], y), memory_S, memory_z)
    y = norm(y + map_rows(read, *weights[19:21]), (WIDTH,), *weights[21:23])
    hidden = torch.relu(map_rows(y, *weights[10:12]))
    y = norm(y + map_rows(hidden, *weights[12:14]), (WIDTH,), *weights[15:17])
    torch.testing.assert_close(out, y)


@pytest.mark.parametrize("kinds", KINDS)
def test_composed_form_gradients_and_meta(kinds):
    x, *lists, weights = decoder(2, *kinds)
    got = step(x, *lists, weights, *kinds)
    with ops.composed_forms():
        want = step(x, *lists, weights, *kinds)
    torch.testing.assert_close(got[0], want[0], atol=1e-5, rtol=1e-5)

    to = [[t.to("meta") for t in part] for part in lists]
    meta = [None if w is None else w.to("meta") for w in weights]
    out = step(x.to("meta"), *to, meta, *kinds)
    assert out[0].shape == x.shape and out[1][0].shape == got[1][0].shape

    x, *lists, weights = decoder(2, *kinds, dtype=torch.float64, layers=1)
    leaves = [x, lists[0][0], lists[2][0], lists[3][0], weights[17], weights[19]]
    for tensor in leaves:
        tensor.requires_grad_()

    def call(x, S, memory_S, memory_z, query, out):
        given = list(weights)
        given[17], given[19] = query, out
        return step(x, [S], lists[1], [memory_S], [memory_z], given, *kinds)[0]

    assert torch.autograd.gradcheck(call, leaves)


def test_arguments_are_checked():
    x, S, z, memory_S, memory_z, weights = decoder(2, "linear", "full")
    kinds = ("linear", "full")
    with pytest.raises(ValueError, match="memories: want 2 of each"):
        step(x, S, z, memory_S[:1], memory_z, weights, *kinds)
    with pytest.raises(ValueError, match="weights: want a multiple of 23"):
        step(x, S, z, memory_S, memory_z, weights[:-1], *kinds)
    with pytest.raises(ValueError, match="cross_attention: want 'linear' or 'full', got 'none'"):
        step(x, S, z, memory_S, memory_z, weights, "linear", "none")
    with pytest.raises(ValueError, match="memory values: want"):
        step(x, S, z, memory_S, [t[:, :3] for t in memory_z], weights, *kinds)
    wrong = list(weights)
    wrong[23 + 19] = torch.zeros(WIDTH)
    with pytest.raises(ValueError, match=r"weights\[42\]: want"):
        step(x, S, z, memory_S, memory_z, wrong, *kinds)
    with pytest.raises(ValueError, match=r"weights\[17\]: want a tensor"):
        wrong = list(weights)
        wrong[17] = None
        step(x, S, z, memory_S, memory_z, wrong, *kinds)
