"""How the kernels are called on CUDA: same bits, streams and graphs, steps, memory, errors."""

import cuda_problems
import pytest
import torch
from cuda_problems import DTYPES, assert_close, differentiate, gated, linear, one_of_each

from tarn import ops

NAMES = tuple(one_of_each(1))


def everything(problem, dtype=torch.bfloat16):
    x = problem.on("cuda", dtype)
    results = problem.call(x)
    sum(r.float().square().sum() for r in results).backward()
    return [r.detach() for r in results] + [
        t.grad for t in x.values() if t.is_floating_point() and t.grad is not None
    ]


@pytest.mark.parametrize("name", NAMES)
def test_kernels_serve(name):
    """The time of the device goes into the kernels, not into a composed form's products."""
    problem = one_of_each(300)[name]
    everything(problem)  # loads what the first call loads
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        everything(problem)
        torch.cuda.synchronize()
    kernels = [event.key for event in profile.key_averages()]
    ours = [key for key in kernels if "tarn::" in key]
    assert ours, kernels
    assert not any("gemm" in key for key in kernels), kernels


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_same_bits_twice(name, dtype):
    problem = one_of_each(700, group=2)[name]
    for once, again in zip(everything(problem, dtype), everything(problem, dtype), strict=True):
        assert torch.equal(once, again)


@pytest.mark.parametrize("name", NAMES)
def test_batch_changes_no_bit(name):
    problem = one_of_each(300, batch=3)[name].rounded(torch.bfloat16)
    x = problem.on("cuda", torch.bfloat16, gradients=False)
    whole = problem.call(x)
    row = problem.call({key: t[1:2] for key, t in x.items()})
    for many, one in zip(whole, row, strict=True):
        assert torch.equal(many[1:2], one)


@pytest.mark.parametrize("name", NAMES)
def test_cuda_graph(name):
    """Captured once, replayed on other numbers."""
    problem = one_of_each(150)[name]
    x = problem.on("cuda", torch.bfloat16)
    floating = [t for t in x.values() if t.is_floating_point()]

    def run():
        results = problem.call(x)
        loss = sum(r.float().sum() for r in results)
        return [*results, *torch.autograd.grad(loss, floating)]

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run()
    with torch.no_grad():
        for t in (x["queries"], x["keys"], x["values"]):
            t.copy_(t.flip(1) * 0.5)
    graph.replay()
    torch.cuda.synchronize()
    replayed = [t.detach().clone() for t in captured]
    for ours, eager in zip(replayed, run(), strict=True):
        assert torch.equal(ours, eager)


@pytest.mark.parametrize("name", NAMES)
def test_current_stream(name):
    """Work is put into the stream that is current: what comes before it there is seen."""
    problem = one_of_each(200)[name]
    x = problem.on("cuda", torch.bfloat16, gradients=False)
    wanted = problem.call(x)[0]
    late = {key: torch.zeros_like(t) if t.is_floating_point() else t for key, t in x.items()}
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        for key, t in late.items():
            t.copy_(x[key])
        ours = problem.call(late)[0]
    stream.synchronize()
    assert torch.equal(ours, wanted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_steps_are_the_sequence(name, dtype):
    problem = one_of_each(20, batch=3, group=2)[name].rounded(dtype)
    x = problem.on("cuda", dtype, gradients=False)
    wanted = [r.double().cpu() for r in problem.call(x)]
    names = ("S", "z") if name == "linear" else ("initial_state",)
    states, rows = [x[key] for key in names], []
    for t in range(20):
        token = {key: v[:, t : t + 1] for key, v in x.items() if key not in names}
        if name == "linear":
            one = [token[key][:, 0] for key in ("queries", "keys", "values")]
            out, state = ops.linear_attention_step(*one, tuple(states))
            out, states = out[:, None], [state.S, state.z]
        else:
            out, *states = problem.call({**token, "initial_state": states[0]})
        rows.append(out)
    assert_close(problem, dtype, "out", torch.cat(rows, 1).double().cpu(), wanted[0], factor=2)
    for i, state in enumerate(states):
        assert_close(problem, dtype, f"state {i}", state.double().cpu(), wanted[1 + i], factor=2)


@pytest.mark.parametrize("name", NAMES)
def test_step_leaves_the_state_it_was_given(name):
    problem = one_of_each(1, batch=4)[name]
    x = problem.on("cuda", torch.bfloat16, gradients=False)
    before = {key: t.clone() for key, t in x.items()}
    problem.call(x)
    for key, t in x.items():
        assert torch.equal(t, before[key]), key


@pytest.mark.parametrize("name", NAMES)
def test_memory(name):
    """What a training step keeps grows with the inputs, not with T K V."""
    problem = one_of_each(4096, batch=1, heads=4, d_key=128, d_value=128, state=False)[name]
    x = problem.on("cuda", torch.bfloat16)
    inputs = sum(t.numel() * t.element_size() for t in x.values())
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    results = problem.call(x)
    kept = torch.cuda.memory_allocated() - before
    # The output, denominators and a float32 state every 256 tokens at most.
    states = 4 * 4096 // 256 * 128 * 128 * 4
    assert kept <= inputs + 2 * states, (kept, inputs, states)
    del results


def test_side_by_side():
    """Queries, keys and values of one product: their gradient is one tensor."""
    torch.manual_seed(0)
    packed = torch.randn(2, 130, 3 * 4 * 32, device="cuda", dtype=torch.bfloat16)
    packed.requires_grad_()
    out = ops.linear_attention_packed(packed, 4, 32)
    out.float().square().sum().backward()
    apart = packed.detach().clone().requires_grad_()
    parts = [part.unflatten(-1, (4, 32)).contiguous() for part in apart.split(128, -1)]
    wanted = ops.linear_attention(*parts)
    wanted.float().square().sum().backward()
    assert torch.equal(out, wanted.flatten(2))
    assert torch.equal(packed.grad, apart.grad)


@pytest.mark.parametrize("name", NAMES)
def test_gradient_of_gradient(name):
    """Composed: the kernels' gradient is not differentiated."""
    problem = one_of_each(9, d_key=4, d_value=4)[name]
    x = problem.on("cuda", torch.float32)
    out = problem.call(x)[0]
    (first,) = torch.autograd.grad(out.square().sum(), x["queries"], create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), x["keys"])
    y = problem.on("cpu", torch.float64)
    out = problem.call(y)[0]
    (first,) = torch.autograd.grad(out.square().sum(), y["queries"], create_graph=True)
    (wanted,) = torch.autograd.grad(first.square().sum(), y["keys"])
    assert torch.allclose(second.cpu().double(), wanted, rtol=1e-3, atol=1e-3 * wanted.abs().max())


def test_float64_is_composed():
    for problem in one_of_each(40).values():
        ours, grads = differentiate(problem, problem.on("cuda", torch.float64))
        wanted, wanted_grads = differentiate(problem, problem.on("cpu", torch.float64))
        for a, b in zip([*ours, *grads.values()], [*wanted, *wanted_grads.values()], strict=True):
            assert torch.allclose(a, b, rtol=1e-9, atol=1e-9)


def test_errors_come_before_any_work():
    x = gated("delta", 10).on("cuda", torch.float32, gradients=False)
    with pytest.raises(ValueError, match="lengths"):
        ops.decay_attention(x["queries"], x["keys"], x["values"], lengths=torch.tensor([3, 4]))
    with pytest.raises(ValueError, match="keys"):
        ops.decay_attention(x["queries"], x["keys"][:, :5], x["values"])
    with pytest.raises(TypeError, match="values"):
        ops.delta_attention(x["queries"], x["keys"], x["values"].half(), x["betas"])
    with pytest.raises(ValueError, match="gates"):
        ops.decay_attention(x["queries"], x["keys"], x["values"], gates=x["gates"].cpu())
    y = linear(10).on("cuda", torch.float32, gradients=False)
    main = y["queries"], y["keys"], y["values"]
    with pytest.raises(ValueError, match="key_mask"):
        ops.linear_attention(*main, key_mask=torch.ones(2, 10, dtype=torch.bool))
    with pytest.raises(ValueError, match="eps"):
        ops.linear_attention(*main, denominator="compat", eps=-1.0)
    with pytest.raises(ValueError, match="keys"):
        ops.linear_attention(main[0], main[1].cpu(), main[2])
    torch.cuda.synchronize()  # no call of a kernel has failed on the way


def test_autocast():
    """Under autocast float32 tensors take the kernels of bfloat16."""
    problem = one_of_each(60)["decay"]
    x = problem.on("cuda", torch.float32, gradients=False)
    with torch.autocast("cuda", torch.bfloat16):
        out = problem.call(x)[0]
    assert out.dtype == torch.bfloat16
    narrow = {
        key: t.bfloat16() if key in ("queries", "keys", "values") else t for key, t in x.items()
    }
    assert torch.equal(out, problem.call(narrow)[0])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["decay", "gated delta", "kda"])
def test_pool_of_states(name, dtype):
    """Tokens on slots of a pool, which a graph finds where `slots` says at each replay."""
    problem = one_of_each(1, batch=4, group=2)[name].rounded(dtype)
    x = problem.on("cuda", dtype, gradients=False)
    pool = torch.randn(9, *x["initial_state"].shape[1:], device="cuda")
    slots = torch.tensor([3, -1, 0, 8], device="cuda")
    first = x["queries"], x["keys"], x["values"], x["gates"]
    if "betas" in x:
        step = lambda states: torch.ops.tarn.delta_attention_step_(  # noqa: E731
            states, *first, x["betas"], slots, 0.125
        )
    else:
        step = lambda states: torch.ops.tarn.decay_attention_step_(  # noqa: E731
            states, *first, None, slots, 0.125
        )
    states, held = pool.clone(), pool.clone()
    step(held)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step(states)
    for used in ([3, -1, 0, 8], [5, 2, -1, 1]):
        slots.copy_(torch.tensor(used))
        states.copy_(pool)
        graph.replay()
        torch.cuda.synchronize()
        for row, slot in enumerate(used):
            if slot < 0:
                assert not out[row].any()
                continue
            one = {key: t[row : row + 1] for key, t in x.items()}
            one["initial_state"] = pool[slot : slot + 1]
            same = cuda_problems.Problem(problem.op, one, {"scale": 0.125})
            wanted, state = same.call(one)
            assert torch.equal(out[row : row + 1], wanted)
            assert torch.equal(states[slot], state[0])
        rest = [slot for slot in range(9) if slot not in used]
        assert torch.equal(states[rest], pool[rest])
