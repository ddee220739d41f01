"""tarn.ops.elementwise_recurrence against a loop over tokens in float64: outputs, states,
gradients of every input, by the kernel and by the composed form."""

import math

import pytest
import torch
from torch.library import opcheck

from tarn import ops

OP = torch.ops.tarn.elementwise_recurrence.default
# A few roundings of float32; what halves are rounded to, relative to their size.
BOUND = {torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float64: 1e-12}
STARTS = torch.tensor([0, 3, 3, 4, 69])


def problem(batch, tokens, channels, dtype=torch.float32, gates=None, states=None):
    torch.manual_seed(channels + tokens)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    return {
        "inputs": torch.randn(batch, tokens, channels).to(dtype),
        "gates": torch.nn.functional.logsigmoid(torch.randn(batch, tokens, channels)).to(
            gates or wide
        ),
        "initial_state": torch.randn(states or batch, channels).to(wide),
    }


def one(x, gates, state):
    """A sequence [T, D], a token at a time: outputs and the state after it."""
    out = []
    for token, gate in zip(x, gates, strict=True):
        state = gate.exp() * state + token
        out.append(state)
    return (torch.stack(out) if out else x), state


def reference(x, lengths=None, cu_seqlens=None):
    inputs, gates, state = (tensor.double() for tensor in x.values())
    if cu_seqlens is not None:
        pieces = [
            one(inputs[0, a:b], gates[0, a:b], state[n])
            for n, (a, b) in enumerate(zip(cu_seqlens[:-1], cu_seqlens[1:], strict=True))
        ]
        return torch.cat([rows for rows, _ in pieces])[None], torch.stack([s for _, s in pieces])
    lengths = [inputs.shape[1]] * len(inputs) if lengths is None else lengths.tolist()
    rows, states = [], []
    for b, length in enumerate(lengths):
        out, last = one(inputs[b, :length], gates[b, :length], state[b])
        rows.append(torch.cat([out, torch.zeros_like(inputs[b, length:])]))
        states.append(last)
    return torch.stack(rows), torch.stack(states)


def call(x, **options):
    return ops.elementwise_recurrence(
        x["inputs"], x["gates"], initial_state=x["initial_state"], return_state=True, **options
    )


def near(got, wanted, bound):
    torch.testing.assert_close(got.double(), wanted, rtol=bound, atol=bound)


@pytest.mark.parametrize("composed", [False, True])
@pytest.mark.parametrize("gates", [None, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize(
    ("batch", "tokens", "channels"),
    [(1, 1, 1), (2, 0, 5), (0, 4, 3), (2, 7, 64), (3, 2, 130), (1, 70, 17)],
)
def test_outputs_and_states(dtype, gates, composed, batch, tokens, channels):
    x = problem(batch, tokens, channels, dtype, gates or dtype)
    torch.ops.tarn.force_composed(composed)
    try:
        out, state = call(x)
    finally:
        torch.ops.tarn.force_composed(False)
    assert out.dtype == dtype and out.shape == x["inputs"].shape
    if batch == 0:
        assert state.shape == x["initial_state"].shape
        return
    wanted = reference(x)
    near(out, wanted[0], BOUND[dtype])
    # Whatever is rounded on its way in and out, sums are float32.
    near(state, wanted[1], min(BOUND[dtype], 2e-6))


def gradients(x, f, weights):
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in x.items()}
    out, state = f(leaves)
    ((out.double() * weights[0]).sum() + (state.double() * weights[1]).sum()).backward()
    return {name: tensor.grad for name, tensor in leaves.items()}


@pytest.mark.parametrize("composed", [False, True])
@pytest.mark.parametrize("kind", ["whole", "lengths", "packed"])
def test_gradients(composed, kind):
    x = problem(1 if kind == "packed" else 3, 69, 37, states=4 if kind == "packed" else 3)
    options = {
        "whole": {},
        "lengths": {"lengths": torch.tensor([0, 2, 69])},
        "packed": {"cu_seqlens": STARTS},
    }[kind]
    x["gates"][:, 5, ::3] = -math.inf
    x["gates"][:, 7, ::2] = -1e4
    wanted_out = reference(x, **options)
    weights = [torch.randn_like(one) for one in wanted_out]
    clean = {name: tensor.clone() for name, tensor in x.items()}
    if kind == "lengths":  # what is in pads reaches nothing
        for row, length in enumerate(options["lengths"]):
            x["inputs"][row, length:] = float("nan")
            x["gates"][row, length:] = float("nan")
            weights[0][row, length:] = 0
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


@pytest.mark.parametrize("composed", [False, True])
def test_a_sequence_keeps_its_nan(composed):
    """Neither results nor gradients of packed neighbours see it."""
    x = problem(1, 69, 5, states=4)
    x["inputs"][0, 2] = float("nan")
    leaves = {name: tensor.requires_grad_() for name, tensor in x.items()}
    torch.ops.tarn.force_composed(composed)
    try:
        out, state = call(leaves, cu_seqlens=STARTS)
        (out.sum() + state.sum()).backward()
    finally:
        torch.ops.tarn.force_composed(False)
    assert out[:, 2].isnan().all() and out[:, 3:].isfinite().all()
    assert state[0].isnan().all() and state[1:].isfinite().all()
    assert x["gates"].grad[:, 3:].isfinite().all()


def test_gradcheck_to_second_order():
    x = problem(2, 5, 3, torch.float64)
    leaves = [tensor.requires_grad_() for tensor in x.values()]

    def f(*given):
        return call(dict(zip(x, given, strict=True)), lengths=torch.tensor([5, 2]))

    assert torch.autograd.gradcheck(f, leaves)
    assert torch.autograd.gradgradcheck(f, leaves)


def test_gradients_of_gradients_begin_at_the_kernel():
    x = {name: one.requires_grad_() for name, one in problem(2, 5, 3).items()}
    first = torch.autograd.grad(call(x)[0].square().sum(), x["inputs"], create_graph=True)[0]
    second = torch.autograd.grad(first.sum(), x["gates"])[0]
    y = {name: one.detach().double().requires_grad_() for name, one in x.items()}
    first = torch.autograd.grad(call(y)[0].square().sum(), y["inputs"], create_graph=True)[0]
    near(second, torch.autograd.grad(first.sum(), y["gates"])[0], 1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_any_split_gives_the_same_bits(dtype):
    x = problem(2, 71, 70, dtype, dtype)
    whole, last = call(x)
    for cuts in ([1] * 71, [0, 5, 32, 34]):
        state, parts, at = x["initial_state"], [], 0
        for count in cuts:
            part, state = ops.elementwise_recurrence(
                x["inputs"][:, at : at + count],
                x["gates"][:, at : at + count],
                initial_state=state,
                return_state=True,
            )
            parts.append(part)
            at += count
        assert torch.equal(torch.cat(parts, 1), whole) and torch.equal(state, last)


def test_same_bits_for_any_number_of_threads_and_any_layout():
    x = problem(3, 80, 200)

    def bits(given):
        leaves = {name: tensor.detach().requires_grad_() for name, tensor in given.items()}
        out, state = call(leaves)
        grads = torch.autograd.grad(out.square().sum() + state.sum(), list(leaves.values()))
        return out, state, *grads

    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            found.append(bits(x))
    finally:
        torch.set_num_threads(before)
    strided = dict(x)
    for name in ("inputs", "gates"):
        strided[name] = torch.randn(80, 3, 2, 201)[:, :, 1, 1:].transpose(0, 1)
        strided[name].copy_(x[name])
    found.append(bits(strided))
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(other, found[0], strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_opcheck(dtype):
    x = {name: one.requires_grad_() for name, one in problem(2, 9, 5, dtype).items()}
    opcheck(OP, (x["inputs"], x["gates"], torch.tensor([4, 9]), None, x["initial_state"], True))
    row = problem(1, 69, 5, dtype, states=4)
    opcheck(OP, (row["inputs"], row["gates"], None, STARTS, row["initial_state"], True))
    if dtype == torch.float32:
        plain = [one.detach() for one in x.values()]
        flow = torch.randn(2, 9, 5), torch.randn(2, 5)
        opcheck(
            torch.ops.tarn.elementwise_recurrence_backward.default,
            (*plain[:2], None, None, plain[2], torch.empty(0), *flow),
        )


def test_compiled_whole():
    x = problem(2, 9, 5)
    compiled = torch.compile(lambda leaves: call(leaves), fullgraph=True, backend="aot_eager")
    for got, wanted in zip(compiled(x), call(x), strict=True):
        assert torch.equal(got, wanted)


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"inputs": torch.zeros(2, 9)}, ValueError, r"inputs: want \[batch, seq_len, channels\]"),
        ({"inputs": [1.0]}, TypeError, "inputs: want a tensor, got list"),
        ({"gates": torch.zeros(2, 9, 4)}, ValueError, r"gates: want \[2, 9, 5\], got \[2, 9, 4\]"),
        ({"gates": torch.zeros(2, 9, 5, dtype=torch.int64)}, TypeError, "gates: want float32"),
        ({"initial_state": torch.zeros(2, 4)}, ValueError, r"initial_state: want \[2, 5\]"),
        ({"initial_state": torch.zeros(2, 5).half()}, TypeError, "initial_state: want Float"),
        ({"lengths": torch.tensor([1, 10])}, ValueError, r"lengths\[1\]"),
        ({"lengths": torch.tensor([1.0, 2.0])}, TypeError, "lengths: want Int or Long"),
        ({"cu_seqlens": torch.tensor([0, 9])}, ValueError, "cu_seqlens: want a batch of 1"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_refusals(dtype, change, kind, words):
    given = problem(2, 9, 5) | change
    if dtype == torch.float64 and isinstance(given["inputs"], torch.Tensor):
        given["inputs"] = given["inputs"].double()
        if "Float" not in words:
            given["initial_state"] = given["initial_state"].double()
        words = words.replace("want Float", "want Double")
    with pytest.raises(kind, match=words):
        ops.elementwise_recurrence(given.pop("inputs"), given.pop("gates"), **given)
