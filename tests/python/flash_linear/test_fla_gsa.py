"""Gated slot attention and the additive gate against their recurrences in float64: values,
states, gradients, packed sequences, dtypes, gates of any size, refusals."""

import math

import pytest
import torch

from tarn import fla

HEADS, K, V, M = 2, 5, 3, 4
BOUND = {torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float64: 1e-12}
GRADIENT = 1e-5
FUNCTIONS = ("chunk_gsa", "fused_recurrent_gsa")
BOUNDS = [0, 7, 7, 26]


def gate_loop(x, z=None):
    """Token by token, as quotients of sums; z [B, 1, H, K]."""
    total = x.new_zeros(x.shape[0], *x.shape[2:]) if z is None else z.squeeze(1).exp()
    keys, gates = [], []
    for t in range(x.shape[1]):
        before, total = total, total + x[:, t].exp()
        keys.append(x[:, t].exp() / total)
        gates.append(torch.where(before > 0, before / total, 1.0).log())
    if not keys:
        return x, x, total.log().unsqueeze(1)
    return torch.stack(keys, 1), torch.stack(gates, 1), total.log().unsqueeze(1)


def loop(q, k, v, s, g=None, W=None, S=None, scale=K**-0.5, reverse=False):
    """Zhang et al. 2024, eq. 10 to 12: two recurrences, a softmax over slots."""
    if g is None:
        s, g, _ = gate_loop(s)
    group = q.shape[2] // k.shape[2]
    W = v.new_zeros(q.shape[0], k.shape[2], K, M) if W is None else W
    S = v.new_zeros(q.shape[0], k.shape[2], M, V) if S is None else S
    rows = [None] * q.shape[1]
    for t in reversed(range(len(rows))) if reverse else range(len(rows)):
        decay = g[:, t].exp()
        W = W * decay.unsqueeze(2) + k[:, t].unsqueeze(3) * s[:, t].unsqueeze(2)
        S = S * decay.unsqueeze(3) + s[:, t].unsqueeze(3) * v[:, t].unsqueeze(2)
        scores = scale * torch.einsum("bhkm,bhk->bhm", W.repeat_interleave(group, 1), q[:, t])
        p = scores.exp() / scores.exp().sum(-1, keepdim=True)
        rows[t] = torch.einsum("bhmv,bhm->bhv", S.repeat_interleave(group, 1), p)
    return (torch.stack(rows, 1) if rows else v.new_zeros(*q.shape[:3], V)), W, S


def draw(tokens, batch=2, gated=True, group=1, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def normal(*sizes):
        return torch.randn(*sizes, generator=generator, dtype=torch.float64)

    row = (batch, tokens, HEADS)
    x = dict(
        q=normal(batch, tokens, HEADS * group, K),
        k=normal(*row, K),
        v=normal(*row, V),
        s=normal(*row, M),
    )
    if gated:
        x["g"] = -normal(*row, M).abs() / 4
        x["s"] = 1 - x["g"].exp()
    return x, (normal(batch, HEADS, K, M), normal(batch, HEADS, M, V))


def cast(x, dtype):
    """As the function takes them, and as the loop does."""
    ours = {n: one.to(dtype) for n, one in x.items()}
    return ours, {n: one.double() for n, one in ours.items()}


def error(ours, theirs):
    ours, theirs = ours.detach().double(), theirs.detach().double()
    assert ours.shape == theirs.shape
    return float((ours - theirs).norm() / max(float(theirs.norm()), 1e-30))


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("tokens", [0, 1, 17, 70])
@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_states(name, dtype, tokens, gated):
    x, state = draw(tokens, gated=gated)
    ours, theirs = cast(x, dtype)
    state = [one if dtype == torch.float64 else one.float() for one in state]
    out, last = getattr(fla, name)(**ours, initial_state=tuple(state), output_final_state=True)
    o, *wanted = loop(**theirs, W=state[0].double(), S=state[1].double())
    assert out.dtype == dtype and error(out, o) <= BOUND[dtype]
    for one, other, given in zip(last, wanted, state, strict=True):
        assert one.dtype == given.dtype and one.is_contiguous()
        assert error(one, other) <= (1e-12 if dtype == torch.float64 else 2e-6)
    out, last = getattr(fla, name)(**ours, scale=0.3)
    assert tuple(last) == (None, None)
    assert error(out, loop(**theirs, scale=0.3)[0]) <= BOUND[dtype]


def test_groups_of_queries():
    x, state = draw(21, group=3)
    ours, theirs = cast(x, torch.float32)
    state = tuple(one.float() for one in state)
    out, last = fla.chunk_gsa(**ours, initial_state=state, output_final_state=True)
    o, *wanted = loop(**theirs, W=state[0].double(), S=state[1].double())
    assert error(out, o) <= 2e-6
    assert all(error(one, other) <= 2e-6 for one, other in zip(last, wanted, strict=True))


def test_half_a_state():
    x, (W, S) = draw(9)
    ours, theirs = cast(x, torch.float64)
    for given in ((W, None), (None, S), (None, None)):
        out, _ = fla.chunk_gsa(**ours, initial_state=given)
        assert error(out, loop(**theirs, W=given[0], S=given[1])[0]) <= 1e-12


@pytest.mark.parametrize("kind", ["gated", "grouped", "ABC", "of any size"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_reach_every_tensor(name, kind):
    if kind == "grouped" and name != "chunk_gsa":
        return
    x, (W, S) = draw(37, gated=kind != "ABC", group=2 if kind == "grouped" else 1)
    if kind == "of any size":
        x["g"][:, 3], x["g"][:, 21, 0], x["g"][:, 22] = -math.inf, -1e4, -104.0
    x |= dict(W=W, S=S)
    ours, theirs = (
        {n: one.to(dtype).requires_grad_() for n, one in x.items()}
        for dtype in (torch.float32, torch.float64)
    )
    state = (ours["W"], ours["S"])
    out, last = getattr(fla, name)(
        **{n: one for n, one in ours.items() if n not in "WS"},
        initial_state=state,
        output_final_state=True,
    )
    o, *wanted = loop(**theirs)

    def gradients(out, last, of):
        loss = out.double().square().sum() + sum(one.double().sin().sum() for one in last)
        return torch.autograd.grad(loss, list(of.values()))

    assert error(out, o) <= 2e-6
    for argument, one, other in zip(
        ours, gradients(out, last, ours), gradients(o, wanted, theirs), strict=True
    ):
        assert one.isfinite().all() and error(one, other) <= GRADIENT, argument


def test_gradients_of_gradients():
    x, state = draw(4, batch=1)
    tensors = [one.requires_grad_() for one in (*x.values(), *state)]

    def call(*one):
        out, last = fla.chunk_gsa(*one[:5], initial_state=one[5:], output_final_state=True)
        return out, *last

    assert torch.autograd.gradcheck(call, tensors)
    assert torch.autograd.gradgradcheck(call, tensors)


def test_recorded_gradients_of_arguments_that_share_one():
    x = torch.randn(1, 9, 2, 4, dtype=torch.float64, requires_grad=True)

    def shared(x):
        q = x.sin()
        out, last = fla.chunk_gsa(
            q, q * x, x.tanh(), x.sigmoid(), -x.square(), output_final_state=True
        )
        return out.square().sum() + sum(one.sin().sum() for one in last)

    (plain,) = torch.autograd.grad(shared(x), x)
    (recorded,) = torch.autograd.grad(shared(x), x, create_graph=True)
    torch.testing.assert_close(recorded, plain)


def test_inference_mode_and_transforms_give_the_same():
    ours, _ = cast(draw(30)[0], torch.float64)
    out, last = fla.chunk_gsa(**ours, output_final_state=True)
    with torch.inference_mode():
        same, same_last = fla.chunk_gsa(**ours, output_final_state=True)
    assert error(same, out) <= 1e-14
    assert all(error(*pair) <= 1e-14 for pair in zip(same_last, last, strict=True))

    def loss(q):
        return fla.chunk_gsa(**{**ours, "q": q})[0].square().sum()

    q = ours["q"].clone().requires_grad_()
    (wanted,) = torch.autograd.grad(loss(q), q)
    assert error(torch.func.grad(loss)(ours["q"]), wanted) <= 1e-12


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("reverse", [False, True])
def test_packed_sequences(gated, reverse):
    x, _ = draw(26, batch=1, gated=gated)
    ours, theirs = cast(x, torch.float32)
    _, state = draw(0, batch=3)
    options = dict(
        cu_seqlens=torch.tensor(BOUNDS),
        output_final_state=True,
        initial_state=tuple(one.float() for one in state),
    )
    options |= dict(reverse=True) if reverse else {}
    function = fla.fused_recurrent_gsa if reverse else fla.chunk_gsa
    out, last = function(**ours, **options)
    for i, (begin, end) in enumerate(zip(BOUNDS[:-1], BOUNDS[1:], strict=True)):
        own = {n: one[:, begin:end] for n, one in theirs.items()}
        o, *wanted = loop(**own, W=state[0][i : i + 1], S=state[1][i : i + 1], reverse=reverse)
        for one, other in zip(last, wanted, strict=True):
            assert error(one[i : i + 1], other) <= 2e-6
        assert begin == end or error(out[:, begin:end], o) <= 2e-6


# ---- The gate.


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_additive_gate(packed, given):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(1 if packed else 2, 26, HEADS, K, generator=generator) * 3
    z = torch.randn(3 if packed else 2, 1, HEADS, K, generator=generator) if given else None
    bounds = torch.tensor(BOUNDS) if packed else None
    k, g, last = fla.fused_additive_gate(x, z, bounds)
    for i in range(last.shape[0]):
        begin, end = (BOUNDS[i], BOUNDS[i + 1]) if packed else (0, 26)
        row = x[:, begin:end] if packed else x[i : i + 1]
        wanted = gate_loop(row.double(), None if z is None else z[i : i + 1].double())
        found = (k[:, begin:end], g[:, begin:end]) if packed else (k[i : i + 1], g[i : i + 1])
        if not given and begin == end:
            assert (last[i] == -math.inf).all()
            continue
        assert error(last[i : i + 1], wanted[2]) <= 2e-6
        assert all(error(*pair) <= 2e-6 for pair in zip(found, wanted[:2], strict=True))


def test_additive_gate_of_large_and_missing_numbers():
    """Numbers 68 apart, and tokens of -inf, which add nothing and keep what there is."""
    x = torch.tensor([-math.inf, -math.inf, -60, 8, -math.inf, 8]).view(1, 6, 1, 1)
    x.requires_grad_()
    k, g, z = fla.fused_additive_gate(x)
    torch.testing.assert_close(k.flatten(), torch.tensor([0.0, 0, 1, 1, 0, 0.5]))
    torch.testing.assert_close(g.flatten(), torch.tensor([0.0, 0, 0, -68, 0, -math.log(2)]))
    torch.testing.assert_close(z.flatten(), torch.tensor([8 + math.log(2)]))
    (found,) = torch.autograd.grad((k * torch.arange(6).view(1, 6, 1, 1)).sum() + z.sum(), x)
    torch.testing.assert_close(
        found.flatten(), torch.tensor([0, 0, 0, 0.5 - 5 / 4, 0, 0.5 + 5 / 4])
    )
    assert fla.fused_additive_gate(x[:, :2])[2].item() == -math.inf


def test_additive_gate_gradients_and_dtypes():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(1, 6, 1, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    z = torch.randn(2, 1, 1, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    bounds = torch.tensor([0, 2, 6])
    assert torch.autograd.gradcheck(fla.fused_additive_gate, (x, z, bounds))
    assert torch.autograd.gradgradcheck(fla.fused_additive_gate, (x, z, bounds))
    k, g, last = fla.fused_additive_gate(x.half(), gate_dtype=torch.float32)
    assert (k.dtype, g.dtype, last.dtype) == (torch.float16, torch.float32, torch.float32)
    k, g, last = fla.fused_additive_gate(x[:, :0], cu_seqlens=torch.tensor([0]))
    assert k.shape == g.shape == (1, 0, 1, 2) and last.shape == (0, 1, 1, 2)


def test_refusals():
    x, (W, S) = draw(6)
    for change, error_type, message in (
        (dict(k=x["k"][:, :, :, 1:]), ValueError, r"k: want \[2, 6, 2, 5\], got \[2, 6, 2, 4\]"),
        (dict(s=x["s"][:, 1:]), ValueError, r"s: want \[2, 6, 2, 4\], got \[2, 5, 2, 4\]"),
        (dict(g=x["v"]), ValueError, r"g: want \[2, 6, 2, 4\], got \[2, 6, 2, 3\]"),
        (dict(initial_state=W), TypeError, "initial_state: want a pair"),
        (dict(initial_state=(S, W)), ValueError, r"initial_state\[0\]: want \[2, 2, 5, 4\]"),
        (dict(initial_state=(W, W)), ValueError, r"initial_state\[1\]: want \[2, 2, 4, 3\]"),
        (dict(cu_seqlens=torch.tensor([0, 6])), ValueError, "a batch of 1, got 2"),
        (dict(checkpoint_level=3), ValueError, "checkpoint_level: want 0, 1 or 2, got 3"),
        (dict(chunk_size=3), ValueError, "chunk_size: want a power of 2, got 3"),
    ):
        with pytest.raises(error_type, match="chunk_gsa: .*" + message):
            fla.chunk_gsa(**{**x, **change})
    x, _ = draw(6, group=2)
    with pytest.raises(ValueError, match=r"fused_recurrent_gsa: k: want \[2, 6, 4, 5\]"):
        fla.fused_recurrent_gsa(**x)
    one = x["s"][:1]
    for bounds in ([0, 4, 3, 6], [1, 6], [0, 7], []):
        with pytest.raises(ValueError, match="fused_additive_gate: cu_seqlens: want 0, ..., 6"):
            fla.fused_additive_gate(one, cu_seqlens=torch.tensor(bounds, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"initial_state: want \[2, 1, 2, 4\], got \[1, 1, 2, 4\]"):
        fla.fused_additive_gate(x["s"], one[:, :1])
