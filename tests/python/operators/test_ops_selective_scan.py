"""tarn.ops.selective_scan against a loop over tokens in float64: outputs, states, gradients of
every input, by the kernel and by the composed form."""

import pytest
import torch
from torch.library import opcheck

from tarn import ops

OP = torch.ops.tarn.selective_scan.default
# A few roundings of float32; what halves are rounded to, relative to their size.
BOUND = {torch.float32: 5e-6, torch.bfloat16: 2e-2, torch.float16: 3e-3, torch.float64: 1e-12}
STARTS = torch.tensor([0, 3, 3, 4, 41])
NAMES = ("inputs", "steps", "rates", "keys", "queries")


def problem(batch, tokens, channels, states=4, dtype=torch.float32, steps=None, count=None):
    torch.manual_seed(channels + tokens)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    return {
        "inputs": torch.randn(batch, tokens, channels).to(dtype),
        "steps": torch.rand(batch, tokens, channels).to(steps or dtype),
        "rates": -torch.rand(channels, states, dtype=wide) * 2,
        "keys": torch.randn(batch, tokens, states).to(dtype),
        "queries": torch.randn(batch, tokens, states).to(dtype),
        "skip": torch.randn(channels, dtype=wide),
        "initial_state": torch.randn(count or batch, channels, states, dtype=wide),
    }


def one(x, steps, rates, keys, queries, skip, state):
    """A sequence, a token at a time: outputs [T, D] and the state after it."""
    out = []
    for token, step, key, query in zip(x, steps, keys, queries, strict=True):
        state = (step[:, None] * rates).exp() * state + (step * token)[:, None] * key
        out.append((state * query).sum(1) + skip * token)
    return (torch.stack(out) if out else x), state


def reference(x, lengths=None, cu_seqlens=None):
    x = {name: tensor.double() for name, tensor in x.items()}
    rows = ("inputs", "steps", "keys", "queries")

    def sequence(batch, first, end, n):
        given = {name: x[name][batch, first:end] for name in rows}
        return one(
            given["inputs"], given["steps"], x["rates"], given["keys"], given["queries"],
            x["skip"], x["initial_state"][n],
        )  # fmt: skip

    if cu_seqlens is not None:
        bounds = zip(cu_seqlens[:-1], cu_seqlens[1:], strict=True)
        pieces = [sequence(0, a, b, n) for n, (a, b) in enumerate(bounds)]
        return torch.cat([out for out, _ in pieces])[None], torch.stack([s for _, s in pieces])
    batch, tokens = x["inputs"].shape[:2]
    lengths = [tokens] * batch if lengths is None else lengths.tolist()
    found = [sequence(b, 0, length, b) for b, length in enumerate(lengths)]
    outs = [
        torch.cat([out, torch.zeros_like(x["inputs"][b, length:])])
        for b, (length, (out, _)) in enumerate(zip(lengths, found, strict=True))
    ]
    return torch.stack(outs), torch.stack([state for _, state in found])


def call(x, **options):
    required = (x[name] for name in NAMES)
    rest = {name: x[name] for name in ("skip", "initial_state")}
    return ops.selective_scan(*required, **rest, return_state=True, **options)


def near(got, wanted, bound):
    torch.testing.assert_close(got.double(), wanted, rtol=bound, atol=bound)


def near_by_row(got, wanted, bound):
    """Relative to the largest number of each row: a step of 10,000 makes some large."""
    wanted = wanted.double()
    size = wanted.abs().amax(-1, keepdim=True).clamp(min=1)
    near(got.double() / size, wanted / size, bound)


@pytest.mark.parametrize("composed", [False, True])
@pytest.mark.parametrize("steps", [None, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize(
    ("batch", "tokens", "channels", "states"),
    [(1, 1, 1, 1), (2, 0, 5, 3), (0, 4, 3, 2), (2, 7, 64, 16), (3, 2, 130, 5), (1, 37, 17, 16)],
)
def test_outputs_and_states(dtype, steps, composed, batch, tokens, channels, states):
    x = problem(batch, tokens, channels, states, dtype, steps)
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
    near(state, wanted[1], min(BOUND[dtype], 5e-6))


def gradients(x, f, weights):
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in x.items()}
    out, state = f(leaves)
    ((out.double() * weights[0]).sum() + (state.double() * weights[1]).sum()).backward()
    return {name: tensor.grad for name, tensor in leaves.items()}


@pytest.mark.parametrize("composed", [False, True])
@pytest.mark.parametrize("kind", ["whole", "lengths", "packed"])
def test_gradients(composed, kind):
    packed = kind == "packed"
    x = problem(1 if packed else 3, 41, 37, count=4 if packed else 3)
    options = {
        "whole": {},
        "lengths": {"lengths": torch.tensor([0, 2, 41])},
        "packed": {"cu_seqlens": STARTS},
    }[kind]
    x["steps"][:, 5, ::3] = 1e4
    wanted_out = reference(x, **options)
    weights = [torch.randn_like(one) for one in wanted_out]
    clean = {name: tensor.clone() for name, tensor in x.items()}
    if kind == "lengths":  # what is in pads reaches nothing
        for row, length in enumerate(options["lengths"]):
            for name in ("inputs", "steps", "keys", "queries"):
                x[name][row, length:] = float("nan")
            weights[0][row, length:] = 0
    wanted = gradients(clean, lambda leaves: reference(leaves, **options), weights)
    torch.ops.tarn.force_composed(composed)
    try:
        out = call(x, **options)
        got = gradients(x, lambda leaves: call(leaves, **options), weights)
    finally:
        torch.ops.tarn.force_composed(False)
    for ours, theirs in zip(out, wanted_out, strict=True):
        near_by_row(ours, theirs, 5e-6)
    for name, gradient in wanted.items():
        near_by_row(got[name], gradient, 2e-5)


@pytest.mark.parametrize("composed", [False, True])
def test_a_sequence_keeps_its_nan(composed):
    """Neither results nor gradients of packed neighbours see it."""
    x = problem(1, 41, 5, count=4)
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
    assert x["steps"].grad[:, 3:].isfinite().all()


def test_gradcheck_to_second_order():
    x = problem(2, 4, 2, 2, torch.float64)
    leaves = [tensor.requires_grad_() for tensor in x.values()]

    def f(*given):
        return call(dict(zip(x, given, strict=True)), lengths=torch.tensor([4, 2]))

    assert torch.autograd.gradcheck(f, leaves)
    assert torch.autograd.gradgradcheck(f, leaves)


def test_gradients_of_gradients_begin_at_the_kernel():
    x = {name: one.requires_grad_() for name, one in problem(2, 5, 3).items()}
    first = torch.autograd.grad(call(x)[0].square().sum(), x["inputs"], create_graph=True)[0]
    second = torch.autograd.grad(first.sum(), x["steps"])[0]
    y = {name: one.detach().double().requires_grad_() for name, one in x.items()}
    first = torch.autograd.grad(call(y)[0].square().sum(), y["inputs"], create_graph=True)[0]
    near(second, torch.autograd.grad(first.sum(), y["steps"])[0], 1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_any_split_gives_the_same_bits(dtype):
    x = problem(2, 41, 70, dtype=dtype)
    whole, last = call(x)
    for cuts in ([1] * 41, [0, 5, 16, 20]):
        state, parts, at = x["initial_state"], [], 0
        for count in cuts:
            piece = dict(x, initial_state=state)
            for name in ("inputs", "steps", "keys", "queries"):
                piece[name] = x[name][:, at : at + count]
            part, state = call(piece)
            parts.append(part)
            at += count
        assert torch.equal(torch.cat(parts, 1), whole) and torch.equal(state, last)


def test_same_bits_for_any_number_of_threads_and_any_layout():
    x = problem(3, 50, 200)

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
    for name in ("inputs", "steps", "keys", "queries"):
        width = x[name].shape[2]
        strided[name] = torch.randn(50, 3, 2, width + 1)[:, :, 1, 1:].transpose(0, 1)
        strided[name].copy_(x[name])
    found.append(bits(strided))
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(other, found[0], strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_opcheck(dtype):
    x = {name: one.requires_grad_() for name, one in problem(2, 9, 5, dtype=dtype).items()}
    rows = [x[name] for name in NAMES]
    opcheck(OP, (*rows, x["skip"], torch.tensor([4, 9]), None, x["initial_state"], True))
    if dtype == torch.float32:
        row = problem(1, 41, 5, count=4)
        rows = [row[name] for name in NAMES]
        opcheck(OP, (*rows, None, None, STARTS, row["initial_state"], True))
        plain = [one.detach() for one in x.values()]
        flow = torch.randn(2, 9, 5), torch.randn(2, 5, 4)
        opcheck(
            torch.ops.tarn.selective_scan_backward.default,
            (*plain[:6], None, None, plain[6], torch.empty(0), *flow),
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
        ({"steps": torch.zeros(2, 9, 4)}, ValueError, r"steps: want \[2, 9, 5\], got \[2, 9, 4\]"),
        ({"rates": torch.zeros(5, 3)}, ValueError, r"rates: want \[5, 4\], got \[5, 3\]"),
        ({"keys": torch.zeros(2, 9, 129)}, ValueError, "1 to 128 states"),
        ({"queries": torch.zeros(2, 9, 3)}, ValueError, r"queries: want \[2, 9, 4\]"),
        ({"skip": torch.zeros(4)}, ValueError, r"skip: want \[5\], got \[4\]"),
        ({"steps": torch.zeros(2, 9, 5, dtype=torch.int64)}, TypeError, "steps: want float32"),
        ({"initial_state": torch.zeros(2, 4, 4)}, ValueError, r"initial_state: want \[2, 5, 4\]"),
        ({"lengths": torch.tensor([1, 10])}, ValueError, r"lengths\[1\]"),
        ({"cu_seqlens": torch.tensor([0, 9])}, ValueError, "cu_seqlens: want a batch of 1"),
    ],
)
def test_refusals(change, kind, words):
    given = problem(2, 9, 5) | change
    required = [given.pop(name) for name in NAMES]
    with pytest.raises(kind, match=words):
        ops.selective_scan(*required, **given)
