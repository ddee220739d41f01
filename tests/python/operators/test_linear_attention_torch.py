"""How the operators behave inside torch: operator checks, gradients of any
order in float64, compilation, saved memory, threads."""

import pytest
import torch
from linear_attention_reference import make_problem
from torch.autograd import gradcheck, gradgradcheck
from torch.library import opcheck

from tarn.ops import linear_attention, linear_attention_step

FORWARD = torch.ops.tarn.linear_attention.default
BACKWARD = torch.ops.tarn.linear_attention_backward.default
STEP = torch.ops.tarn.linear_attention_step.default

B, T, H, HV, K, V = 2, 19, 2, 4, 3, 5


def arguments(dtype, batch=B, rows=None, state=False, requires_grad=True, length=T):
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    rows = batch if rows is None else rows
    tensors = [
        torch.randn(batch, length, H, K).to(dtype),
        torch.randn(batch, length, H, K).to(dtype),
        torch.randn(batch, length, HV, V).to(dtype),
    ]
    states = [torch.rand(rows, HV, K, V, dtype=wide), torch.rand(rows, HV, K, dtype=wide)]
    every = tensors + (states if state else [])
    return [x.requires_grad_(requires_grad) for x in every]


# ---- Operator checks: schema, autograd registration, fake tensors, AOT autograd.


# float64 composes many operators a token, whose tracing takes seconds: only the
# richest kind, and few tokens.
@pytest.mark.parametrize(
    "kind, dtype",
    [(k, torch.float32) for k in ("plain", "masked", "packed", "not-causal")]
    + [("masked", torch.bfloat16), ("masked", torch.float64)],
)
def test_opcheck_forward(kind, dtype):
    if kind == "plain":
        opcheck(FORWARD, arguments(dtype))
    elif kind == "masked":
        length = 5 if dtype == torch.float64 else T
        q, k, v, S, z = arguments(dtype, state=True, length=length)
        lengths = torch.tensor([4, length - 2])
        call = (q, k, v, torch.rand(B, length) > 0.3, lengths, None, S, z)
        opcheck(FORWARD, call, dict(return_state=True, causal_offset=-2))
    elif kind == "packed":
        q, k, v, S, z = arguments(dtype, batch=1, rows=3, state=True)
        call = (q, k, v, None, None, torch.tensor([0, 3, 3, 19]), S, z)
        opcheck(FORWARD, call, dict(return_state=True))
    else:
        options = dict(causal=False, denominator="compat", scale=0.5)
        opcheck(FORWARD, arguments(dtype), options)


@pytest.mark.parametrize("state", [False, True])
def test_opcheck_backward(state):
    tensors = arguments(torch.float32, state=state, requires_grad=False)
    q, k, v, S, z = tensors if state else (*tensors, None, None)
    out, final_S, final_z, denominators = FORWARD(
        q, k, v, None, None, None, S, z, return_state=True
    )
    grads = [torch.randn_like(x) for x in (out, final_S, final_z)]
    opcheck(BACKWARD, (q, k, v, None, None, None, S, z, out, denominators, *grads))


@pytest.mark.parametrize(
    "dtype, state, requires_grad",
    [
        (torch.float32, False, False),
        (torch.float32, True, False),
        (torch.float32, True, True),
        (torch.float64, False, False),
    ],
)
def test_opcheck_step(dtype, state, requires_grad):
    q, k, v, *rest = arguments(dtype, state=state, requires_grad=requires_grad)
    row = [x[:, 0].detach().requires_grad_(requires_grad) for x in (q, k, v)]
    opcheck(STEP, (*row, *rest))


# ---- float64: gradients of first and second order.


def outputs(queries, keys, values, S=None, z=None, **options):
    state = None if S is None else (S, z)
    out, final = linear_attention(
        queries, keys, values, initial_state=state, return_state=True, **options
    )
    return out, final.S, final.z


@pytest.mark.parametrize(
    "options",
    [
        dict(),
        dict(causal_offset=2, denominator="compat", eps=0.1),
        dict(causal=False, denominator="none", scale=0.3),
        dict(key_lengths=torch.tensor([3, 0])),
    ],
    ids=["causal", "offset-compat", "none", "lengths"],
)
def test_gradcheck_float64(options):
    call = [x.detach()[:, :5].requires_grad_() for x in arguments(torch.float64)]
    states = arguments(torch.float64, state=True)[3:]
    assert gradcheck(lambda *x: outputs(*x, **options), (*call, *states))


def test_gradcheck_float64_packed_twice():
    call = [x.detach()[:1, :3].requires_grad_() for x in arguments(torch.float64)]
    states = arguments(torch.float64, rows=3, state=True)[3:]
    options = dict(cu_seqlens=torch.tensor([0, 2, 2, 3]))
    assert gradcheck(lambda *x: outputs(*x, **options), (*call, *states))
    assert gradgradcheck(lambda *x: outputs(*x, **options), (*call, *states))


def test_gradcheck_float64_step():
    q, k, v, S, z = arguments(torch.float64, state=True)
    row = [x.detach()[:, 0].requires_grad_() for x in (q, k, v)]

    def step(queries, keys, values, S, z):
        out, new = linear_attention_step(queries, keys, values, (S, z))
        return out, new.S, new.z

    assert gradcheck(step, (*row, S, z))


def test_step_gradient_equals_the_sequence_of_one():
    q, k, v, S, z = arguments(torch.float32, state=True)
    out, new = linear_attention_step(q[:, 0], k[:, 0], v[:, 0], (S, z))
    given = torch.autograd.grad(out.sum() + new.S.sum(), (q, k, v, S, z))
    out, final = linear_attention(
        q[:, :1], k[:, :1], v[:, :1], initial_state=(S, z), return_state=True
    )
    wanted = torch.autograd.grad(out.sum() + final.S.sum(), (q, k, v, S, z))
    for a, b in zip(given, wanted):
        assert torch.equal(a, b)


# ---- Compilation.


@pytest.mark.parametrize(
    "dtype, dynamic",
    [(torch.float32, False), (torch.float32, True), (torch.float64, False)],
)
def test_compiles_without_graph_breaks(dtype, dynamic):
    def layer(queries, keys, values, S, z, mask, offset):
        return outputs(queries, keys, values, S, z, key_mask=mask, causal_offset=offset)

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for offset in (1, -3):
        call = arguments(dtype, state=True)
        mask = torch.rand(B, T) > 0.2
        given, wanted = (f(*call, mask, offset) for f in (compiled, layer))
        for a, b in zip(given, wanted):
            torch.testing.assert_close(a, b)
        grads = [
            torch.autograd.grad(r, call, [torch.ones_like(x) for x in r]) for r in (given, wanted)
        ]
        for a, b in zip(*grads):
            torch.testing.assert_close(a, b)


def test_step_compiles():
    def step(queries, keys, values, state):
        return linear_attention_step(queries, keys, values, state)

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    q, k, v, S, z = arguments(torch.float32, state=True, requires_grad=False)
    for state in (None, (S, z)):
        out, new = compiled(q[:, 0], k[:, 0], v[:, 0], state)
        wanted, wanted_new = linear_attention_step(q[:, 0], k[:, 0], v[:, 0], state)
        assert torch.equal(out, wanted) and torch.equal(new.S, wanted_new.S)


def test_meta_tensors_give_shapes():
    q, k, v = (x.to("meta") for x in arguments(torch.bfloat16, requires_grad=False))
    out, state = linear_attention(q, k, v, return_state=True)
    assert out.shape == (B, T, HV, V) and out.dtype == torch.bfloat16
    assert state.S.shape == (B, HV, K, V) and state.S.dtype == torch.float32
    out, state = linear_attention_step(q[:, 0], k[:, 0], v[:, 0])
    assert out.shape == (B, HV, V) and state.z.shape == (B, HV, K)


# ---- Memory and threads.


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("state", [False, True])
def test_saved_bytes_are_bounded(dtype, state):
    """Inputs, output, denominators, states and at most one float32 state for
    every 256 tokens; nothing that grows with T x T or T x K x V."""
    B, T, H, HV, K, V = 2, 1000, 2, 4, 32, 64
    problem = make_problem(B=B, T=T, H=H, HV=HV, K=K, V=V, dtype=dtype, state=state)
    saved = []

    def pack(tensor):
        saved.append(tensor.numel() * tensor.element_size())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out, S, z = problem.run()

    def size(tensor):
        return tensor.numel() * tensor.element_size()

    inputs = sum(size(x) for x in problem.tensors.values())
    denominators = 4 * B * T * HV
    checkpoints = 4 * K * V * B * T * HV // 256
    assert 0 < sum(saved) <= inputs + size(out) + denominators + checkpoints + size(S) + size(z)


def test_inside_autograd_threads():
    """Calls from several Python threads at once give the same bits."""
    from concurrent.futures import ThreadPoolExecutor

    torch.set_num_threads(2)
    problem = make_problem(B=2, T=200, H=4, K=16, V=16)

    def work(_):
        out = problem.run()[0]
        return out, torch.autograd.grad(out.sum(), problem.tensors["keys"])[0]

    wanted = work(0)
    with ThreadPoolExecutor(4) as pool:
        for out, grad in pool.map(work, range(16)):
            assert torch.equal(out, wanted[0]) and torch.equal(grad, wanted[1])
