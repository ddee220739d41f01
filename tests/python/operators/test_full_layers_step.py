"""torch.ops.tarn.full_layers_step: one token through layers with softmax attention
over all keys and values, which grow without a copy and still are values."""

import pytest
import torch

from tarn import ops

steps = torch.ops.tarn.full_layers_step.default
HEADS, WIDTH, D_KEY, D_VALUE, HIDDEN = 3, 12, 5, 4, 17


def make(batch, tokens, dtype=torch.float32, layers=1):
    """x, keys, values, weights of random layers, states of `tokens` tokens."""
    generator = torch.Generator().manual_seed(batch + 7 * tokens)

    def random(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    keys, values = HEADS * D_KEY, HEADS * D_VALUE
    weights = []
    for _ in range(layers):
        weights += [random(keys, WIDTH), random(keys), random(keys, WIDTH), random(keys)]
        weights += [random(values, WIDTH), random(values), random(WIDTH, values), random(WIDTH)]
        weights += [random(WIDTH), random(WIDTH), random(HIDDEN, WIDTH), random(HIDDEN)]
        weights += [random(WIDTH, HIDDEN), random(WIDTH), None, random(WIDTH), random(WIDTH)]
    held = [
        [random(batch, tokens, HEADS, width) for _ in range(layers)] for width in (D_KEY, D_VALUE)
    ]
    return random(batch, WIDTH), *held, weights


def widened(tensors):
    return [None if t is None else t.double() for t in tensors]


def step(x, keys, values, weights, **options):
    return steps(x, keys, values, weights, None, None, HEADS, **options)


@pytest.mark.parametrize("batch", (0, 1, 3, 8, 33, 70))
@pytest.mark.parametrize("tokens", (0, 1, 7, 64, 130))
@pytest.mark.parametrize("options", (dict(), dict(pre_norm=True, softmax_temp=0.1)))
def test_equals_the_operators_in_float64(batch, tokens, options):
    x, keys, values, weights = make(batch, tokens, layers=2)
    got = step(x, keys, values, weights, **options)
    want = step(x.double(), widened(keys), widened(values), widened(weights), **options)
    torch.testing.assert_close(got[0].double(), want[0], atol=2e-5, rtol=2e-5)
    for a, b in zip(got[1] + got[2], want[1] + want[2], strict=True):
        assert a.shape == (batch, tokens + 1, *b.shape[2:])
        torch.testing.assert_close(a.double(), b, atol=2e-5, rtol=2e-5)


def test_equals_attention_over_the_whole_cache():
    """Compares the composed form with torch's own attention."""
    x, keys, values, weights = make(2, 9, torch.float64)
    with ops.composed_forms():
        out, (all_keys,), (all_values,) = step(x, keys, values, weights)
    map_rows = torch.nn.functional.linear
    queries = map_rows(x, *weights[:2]).view(2, HEADS, 1, D_KEY)
    attended = torch.nn.functional.scaled_dot_product_attention(
        queries, all_keys.transpose(1, 2), all_values.transpose(1, 2)
    )
    norm = torch.nn.functional.layer_norm
    y = norm(x + map_rows(attended.flatten(1), *weights[6:8]), (WIDTH,), *weights[8:10])
    hidden = torch.relu(map_rows(y, *weights[10:12]))
    y = norm(y + map_rows(hidden, *weights[12:14]), (WIDTH,), *weights[15:17])
    torch.testing.assert_close(out, y)


def copies(tensors):
    return [t.clone() for t in tensors]


@pytest.mark.parametrize("batch", (1, 4))
def test_states_are_values(batch):
    """Two tokens are appended to one state, one after the other: neither result sees
    the other's token, nor does the state they come from."""
    x, keys, values, weights = make(batch, 0)
    state = [[], []]
    for token in range(150):  # more than there is room for at first
        other = torch.randn_like(x)
        before = [copies(part) for part in state]
        one = step(x + token, *state, weights)
        two = step(other, *state, weights)
        again = step(x + token, *copies_of(state), weights)
        for a, b in zip(one, again, strict=True):
            assert all(map(torch.equal, a, b)) if isinstance(a, list) else torch.equal(a, b)
        for part, held in zip(state, before, strict=True):
            assert all(map(torch.equal, part, held))
        last = step(other, *copies_of(state), weights)
        assert torch.equal(two[0], last[0]) and torch.equal(two[1][0], last[1][0])
        state = list(one[1:])
    assert state[0][0].shape[1] == 150


def copies_of(state):
    return [copies(part) for part in state]


def test_tokens_cost_no_copy_of_those_before():
    x, _, _, weights = make(2, 0)
    state, places = [[], []], set()
    for _ in range(128):
        _, *state = step(x, *state, weights)
        places.add(state[0][0].data_ptr())
    assert len(places) == 2  # room for 64, then for twice as many


@pytest.mark.parametrize("part", ("rows", "fewer", "heads"))
def test_views_of_a_state_are_copied(part):
    """A part of a state has no free room after it."""
    x, keys, values, weights = make(4, 3)
    _, keys, values = step(x, keys, values, weights)
    cut = {
        "rows": lambda t: t[1:3],
        "fewer": lambda t: t[:, :2],
        "heads": lambda t: t.flip(2),
    }[part]
    given = [[cut(keys[0])], [cut(values[0])]]
    x = x[: given[0][0].shape[0]]
    want = step(x, *copies_of(given), weights)
    got = step(x, *given, weights)
    assert torch.equal(got[0], want[0]) and torch.equal(got[2][0], want[2][0])
    assert keys[0].shape[1] == 4 and torch.equal(step(x, *given, weights)[0], want[0])


def test_gradients():
    x, keys, values, weights = make(2, 3, torch.float64)
    leaves = [x, keys[0], values[0], weights[0], weights[2], weights[10]]
    for tensor in leaves:
        tensor.requires_grad_()

    def call(x, keys, values, query, key, linear1):
        given = list(weights)
        given[0], given[2], given[10] = query, key, linear1
        out, keys, values = step(x, [keys], [values], given)
        return out, keys[0], values[0]

    assert torch.autograd.gradcheck(call, leaves)


def test_arguments_are_checked():
    x, keys, values, weights = make(2, 3)
    with pytest.raises(ValueError, match="keys, values: want none, or 1 of each"):
        step(x, keys, [], weights)
    with pytest.raises(ValueError, match="keys: want"):
        step(x, [keys[0][:1]], values, weights)
    with pytest.raises(ValueError, match="values: want"):
        step(x, keys, [values[0][:, :2]], weights)
    with pytest.raises(ValueError, match="keys: want"):
        step(x, [keys[0][0]], values, weights)
