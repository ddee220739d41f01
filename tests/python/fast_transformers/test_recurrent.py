"""Recurrent modules: every kind equals its batch form, prefill equals steps,
states are values."""

import copy
import math
import pickle

import pytest
import torch

from tarn import attention, recurrent
from tarn.builders import (
    RecurrentDecoderBuilder,
    RecurrentEncoderBuilder,
    TransformerDecoderBuilder,
    TransformerEncoderBuilder,
)
from tarn.masking import LengthMask, TriangularCausalMask
from tarn.recurrent.attention import (
    RecurrentAttentionLayer,
    RecurrentCrossAttentionLayer,
    RecurrentCrossFullAttention,
    RecurrentCrossLinearAttention,
    RecurrentFullAttention,
    RecurrentLinearAttention,
)

N, L, D, H = 3, 13, 24, 4
MAPS = [
    "elu1",
    "relu",
    "relu2",
    "softplus",
    "poly2",
    "favor",
    "favor-positive",
    "rff",
    "smoothed-rff",
    "grf",
]
KINDS = [
    *(("linear", {"feature_map": name}) for name in MAPS),
    ("linear", {"feature_map": "favor", "stabilise": True}),
    ("linear", {"compat": True}),
    ("full", {}),
    ("full", {"softmax_temp": 0.0}),
    ("local", {"local_context": 5}),
    ("local", {"local_context": 4}),
    ("local", {"local_context": 1}),
    ("exact-topk", {"topk": 3}),
    ("aft-full", {"max_sequence_length": 20, "aft_parameterization": 3}),
    ("aft-simple", {}),
]
IDS = ["-".join([kind, *(f"{v}" for v in options.values())]) for kind, options in KINDS]


def pair(kind, options, **more):
    """A batch encoder and its recurrent twin with the same weights."""
    settings = dict(
        n_layers=2,
        n_heads=H,
        query_dimensions=D // H,
        value_dimensions=D // H,
        feed_forward_dimensions=32,
        **options,
        **more,
    )
    batch_kind = "causal-linear" if kind == "linear" else kind
    batch = TransformerEncoderBuilder.from_kwargs(attention_type=batch_kind, **settings).get()
    twin = RecurrentEncoderBuilder.from_kwargs(attention_type=kind, **settings).get()
    twin.load_state_dict(batch.state_dict())
    return batch.eval(), twin.eval()


def step_all(model, x, state=None):
    outs = []
    for t in range(x.shape[1]):
        y, state = model(x[:, t], state=state)
        outs.append(y)
    return torch.stack(outs, dim=1), state


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("kind, options", KINDS, ids=IDS)
def test_steps_prefill_and_batch_agree(kind, options, norm):
    # Weights have both signs, so a denominator may come close to 0.
    most = 1e-4 if "rff" in options.values() else 2e-5
    batch, twin = pair(kind, options, norm=norm)
    x = torch.randn(N, L, D)
    wanted = batch(x, TriangularCausalMask(L))
    stepped, state = step_all(twin, x)
    torch.testing.assert_close(stepped, wanted, rtol=0, atol=most)
    filled, filled_state = twin.prefill(x)
    torch.testing.assert_close(filled, wanted, rtol=0, atol=most)
    first, middle = twin.prefill(x[:, :5])
    second, both = twin.prefill(x[:, 5:], state=middle)
    torch.testing.assert_close(torch.cat([first, second], 1), wanted, rtol=0, atol=most)
    for a, b, c in zip(state, filled_state, both, strict=True):
        assert a.steps.tolist() == b.steps.tolist() == [L] * N
        # local keeps a right-aligned ring in every form; caches are in order.
        for u, v, w in zip(a, b, c, strict=True):
            torch.testing.assert_close(u, v, rtol=1e-4, atol=2e-5)
            torch.testing.assert_close(u, w, rtol=1e-4, atol=2e-5)
    # Zero tokens leave everything as it is.
    empty, same = twin.prefill(x[:, :0], state=both)
    assert empty.shape == (N, 0, D)
    assert all(a == b for a, b in zip(same, both, strict=True))


@pytest.mark.parametrize("kind, options", KINDS, ids=IDS)
def test_ragged_prefill_leaves_each_sequence_at_its_length(kind, options):
    _, twin = pair(kind, options)
    x = torch.randn(N, L, D)
    lengths = torch.tensor([4, 0, 7])
    poisoned = x[:, :7].clone()
    for n in range(N):
        poisoned[n, lengths[n] :] = 1e4
    out, state = twin.prefill(poisoned, lengths=LengthMask(lengths, max_len=7))
    assert state[0].steps.tolist() == lengths.tolist()
    more, state = twin.prefill(x[:, 8:11], state=state, lengths=torch.tensor([3, 2, 3]))
    after, _ = twin(x[:, 12], state=state)
    for n, (l, m) in enumerate(zip(lengths.tolist(), [3, 2, 3], strict=True)):
        alone = torch.cat([x[n : n + 1, :l], x[n : n + 1, 8 : 8 + m], x[n : n + 1, 12:]], 1)
        wanted, _ = step_all(twin, alone)
        torch.testing.assert_close(out[n, :l], wanted[0, :l], rtol=0, atol=3e-5)
        torch.testing.assert_close(more[n, :m], wanted[0, l : l + m], rtol=0, atol=3e-5)
        torch.testing.assert_close(after[n], wanted[0, -1], rtol=0, atol=3e-5)


@pytest.mark.parametrize("kind, options", KINDS, ids=IDS)
def test_state_is_a_value(kind, options, tmp_path):
    _, twin = pair(kind, options)
    x = torch.randn(N, L, D)
    _, state = twin.prefill(x[:, :6])
    before = recurrent.clone(state)
    wanted, after = twin(x[:, 6], state=state)
    again, _ = twin(x[:, 6], state=state)
    assert torch.equal(wanted, again)  # bit for bit: the state did not change
    assert all(a == b for a, b in zip(state, before, strict=True))
    assert not any(a == b for a, b in zip(state, after, strict=True))
    # Fork and reorder. Products over another batch sum in another order; sums of
    # signed features magnify it: 1.4e-6 was seen.
    most = 1e-5 if "rff" in options.values() else 1e-6
    forked = recurrent.fork(state, 2)
    y, _ = twin(x[:, 6].repeat_interleave(2, 0), state=forked)
    torch.testing.assert_close(y[::2], wanted, rtol=0, atol=most)
    y, _ = twin(x[:, 6][[2, 0]], state=recurrent.reorder(state, [2, 0]))
    torch.testing.assert_close(y, wanted[[2, 0]], rtol=0, atol=most)
    # One row starts over; the others are not affected.
    partly = recurrent.reset(state, [1])
    y, _ = twin(x[:, 6], state=partly)
    fresh, _ = twin(x[:, 6])
    torch.testing.assert_close(y[1], fresh[1], rtol=0, atol=1e-5)
    torch.testing.assert_close(y[[0, 2]], wanted[[0, 2]], rtol=0, atol=1e-5)
    # Save and load.
    path = tmp_path / "state.safetensors"
    recurrent.save_state(state, path)
    loaded = recurrent.load_state(path)
    assert all(a == b for a, b in zip(loaded, state, strict=True))
    y, _ = twin(x[:, 6], state=loaded)
    assert torch.equal(y, wanted)
    assert recurrent.nbytes(loaded) == sum(part.nbytes for part in state)
    assert copy.deepcopy(state)[0] == state[0]
    plain = recurrent.map_state(recurrent.AttentionState.detach, state)
    assert pickle.loads(pickle.dumps(plain))[0] == state[0]


@pytest.mark.parametrize(
    "kind, options, constant",
    [
        ("linear", {}, True),
        ("local", {"local_context": 6}, True),
        ("aft-simple", {}, True),
        ("full", {}, False),
    ],
)
def test_state_size(kind, options, constant):
    _, twin = pair(kind, options)
    _, state = twin.prefill(torch.randn(1, 3, D))
    _, later = twin.prefill(torch.randn(1, 90, D), state=state)
    assert (recurrent.nbytes(state) == recurrent.nbytes(later)) == constant


def test_mismatches_are_refused(tmp_path):
    linear = RecurrentLinearAttention(6)
    q, v = torch.randn(2, 4, 6), torch.randn(2, 4, 5)
    _, state = linear(q, q, v)
    with pytest.raises(ValueError, match="2.*3|3.*2"):
        linear(torch.randn(3, 4, 6), torch.randn(3, 4, 6), torch.randn(3, 4, 5), state)
    with pytest.raises(ValueError, match="d_value"):
        linear(q, q, torch.randn(2, 4, 7), state)
    with pytest.raises(ValueError, match="kind"):
        RecurrentFullAttention()(q, q, v, state)
    with pytest.raises(ValueError, match="denominator"):
        RecurrentLinearAttention(6, compat=True)(q, q, v, state)
    with pytest.raises(ValueError, match="feature_map"):
        RecurrentLinearAttention(6, feature_map="relu")(q, q, v, state)
    with pytest.raises(TypeError, match="reorder.*dict"):
        linear(q, q, v, {"S": state["S"]})
    with pytest.raises(IndexError):
        state.reorder([0, 2])
    other = tmp_path / "other.safetensors"
    other.write_bytes(b"no")
    with pytest.raises(ValueError, match="safetensors"):
        recurrent.load_state(other)


def test_random_map_redrawn_means_another_state():
    layer = RecurrentLinearAttention(6, feature_map="favor").eval()
    q = torch.randn(2, 4, 6)
    _, state = layer(q, q, q)
    layer.feature_map.omega.normal_()
    with pytest.raises(ValueError, match="feature_map"):
        layer(q, q, q, state)


@pytest.mark.parametrize("training, compat", [(True, False), (False, True)])
@pytest.mark.parametrize("prefill", [False, True])
def test_random_maps_draw_for_each_new_sequence_and_never_inside_one(training, compat, prefill):
    """They draw in training, and in evaluation under compat, as in fast-transformers."""
    layer = RecurrentLinearAttention(6, feature_map="favor", compat=compat).train(training)
    q = torch.randn(2, 5, 4, 6)
    drawn = []
    for _ in range(3):
        state = None
        if prefill:
            _, state = layer.prefill(q[:, :2], q[:, :2], q[:, :2])
        omega = None if state is None else layer.feature_map.omega.clone()
        for t in range(2, 5):
            _, state = layer(q[:, t], q[:, t], q[:, t], state)
            assert omega is None or torch.equal(omega, layer.feature_map.omega)
            omega = layer.feature_map.omega.clone()
        drawn.append(omega)
    assert not torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[1], drawn[2])


def test_mirror_follows_a_training_that_draws():
    """Mirror once, train, then step: the original's pattern."""
    from tarn.utils import make_mirror

    settings = dict(n_layers=1, n_heads=2, query_dimensions=8, value_dimensions=8)
    settings.update(feed_forward_dimensions=16, feature_map="favor", dropout=0.0)
    batch = TransformerEncoderBuilder.from_kwargs(attention_type="causal-linear", **settings).get()
    twin = RecurrentEncoderBuilder.from_kwargs(attention_type="causal-linear", **settings).get()
    make_mirror(batch, twin)
    x = torch.randn(2, 6, 16)
    optimizer = torch.optim.SGD(batch.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        batch(x, TriangularCausalMask(6)).square().sum().backward()
        optimizer.step()
    batch.eval(), twin.eval()
    with torch.no_grad():
        wanted = batch(x, TriangularCausalMask(6))
        stepped, _ = step_all(twin, x)
    torch.testing.assert_close(stepped, wanted, rtol=0, atol=2e-5)


@pytest.mark.parametrize("kind, options", KINDS, ids=IDS)
def test_steps_without_gradients_leave_the_state_alone(kind, options):
    """The original changes S and z in place where no gradient is recorded."""
    _, twin = pair(kind, options)
    x = torch.randn(N, L, D)
    with torch.no_grad():
        _, state = twin.prefill(x[:, :6])
        before = recurrent.clone(state)
        twin(x[:, 6], state=state)
    assert all(a == b for a, b in zip(state, before, strict=True))


@pytest.mark.parametrize("kind", ["local", "reformer", "aft-simple", "clustered"])
def test_cross_attention_refuses_kinds_that_cannot_keep_a_memory(kind):
    from tarn.builders import RecurrentCrossAttentionBuilder

    with pytest.raises(ValueError, match=f"{kind}.*linear or full"):
        RecurrentCrossAttentionBuilder.from_kwargs().get(kind)


def test_state_files_of_another_version_or_size_are_refused(tmp_path):
    from tarn._files import read_tensors, write_tensors

    _, twin = pair("linear", {})
    _, state = twin.prefill(torch.randn(2, 3, D))
    path = tmp_path / "state.safetensors"
    recurrent.save_state(state, path)
    tensors, metadata = read_tensors(path)
    write_tensors(tensors, path, {**metadata, "version": "2"})
    with pytest.raises(ValueError, match="version"):
        recurrent.load_state(path)
    name = next(name for name in tensors if name.endswith(".S"))
    write_tensors({**tensors, name: tensors[name][:1]}, path, metadata)
    with pytest.raises(ValueError, match="S: want 2"):
        recurrent.load_state(path)
    write_tensors({n: t for n, t in tensors.items() if n != name}, path, metadata)
    with pytest.raises(ValueError, match="description"):
        recurrent.load_state(path)
    recurrent.save_state(state[:1], path)
    with pytest.raises(ValueError, match="2 states"):
        twin(torch.randn(2, D), state=recurrent.load_state(path))


@pytest.mark.parametrize("inner", [RecurrentCrossFullAttention, RecurrentCrossLinearAttention])
def test_cross_state_is_built_once(inner):
    make = inner if inner is RecurrentCrossFullAttention else (lambda: inner(D // H))
    layer = RecurrentCrossAttentionLayer(make(), D, H).eval()
    memory, x = torch.randn(N, 7, D), torch.randn(N, D)
    mask = LengthMask(torch.tensor([7, 3, 5]))
    y, state = layer(x, memory, memory, mask)
    again, _ = layer(x, memory, memory, mask, state=state)  # the same tensor: fine
    assert torch.equal(y, again)
    assert torch.equal(layer(x, state=state)[0], y)
    with pytest.raises(ValueError, match="memory"):
        layer(x, memory.clone(), memory.clone(), mask, state=state)
    with pytest.raises(ValueError, match="memory"):
        layer(x)
    poisoned = memory.clone()
    poisoned[1, 3:] = math.nan
    z, _ = layer(x, poisoned, poisoned, mask)
    assert torch.equal(z, y)
    with pytest.raises(ValueError, match="reset"):
        state.reset([0])


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize(
    "self_kind, cross_kind", [("linear", "linear"), ("full", "full"), ("local", "linear")]
)
def test_decoder_twin(self_kind, cross_kind, norm):
    settings = dict(
        n_layers=2,
        n_heads=H,
        query_dimensions=6,
        value_dimensions=6,
        feed_forward_dimensions=20,
        cross_attention_type=cross_kind,
        norm=norm,
    )
    if self_kind == "local":
        settings["local_context"] = 5
    batch_kind = "causal-linear" if self_kind == "linear" else self_kind
    batch = TransformerDecoderBuilder.from_kwargs(self_attention_type=batch_kind, **settings).get()
    twin = RecurrentDecoderBuilder.from_kwargs(self_attention_type=self_kind, **settings).get()
    twin.load_state_dict(batch.state_dict())
    batch.eval(), twin.eval()
    x, memory = torch.randn(N, L, D), torch.randn(N, 9, D)
    mask = LengthMask(torch.tensor([9, 2, 5]))
    wanted = batch(x, memory, x_mask=TriangularCausalMask(L), memory_length_mask=mask)
    state, outs = None, []
    for t in range(L):
        y, state = twin(x[:, t], memory, memory_length_mask=mask, state=state)
        outs.append(y)
    torch.testing.assert_close(torch.stack(outs, 1), wanted, rtol=0, atol=2e-5)
    built = twin.initial_state(memory, mask)
    first, state = twin.prefill(x[:, :4], state=built)
    rest, state = twin.prefill(x[:, 4:], state=state)
    torch.testing.assert_close(torch.cat([first, rest], 1), wanted, rtol=0, atol=2e-5)
    swapped, _ = twin(x[:, 0], state=recurrent.reorder(built, [1, 0, 2]))
    alone, _ = twin(x[:, 0], memory[[1, 0, 2]], LengthMask(torch.tensor([2, 9, 5])))
    torch.testing.assert_close(swapped, alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "kind",
    [
        "clustered",
        "improved-clustered",
        "causal-improved-clustered",
        "reformer",
        "conditional-full",
    ],
)
def test_kinds_without_a_recurrent_form_say_why(kind):
    with pytest.raises(ValueError, match=f"{kind}.*recurrent form"):
        RecurrentEncoderBuilder.from_kwargs(attention_type=kind).get()


def test_gradients_flow_through_steps():
    layer = RecurrentAttentionLayer(RecurrentLinearAttention(6), D, H)
    x = torch.randn(2, 5, D, requires_grad=True)
    out, _ = step_all(lambda t, state=None: layer(t, t, t, state=state), x)
    (grad,) = torch.autograd.grad(out.square().sum(), x)
    batch = attention.AttentionLayer(attention.CausalLinearAttention(6), D, H)
    batch.load_state_dict(layer.state_dict())
    wanted = batch(
        x,
        x,
        x,
        TriangularCausalMask(5),
        LengthMask(torch.tensor([5, 5])),
        LengthMask(torch.tensor([5, 5])),
    )
    (wanted_grad,) = torch.autograd.grad(wanted.square().sum(), x)
    torch.testing.assert_close(grad, wanted_grad, rtol=1e-4, atol=1e-4)


def test_memory_argument_is_deprecated():
    layer = RecurrentAttentionLayer(RecurrentFullAttention(), D, H).eval()
    x = torch.randn(2, D)
    _, state = layer(x, x, x)
    with pytest.warns(DeprecationWarning, match="state"):
        layer(x, x, x, memory=state)
