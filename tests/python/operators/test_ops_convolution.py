"""tarn.ops.short_convolution against a loop over tokens in float64: outputs, states,
gradients of every input, by the kernel and by the composed form."""

import pytest
import torch
from torch.library import opcheck

from tarn import ops

OP = torch.ops.tarn.short_convolution.default
# float32 sums of a few products; what halves are rounded to, relative to their size.
BOUND = {torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float64: 1e-12}
STARTS = torch.tensor([0, 3, 3, 4, 19])


def problem(batch, tokens, channels, width, dtype=torch.float32, states=None):
    torch.manual_seed(channels + width)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    return {
        "inputs": torch.randn(batch, tokens, channels).to(dtype),
        "weights": torch.randn(channels, width).to(wide) / 2,
        "bias": torch.randn(channels).to(wide) / 2,
        "initial_state": torch.randn(states or batch, width - 1, channels).to(wide),
    }


def one(x, weights, bias, activation, state):
    """A sequence [T, D], a token at a time: outputs and the state after it."""
    width = weights.shape[1]
    seen = list(state)
    out = []
    for token in x:
        seen.append(token)
        z = bias + sum(weights[:, j] * seen[len(seen) - width + j] for j in range(width))
        out.append(z * torch.sigmoid(z) if activation == "silu" else z)
    rows = torch.stack(out) if out else x
    return rows, torch.stack(seen[len(seen) - width + 1 :])


def reference(x, activation="silu", lengths=None, cu_seqlens=None):
    inputs, weights = x["inputs"].double(), x["weights"].double()
    bias, state = x["bias"].double(), x["initial_state"].double()
    if cu_seqlens is not None:
        pieces = [
            one(inputs[0, a:b], weights, bias, activation, state[n])
            for n, (a, b) in enumerate(zip(cu_seqlens[:-1], cu_seqlens[1:], strict=True))
        ]
        return torch.cat([rows for rows, _ in pieces])[None], torch.stack([s for _, s in pieces])
    lengths = [inputs.shape[1]] * len(inputs) if lengths is None else lengths.tolist()
    rows = []
    states = []
    for b, length in enumerate(lengths):
        out, last = one(inputs[b, :length], weights, bias, activation, state[b])
        rows.append(torch.cat([out, torch.zeros_like(inputs[b, length:])]))
        states.append(last)
    return torch.stack(rows), torch.stack(states)


def call(x, **options):
    return ops.short_convolution(
        x["inputs"],
        x["weights"],
        x["bias"],
        initial_state=x["initial_state"],
        return_state=True,
        **options,
    )


def near(got, wanted, bound):
    torch.testing.assert_close(got.double(), wanted, rtol=bound, atol=bound)


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("width", [2, 3, 4, 8])
@pytest.mark.parametrize(
    ("batch", "tokens", "channels"),
    [(1, 1, 1), (2, 0, 5), (0, 4, 3), (2, 7, 64), (3, 2, 130), (1, 33, 17)],
)
def test_outputs_and_states(dtype, width, batch, tokens, channels):
    x = problem(batch, tokens, channels, width, dtype)
    for activation in ("silu", "none"):
        out, state = call(x, activation=activation)
        assert out.dtype == dtype and out.shape == x["inputs"].shape
        if batch == 0:
            assert state.shape == x["initial_state"].shape
            continue
        wanted = reference(x, activation)
        near(out, wanted[0], BOUND[dtype])
        near(state, wanted[1], BOUND[dtype])


def gradients(x, f, weights):
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in x.items()}
    out, state = f(leaves)
    ((out.double() * weights[0]).sum() + (state.double() * weights[1]).sum()).backward()
    return {name: tensor.grad for name, tensor in leaves.items()}


@pytest.mark.parametrize("composed", [False, True])
@pytest.mark.parametrize("kind", ["whole", "lengths", "packed"])
@pytest.mark.parametrize("activation", ["silu", "none"])
def test_gradients(composed, kind, activation):
    x = problem(1 if kind == "packed" else 3, 19, 37, 4, states=4 if kind == "packed" else 3)
    options = {
        "whole": {},
        "lengths": {"lengths": torch.tensor([0, 2, 19])},
        "packed": {"cu_seqlens": STARTS},
    }[kind] | {"activation": activation}
    wanted_out = reference(x, **options)
    weights = [torch.randn_like(one) for one in wanted_out]
    if kind == "lengths":  # what is in pads reaches nothing
        for row, length in enumerate(options["lengths"]):
            x["inputs"][row, length:] = float("nan")
            weights[0][row, length:] = 0
    clean = {name: tensor.nan_to_num() for name, tensor in x.items()}
    wanted = gradients(clean, lambda leaves: reference(leaves, **options), weights)
    torch.ops.tarn.force_composed(composed)
    try:
        out = call(x, **options)
        got = gradients(x, lambda leaves: call(leaves, **options), weights)
    finally:
        torch.ops.tarn.force_composed(False)
    for ours, theirs in zip(out, wanted_out, strict=True):
        near(ours, theirs, 2e-6)
    for name, gradient in wanted.items():
        near(got[name], gradient.double(), 2e-5)


def test_gradcheck_to_second_order():
    x = problem(2, 5, 3, 3, torch.float64)
    leaves = [tensor.requires_grad_() for tensor in x.values()]

    def f(*given):
        return call(dict(zip(x, given, strict=True)), lengths=torch.tensor([5, 2]))

    assert torch.autograd.gradcheck(f, leaves)
    assert torch.autograd.gradgradcheck(f, leaves)


def test_gradients_of_gradients_begin_at_the_kernel():
    x = {name: one.requires_grad_() for name, one in problem(2, 5, 3, 3).items()}
    first = torch.autograd.grad(call(x)[0].square().sum(), x["inputs"], create_graph=True)[0]
    second = torch.autograd.grad(first.sum(), x["weights"])[0]
    y = {name: one.detach().double().requires_grad_() for name, one in x.items()}
    first = torch.autograd.grad(call(y)[0].square().sum(), y["inputs"], create_graph=True)[0]
    near(second, torch.autograd.grad(first.sum(), y["weights"])[0], 1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_any_split_gives_the_same_bits(dtype):
    x = problem(2, 21, 70, 4, dtype)
    whole, last = call(x)
    for cuts in ([1] * 21, [0, 5, 2, 14]):
        state, parts, at = x["initial_state"], [], 0
        for count in cuts:
            part, state = ops.short_convolution(
                x["inputs"][:, at : at + count],
                x["weights"],
                x["bias"],
                initial_state=state,
                return_state=True,
            )
            parts.append(part)
            at += count
        assert torch.equal(torch.cat(parts, 1), whole) and torch.equal(state, last)


def test_same_bits_for_any_number_of_threads_and_any_layout():
    x = problem(3, 40, 200, 4)
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            found.append(call(x))
    finally:
        torch.set_num_threads(before)
    strided = dict(x, inputs=torch.randn(40, 3, 2, 201)[:, :, 1, 1:].transpose(0, 1))
    strided["inputs"].copy_(x["inputs"])
    found.append(call(strided))
    for out, state in found[1:]:
        assert torch.equal(out, found[0][0]) and torch.equal(state, found[0][1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_opcheck(dtype):
    x = {name: one.requires_grad_() for name, one in problem(2, 9, 5, 4, dtype).items()}
    opcheck(
        OP,
        (
            x["inputs"],
            x["weights"],
            x["bias"],
            "silu",
            torch.tensor([4, 9]),
            None,
            x["initial_state"],
            True,
        ),
    )
    row = problem(1, 19, 5, 4, dtype, states=4)
    opcheck(
        OP, (row["inputs"], row["weights"], None, "none", None, STARTS, row["initial_state"], True)
    )
    flow = torch.randn(2, 9, 5, dtype=dtype), torch.randn_like(x["initial_state"])
    if dtype == torch.float32:
        plain = [one.detach() for one in x.values()]
        opcheck(
            torch.ops.tarn.short_convolution_backward.default,
            (*plain[:3], "silu", None, None, plain[3], *flow),
        )


def test_compiled_whole():
    x = problem(2, 9, 5, 4)
    compiled = torch.compile(lambda leaves: call(leaves), fullgraph=True, backend="aot_eager")
    for got, wanted in zip(compiled(x), call(x), strict=True):
        assert torch.equal(got, wanted)


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"inputs": torch.zeros(2, 9)}, ValueError, r"inputs: want \[batch, seq_len, channels\]"),
        ({"inputs": [1.0]}, TypeError, "inputs: want a tensor, got list"),
        ({"weights": torch.zeros(5, 1)}, ValueError, r"weights: want \[5, 2 to 8\], got \[5, 1\]"),
        ({"weights": torch.zeros(5, 9)}, ValueError, "weights"),
        ({"weights": torch.zeros(5, 4, dtype=torch.int64)}, TypeError, "weights: want float32"),
        ({"bias": torch.zeros(4)}, ValueError, r"bias: want \[5\], got \[4\]"),
        ({"initial_state": torch.zeros(2, 4, 5)}, ValueError, r"initial_state: want \[2, 3, 5\]"),
        ({"initial_state": torch.zeros(2, 3, 5).half()}, TypeError, "initial_state: want Float"),
        ({"lengths": torch.tensor([1, 10])}, ValueError, r"lengths\[1\]"),
        ({"lengths": torch.tensor([1.0, 2.0])}, TypeError, "lengths: want Int or Long"),
        ({"cu_seqlens": torch.tensor([0, 9])}, ValueError, "cu_seqlens: want a batch of 1"),
        ({"activation": "relu"}, ValueError, 'activation: want "silu" or "none"'),
    ],
)
def test_refusals(change, kind, words):
    given = problem(2, 9, 5, 4) | change
    with pytest.raises(kind, match=words):
        ops.short_convolution(given.pop("inputs"), given.pop("weights"), **given)


def test_the_composed_form_refuses_bounds_too():
    x = problem(1, 9, 5, 4, torch.float64, states=2)
    with pytest.raises(ValueError, match="cu_seqlens"):
        call(x, cu_seqlens=torch.tensor([0, 5, 8]))
    with pytest.raises(ValueError, match=r"lengths\[0\]"):
        ops.short_convolution(x["inputs"], x["weights"], lengths=torch.tensor([10]))
