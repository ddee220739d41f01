"""Recurrent states as fast-transformers has them: plain lists of two tensors, and
inner attentions that are any callable."""

import pytest
import torch

from tarn import recurrent
from tarn.attention import AttentionLayer, ConditionalFullAttention
from tarn.builders import RecurrentDecoderBuilder, RecurrentEncoderBuilder
from tarn.masking import LengthMask
from tarn.recurrent.attention import (
    RecurrentAttentionLayer,
    RecurrentCrossAttentionLayer,
    RecurrentCrossFullAttention,
    RecurrentCrossLinearAttention,
    RecurrentExactTopKAttention,
    RecurrentFullAttention,
    RecurrentLinearAttention,
)
from tarn.recurrent.transformers import (
    RecurrentTransformerDecoderLayer,
    RecurrentTransformerEncoderLayer,
)
from tarn.transformers import TransformerDecoderLayer, TransformerEncoderLayer

N, H, E, M, S = 3, 2, 4, 5, 6
SELF = {
    "linear": lambda: RecurrentLinearAttention(E),
    "linear-compat": lambda: RecurrentLinearAttention(E, compat=True),
    "linear-rff": lambda: RecurrentLinearAttention(E, feature_map="rff", n_dims=8),
    "full": lambda: RecurrentFullAttention(attention_dropout=0.0),
    "exact-topk": lambda: RecurrentExactTopKAttention(2, attention_dropout=0.0),
}
CROSS = {
    "linear": lambda: RecurrentCrossLinearAttention(E),
    "full": lambda: RecurrentCrossFullAttention(attention_dropout=0.0),
}


def tokens(count=5):
    return [[torch.randn(N, H, size) for size in (E, E, M)] for _ in range(count)]


@pytest.mark.parametrize("container", [list, tuple])
@pytest.mark.parametrize("kind", SELF)
def test_steps_go_on_from_a_plain_pair(kind, container):
    attention = SELF[kind]().eval()
    state = plain = None
    for q, k, v in tokens():
        wanted, state = attention(q, k, v, state)
        given, held = attention(q, k, v, plain)
        torch.testing.assert_close(given, wanted, rtol=0, atol=1e-6)
        first, second = held  # unpacks into two, whatever else it holds
        assert len(held) == 2 and torch.equal(held[0], first)
        plain = container((first, second))
    more = tokens(3)
    whole = [torch.stack(parts, 1) for parts in zip(*more)]
    wanted, _ = attention.prefill(*whole, None, state)
    given, _ = attention.prefill(*whole, None, plain)
    torch.testing.assert_close(given, wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", SELF)
def test_rows_of_a_plain_pair_may_be_taken(kind):
    """Beam search by indexing, as programs for fast-transformers do it."""
    attention = SELF[kind]().eval()
    rows, state = torch.tensor([2, 0, 0, 1]), None
    for q, k, v in tokens(4):
        _, state = attention(q, k, v, state)
    q, k, v = (part[rows] for part in tokens(1)[0])
    wanted, _ = attention(q, k, v, state.reorder(rows))
    given, _ = attention(q, k, v, [part[rows] for part in state])
    torch.testing.assert_close(given, wanted, rtol=0, atol=1e-6)


def test_caches_have_heads_before_time():
    attention = RecurrentFullAttention()
    state = None
    steps = tokens(3)
    for q, k, v in steps:
        _, state = attention(q, k, v, state)
    keys, values = state
    assert torch.equal(keys, torch.stack([k for _, k, _ in steps], 2))
    assert values.shape == state[1].shape == (N, H, 3, M)
    assert state["values"].shape == (N, 3, H, M)


def test_the_pair_of_a_linear_attention_is_its_sums():
    attention = RecurrentLinearAttention(E, feature_map=lambda width: torch.exp)
    state = None
    steps = tokens(3)
    for q, k, v in steps:
        _, state = attention(q, k, v, state)
    sums, z = state
    torch.testing.assert_close(z, sum(k.exp() for _, k, _ in steps))
    outer = sum(k.exp()[..., None] * v[:, :, None] for _, k, v in steps)
    torch.testing.assert_close(sums, outer)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", CROSS)
def test_cross_attention_continues_from_a_plain_pair(kind, masked):
    attention = CROSS[kind]().eval()
    mask = LengthMask(torch.tensor([S, 2, 4]), max_len=S) if masked else None
    keys, values = torch.randn(N, S, H, E), torch.randn(N, S, H, M)
    _, state = attention(torch.randn(N, H, E), keys, values, mask)
    pair = list(state)
    if kind == "full":
        assert torch.equal(pair[0], keys) and torch.equal(pair[1], values)
    query = torch.randn(N, H, E)
    wanted, _ = attention(query, None, None, None, state=state)
    given, again = attention(query, None, None, mask, state=pair)
    torch.testing.assert_close(given, wanted)
    assert len(list(again)) == 2


@pytest.mark.parametrize("kind", ["linear", "full"])
def test_models_go_on_from_lists(kind):
    settings = dict(n_layers=2, n_heads=H, query_dimensions=E, value_dimensions=M)
    encoder = RecurrentEncoderBuilder.from_kwargs(attention_type=kind, **settings).get().eval()
    names = dict(self_attention_type=kind, cross_attention_type=kind)
    decoder = RecurrentDecoderBuilder.from_kwargs(**names, **settings).get().eval()
    memory = torch.randn(N, S, H * M)
    mask = LengthMask(torch.tensor([S, 3, 5]), max_len=S)
    state = plain = written = lists = None
    for x in torch.randn(4, N, H * M):
        wanted, state = encoder(x, state)
        given, plain = encoder(x, plain)
        torch.testing.assert_close(given, wanted, rtol=0, atol=1e-5)
        plain = [list(layer) for layer in plain]
        wanted, written = decoder(x, memory, mask, state=written)
        given, lists = decoder(x, memory, mask, state=lists)
        torch.testing.assert_close(given, wanted, rtol=0, atol=1e-5)
        lists = [[list(part) for part in layer] for layer in lists]


def test_wrong_pairs_are_named():
    q, k, v = tokens(1)[0]
    linear, full = RecurrentLinearAttention(E), RecurrentFullAttention()
    sums, z = linear(q, k, v)[1]
    keys, values = full(q, k, v)[1]
    for attention, state, error, message in [
        (linear, [sums], TypeError, r"two tensors \[S, z\], got \[Tensor\]"),
        (linear, [sums, None], TypeError, r"got \[Tensor, NoneType\]"),
        (linear, [sums[..., :1], z], ValueError, "state: S: want .any, 2, any, 5., got"),
        (linear, [sums, z[:1]], ValueError, "state: z: want .3, 2, 4., got .1, 2, 4."),
        (linear, [sums[:2], z[:2]], ValueError, "want 3 sequences, as the input has, got 2"),
        (full, [keys, values[:, :, :0]], ValueError, "state: values: want .3, 2, 1, any., got"),
        (full, [keys[:, :1], values[:, :1]], ValueError, "heads: want 2, got 1"),
        (full, [keys[0], values], ValueError, "state: keys: want .any, any, any, any., got"),
    ]:
        with pytest.raises(error, match=message):
            attention(q, k, v, state)
    cross = RecurrentCrossFullAttention()
    with pytest.raises(ValueError, match="state: keys: want .3, any, 2, 4., got"):
        cross(q, None, None, None, state=[keys[:2], values[:2]])
    stabilised = RecurrentLinearAttention(E, feature_map="favor", stabilize=True)
    _, state = stabilised(q, k, v)
    with pytest.raises(ValueError, match="third part a stabilised feature map needs"):
        stabilised(q, k, v, list(state))


def test_an_assignment_says_what_to_do():
    q, k, v = tokens(1)[0]
    _, state = RecurrentLinearAttention(E)(q, k, v)
    with pytest.raises(TypeError, match="put a list .S, z. .* in its place, or .*reorder"):
        state[0] = state[0][[0, 0, 1]]


def test_files_keep_both_views(tmp_path):
    q, k, v = tokens(1)[0]
    _, state = RecurrentFullAttention()(q, k, v)
    recurrent.save_state([state], tmp_path / "state")
    (read,) = recurrent.load_state(tmp_path / "state")
    assert read == state and torch.equal(read[0], state[0])


class Latest:
    """An inner attention of fast-transformers' kind that is no module: its state
    is a plain list, its result has the heads joined."""

    def __call__(self, query, key, value, state=None):
        return value.flatten(1), [key, value]


class First:
    """The same for a memory; it relies on a mask."""

    def __call__(self, query, keys, values, key_lengths, state=None):
        assert state is None or keys is values is None
        keys, values = (keys, values) if state is None else state
        assert key_lengths is None or key_lengths.float_matrix.shape == keys.shape[:2]
        return values[:, 0], [keys, values]


def test_layers_take_any_callable_as_inner_attention():
    x, memory = torch.randn(N, 8), torch.randn(N, S, 8)
    layer = RecurrentAttentionLayer(Latest(), 8, H)
    out, state = layer(x, x, x)
    assert out.shape == (N, 8) and isinstance(state, list)
    cross = RecurrentCrossAttentionLayer(First(), 8, H)
    mask = LengthMask.full(N, S)
    out, state = cross(x, memory, memory, mask)
    again, state = cross(x, None, None, mask, state=state)
    assert out.shape == (N, 8) and torch.equal(out, again)
    again, _ = cross(x, memory, memory, None, state=state)
    assert torch.equal(out, again)
    with pytest.raises(ValueError, match="keys, values: want a memory"):
        cross(x, None, None)


def test_transformer_layers_take_any_callable_as_attention():
    x, memory = torch.randn(N, 8), torch.randn(N, S, 8)
    seen = []

    def attention(query, key, value, state=None):
        return value, [key]

    def cross(query, keys, values, key_lengths, state=None):
        seen.append(key_lengths.all_ones)
        return values[:, 0], [keys]

    y, state = RecurrentTransformerEncoderLayer(attention, 8)(x)
    assert y.shape == (N, 8) and torch.equal(state[0], x)
    y, state = RecurrentTransformerDecoderLayer(attention, cross, 8)(x, memory)
    assert y.shape == (N, 8) and state[1][0] is memory and seen == [True]


def test_batch_layers_take_any_callable_too():
    x, memory = torch.randn(N, 7, 8), torch.randn(N, S, 8)

    def attention(queries, keys, values, attn_mask, query_lengths, key_lengths):
        return queries

    def inner(queries, keys, values, attn_mask, query_lengths, key_lengths):
        return values[:, :1].expand(-1, queries.shape[1], -1, -1)

    layer = AttentionLayer(ConditionalFullAttention(inner, length_limit=2), 8, H)
    assert layer(x, memory, memory).shape == (N, 7, 8)
    assert TransformerEncoderLayer(attention, 8)(x).shape == (N, 7, 8)
    assert TransformerDecoderLayer(attention, attention, 8)(x, memory).shape == (N, 7, 8)
