"""causal_conv1d's functions, by its layouts, against torch's own convolution."""

import pytest
import torch
from torch.nn import functional as F

import tarn
from tarn.fla import causal_conv1d_fn, causal_conv1d_update

B, D, T, W = 3, 10, 21, 4


@pytest.fixture
def given():
    torch.manual_seed(2)
    return torch.randn(B, D, T), torch.randn(D, W), torch.randn(D)


def reference(x, weight, bias, state=None):
    before = x.new_zeros(*x.shape[:2], W - 1) if state is None else state
    return F.silu(F.conv1d(torch.cat([before, x], -1), weight[:, None], bias, groups=D))


def near(got, wanted):
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("word", ["silu", "swish"])
def test_whole_sequences(given, word):
    x, weight, bias = given
    near(causal_conv1d_fn(x, weight, bias, activation=word), reference(x, weight, bias))
    plain = causal_conv1d_fn(x, weight)
    near(F.silu(plain), reference(x, weight, None))


def test_states_go_in_and_out(given):
    x, weight, bias = given
    state, room = torch.randn(B, D, W - 1), torch.full((B, D, W - 1), torch.nan)
    out, final = causal_conv1d_fn(
        x,
        weight,
        bias,
        initial_states=state,
        return_final_states=True,
        final_states_out=room,
        activation="silu",
    )
    near(out, reference(x, weight, bias, state))
    assert final is room and torch.equal(room, x[..., 1 - W :])


def test_sequences_of_one_number_are_kept_apart(given):
    x, weight, bias = given
    seq_idx = torch.tensor([[0] * 5 + [1] * 16, [0] * 21, [4] * 20 + [5]], dtype=torch.int32)
    out = causal_conv1d_fn(x, weight, bias, seq_idx=seq_idx, activation="silu")
    for row, cut in ((0, 5), (1, 21), (2, 20)):
        for part in (slice(0, cut), slice(cut, T)):
            if part.start < T:
                near(
                    out[row : row + 1, :, part], reference(x[row : row + 1, :, part], weight, bias)
                )


@pytest.mark.parametrize("length", [W - 1, W, W + 3])
@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_steps_continue_in_place(given, length, indexed, grad):
    """By one operator outside of autograd, by several within."""
    with torch.set_grad_enabled(grad), torch.profiler.profile() as profile:
        continue_in_place(given, length, indexed)
    one = "tarn::short_convolution_step_" in [event.name for event in profile.events()]
    assert one == (not grad and not indexed)


def continue_in_place(given, length, indexed):
    x, weight, bias = given
    wanted = reference(x, weight, bias)
    states = torch.zeros(2 * B, D, length)
    rows = torch.tensor([4, 0, 3])
    state = states if indexed else torch.zeros(B, D, length)
    options = {"conv_state_indices": rows} if indexed else {}
    at = 0
    for count in (1, 1, 3, 1, 15):
        piece = x[..., at : at + count]
        piece = piece[..., 0] if count == 1 else piece
        out = causal_conv1d_update(piece, state, weight, bias, "silu", **options)
        assert out.shape == piece.shape
        near(out.view(B, D, count), wanted[..., at : at + count])
        at += count
    kept = state[rows] if indexed else state
    assert torch.equal(kept, F.pad(x, (length, 0))[..., -length:])
    if indexed:
        assert not states[[1, 2, 5]].any()


def test_halves_and_gradients(given):
    x, weight, bias = given
    out = causal_conv1d_fn(x.bfloat16(), weight.bfloat16(), bias.bfloat16(), activation="silu")
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), reference(x, weight, bias), rtol=0.05, atol=0.05)
    leaves = [one.clone().requires_grad_() for one in given]
    causal_conv1d_fn(*leaves, activation="silu").square().sum().backward()
    theirs = [one.clone().requires_grad_() for one in given]
    reference(*theirs).square().sum().backward()
    for ours, wanted in zip(leaves, theirs, strict=True):
        torch.testing.assert_close(ours.grad, wanted.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x, w, b: causal_conv1d_fn(x[0], w, b), "x: want .batch, channels, seq_len."),
        (
            lambda x, w, b: causal_conv1d_fn(x, w[:4], b),
            r"weight: want \[10, width\], got \[4, 4\]",
        ),
        (
            lambda x, w, b: causal_conv1d_fn(x, w, b, activation="relu"),
            "activation: want None, silu",
        ),
        (
            lambda x, w, b: causal_conv1d_fn(
                x, w, b, seq_idx=torch.zeros(B, T), return_final_states=True
            ),
            "return_final_states",
        ),
        (
            lambda x, w, b: causal_conv1d_update(x[..., 0], torch.zeros(B, D, 2), w),
            "conv_state: want",
        ),
        (
            lambda x, w, b: causal_conv1d_update(
                x[..., 0], torch.zeros(B, D, 3), w, cache_seqlens=torch.zeros(B)
            ),
            "cache_seqlens",
        ),
    ],
)
def test_refusals(given, call, words):
    with pytest.raises(ValueError, match=words):
        call(*given)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("composed", [False, True])
def test_the_operator_of_a_step(given, dtype, composed):
    x, weight, bias = (one.to(dtype) for one in given)
    window = torch.randn(B, D, W)
    before, one = window.clone(), x[..., :2]
    wanted = reference(torch.cat([before.to(dtype), one], -1), weight, bias)[..., -2:]
    step = torch.ops.tarn.short_convolution_step_
    if composed:
        with tarn.ops.composed_forms():
            out = step(window, one, weight, bias, "silu")
    else:
        out = step(window, one, weight, bias, "silu")
    assert out.dtype == dtype and torch.equal(
        window, torch.cat([before, one.float()], -1)[..., -W:]
    )
    torch.testing.assert_close(
        out, wanted, rtol=2e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-2
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (dict(inputs=torch.zeros(B, D)), r"inputs: want \[batch, channels, seq_len\]"),
        (dict(weights=torch.zeros(D)), r"weights: want \[channels, width\]"),
        (dict(weights=torch.zeros(D + 1, W)), "weights: want"),
        (dict(window=torch.zeros(B, D, W - 2)), "window: want"),
        (dict(activation="relu"), "activation: want silu or none"),
    ],
)
def test_the_operator_refuses_and_changes_nothing(change, words):
    words_of = (
        dict(
            window=torch.ones(B, D, W),
            inputs=torch.zeros(B, D, 1),
            weights=torch.zeros(D, W),
            bias=None,
            activation="silu",
        )
        | change
    )
    before = words_of["window"].clone()
    with pytest.raises(ValueError, match=words):
        torch.ops.tarn.short_convolution_step_(*words_of.values())
    assert torch.equal(words_of["window"], before)
