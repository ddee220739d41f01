"""tarn.ops.rg_lru and tarn.ops.mlstm against loops over tokens in float64: outputs, states,
gradients of every input, by the kernels and by the composed form."""

import contextlib

import pytest
import torch
from torch.library import opcheck

from tarn import ops

# A few roundings of float32 in exponents; what halves are rounded to, relative to their size.
BOUND = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3, torch.float64: 1e-11}
STARTS = torch.tensor([0, 3, 3, 4, 39])
LENGTHS = torch.tensor([0, 2, 39])
KINDS = {"whole": {}, "lengths": {"lengths": LENGTHS}, "packed": {"cu_seqlens": STARTS}}
CAP, SCALE = 6.0, 0.4


def lru_problem(batch, tokens, channels, dtype=torch.float32, states=None):
    torch.manual_seed(channels + tokens)
    rows, wide = (batch, tokens, channels), torch.promote_types(dtype, torch.float32)
    return {
        "inputs": torch.randn(rows).to(dtype),
        "input_gates": torch.randn(rows).to(dtype),
        "recurrence_gates": (2 * torch.randn(rows)).to(dtype),
        "Lambda": torch.randn(channels).to(wide),
        "input_bias": torch.randn(channels).to(wide),
        "recurrence_bias": torch.randn(channels).to(wide),
        "initial_state": torch.randn(states or batch, channels).to(wide),
    }


def cell_problem(batch, tokens, heads, dtype=torch.float32, states=None):
    torch.manual_seed(heads + tokens)
    rows, wide = (batch, tokens, heads), torch.promote_types(dtype, torch.float32)
    return {
        "queries": torch.randn(*rows, 5).to(dtype),
        "keys": torch.randn(*rows, 5).to(dtype),
        "values": torch.randn(*rows, 7).to(dtype),
        "input_gates": (2 * torch.randn(rows)).to(dtype),
        "forget_gates": (2 * torch.randn(rows) + 1).to(dtype),
        "input_bias": torch.randn(heads).to(wide),
        "forget_bias": torch.randn(heads).to(wide),
        "S": torch.randn(states or batch, heads, 5, 8).to(wide),
    }


def lru_call(x, **options):
    *first, state = x.values()
    return ops.rg_lru(*first, initial_state=state, return_state=True, **options)


def cell_call(x, **options):
    """The state without m, as the loop has it."""
    *first, S = x.values()
    m = torch.full_like(S[:, :, 0, 0], 0.25)
    out, (S, m) = ops.mlstm(
        *first,
        softcap=CAP,
        scale=SCALE,
        eps=0.0,  # which would be exp(m) times as large in the loop
        initial_state=(S, m),
        return_state=True,
        **options,
    )
    return out, S * m.exp()[..., None, None]


def lru_loop(x, n, tokens, state):
    inputs, p_i, p_r, Lambda, b_i, b_r = (one.double() for one in list(x.values())[:6])
    out = []
    for t in tokens:
        i, r = torch.sigmoid(p_i[n, t] + b_i), torch.sigmoid(p_r[n, t] + b_r)
        g = -8 * torch.nn.functional.softplus(Lambda) * r
        state = g.exp() * state + (-torch.expm1(2 * g)).sqrt() * i * inputs[n, t]
        out.append(state)
    return out, state


def cell_loop(x, n, tokens, state):
    """Exponentials without a maximum, which float64 holds; begins with the S of m = 0.25."""
    queries, keys, values, p_i, p_f, b_i, b_f = (one.double() for one in list(x.values())[:7])
    out, state = [], state * torch.tensor(0.25, dtype=torch.float64).exp()
    for t in tokens:
        i = CAP * torch.tanh((p_i[n, t] + b_i) / CAP)
        f = CAP * torch.tanh((p_f[n, t] + b_f) / CAP)
        value = torch.nn.functional.pad(values[n, t], (0, 1), value=1.0)
        new = i.exp()[:, None, None] * keys[n, t][:, :, None] * value[:, None]
        state = torch.sigmoid(f)[:, None, None] * state + new
        read = SCALE * torch.einsum("hk,hkv->hv", queries[n, t], state)
        out.append(read[:, :-1] / read[:, -1:].abs().clamp_min(1))
    return out, state


def reference(loop, x, lengths=None, cu_seqlens=None):
    rows, states = [], []
    last = list(x.values())[-1].double()
    like = (x["values"] if "values" in x else x["inputs"]).double()
    if cu_seqlens is not None:
        spans = [(0, range(a, b)) for a, b in zip(cu_seqlens[:-1], cu_seqlens[1:], strict=True)]
    else:
        counts = [like.shape[1]] * len(like) if lengths is None else lengths.tolist()
        spans = [(n, range(count)) for n, count in enumerate(counts)]
    for s, (n, tokens) in enumerate(spans):
        out, state = loop(x, n, tokens, last[s])
        pads = 0 if cu_seqlens is not None else like.shape[1] - len(tokens)
        rows.append(
            torch.stack([*out, *[torch.zeros_like(like[0, 0])] * pads])
            if out or pads
            else like[n, :0]
        )
        states.append(state)
    together = torch.cat(rows)[None] if cu_seqlens is not None else torch.stack(rows)
    return together, torch.stack(states)


CELLS = {"rg_lru": (lru_problem, lru_call, lru_loop), "mlstm": (cell_problem, cell_call, cell_loop)}


@contextlib.contextmanager
def forms(composed):
    torch.ops.tarn.force_composed(composed)
    try:
        yield
    finally:
        torch.ops.tarn.force_composed(False)


def near(got, wanted, bound):
    scale = 1 + (wanted.abs().max() if wanted.numel() else 0)
    assert got.shape == wanted.shape
    assert not got.numel() or (got.double() - wanted).abs().max() <= bound * scale


@pytest.mark.parametrize("composed", [False, True])
@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 0, 5), (2, 7, 64), (3, 2, 17), (1, 70, 4)])
@pytest.mark.parametrize("name", CELLS)
def test_outputs_and_states(name, dtype, composed, shape):
    problem, call, loop = CELLS[name]
    x = problem(*shape, dtype)
    with forms(composed):
        out, state = call(x)
    assert out.dtype == dtype
    wanted = reference(loop, x)
    near(out, wanted[0], BOUND[dtype])
    # Whatever is rounded on its way in and out, sums are float32.
    near(state, wanted[1], min(BOUND[dtype], 2e-5))


@pytest.mark.parametrize("composed", [False, True])
@pytest.mark.parametrize("name", CELLS)
def test_an_empty_batch(name, composed):
    problem, call, _ = CELLS[name]
    x = {key: one.requires_grad_() for key, one in problem(0, 4, 3).items()}
    with forms(composed):
        out, state = call(x)
        (out.sum() + state.sum()).backward()
    assert out.shape[:2] == (0, 4) and state.shape[0] == 0
    assert all(one.grad is not None and not one.grad.any() for one in x.values())


@pytest.mark.parametrize("composed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CELLS)
def test_gradients(name, kind, composed):
    problem, call, loop = CELLS[name]
    x = problem(1 if kind == "packed" else 3, 39, 5, states=4 if kind == "packed" else 3)
    options = KINDS[kind]
    wanted_out = reference(loop, x, **options)
    weights = [torch.randn_like(one) for one in wanted_out]
    clean = {key: one.clone().requires_grad_() for key, one in x.items()}
    if kind == "lengths":  # what is in pads reaches nothing
        for row, length in enumerate(LENGTHS):
            for key, one in x.items():
                if one.dim() > 1 and one.shape[1] == 39:
                    one[row, length:] = float("nan")
            weights[0][row, length:] = 0
    leaves = {key: one.requires_grad_() for key, one in x.items()}

    def gradients(found, given):
        loss = sum((one.double() * w).sum() for one, w in zip(found, weights, strict=True))
        return torch.autograd.grad(loss, list(given.values()))

    wanted = gradients(reference(loop, clean, **options), clean)
    with forms(composed):
        out = call(leaves, **options)
        got = gradients(out, leaves)
    for ours, theirs in zip(out, wanted_out, strict=True):
        near(ours, theirs, 2e-5)
    for ours, theirs in zip(got, wanted, strict=True):
        near(ours, theirs.double(), 1e-4)


@pytest.mark.parametrize("composed", [False, True])
@pytest.mark.parametrize("name", CELLS)
def test_tokens_that_are_not_kept_change_nothing(name, composed):
    problem, call, loop = CELLS[name]
    x = problem(2, 9, 5)
    kept = torch.tensor([[1, 1, 0, 1, 0, 0, 1, 1, 0], [0, 1, 1, 1, 1, 0, 1, 1, 1]]).bool()
    wanted = [
        loop(x, n, kept[n].nonzero()[:, 0].tolist(), list(x.values())[-1][n].double())
        for n in range(2)
    ]
    for key in ("input_gates", "recurrence_gates", "forget_gates"):
        if key in x:
            x[key][~kept] = float("nan")
    leaves = {key: one.requires_grad_() for key, one in x.items()}
    with forms(composed):
        out, state = call(leaves, kept=kept)
        (out[kept].sum() + state.sum()).backward()
    for n, (rows, last) in enumerate(wanted):
        near(out[n][kept[n]], torch.stack(rows), 2e-5)
        near(state[n], last, 2e-5)
    assert all(one.grad.isfinite().all() for one in leaves.values())
    for key in ("input_gates", "recurrence_gates", "forget_gates"):
        assert key not in x or not leaves[key].grad[~kept].any()


@pytest.mark.parametrize("composed", [False, True])
def test_a_token_that_begins_forgets(composed):
    x = lru_problem(2, 8, 3)
    begins = torch.zeros(2, 8).bool()
    begins[0, 5] = begins[1, 0] = True
    with forms(composed):
        out, state = lru_call(x, begins=begins)
        for n, at in ((0, 5), (1, 0)):
            first = torch.sigmoid(x["input_gates"][n, at] + x["input_bias"]) * x["inputs"][n, at]
            near(out[n, at], first.double(), 2e-6)
        alone = {key: one[:1, 5:] if one.dim() == 3 else one for key, one in x.items()}
        rest = ops.rg_lru(*list(alone.values())[:6])  # its first token begins
    near(out[0, 5:], rest[0].double(), 2e-6)


@pytest.mark.parametrize("composed", [False, True])
@pytest.mark.parametrize("steep", [0.75, 1000.0])
def test_a_bound_of_the_roots_slope(composed, steep):
    x = {key: one.double() if composed else one for key, one in lru_problem(1, 6, 9).items()}
    x["recurrence_gates"][:, ::2] = -20.0  # a near 1
    leaves = {key: one.requires_grad_() for key, one in x.items()}
    with forms(composed):
        out, _ = lru_call(leaves, most_slope=steep)
        got = torch.autograd.grad(out.sum(), leaves["recurrence_gates"])[0]

    class Root(torch.autograd.Function):
        @staticmethod
        def forward(ctx, square):
            ctx.save_for_backward(square)
            return square.sqrt()

        @staticmethod
        def backward(ctx, grad):
            return grad * (0.5 / ctx.saved_tensors[0].sqrt()).clamp_max(steep)

    p_r = x["recurrence_gates"].detach().double().requires_grad_()
    r = torch.sigmoid(p_r + x["recurrence_bias"])
    g = -8 * torch.nn.functional.softplus(x["Lambda"].double()) * r
    i = torch.sigmoid(x["input_gates"].double() + x["input_bias"])
    state, total = x["initial_state"].double(), 0
    for t in range(6):
        root = Root.apply(-torch.expm1(2 * g[:, t]))
        state = g[:, t].exp() * state + root * i[:, t] * x["inputs"][:, t]
        total = total + state.sum()
    near(got, torch.autograd.grad(total, p_r)[0], 2e-5)


@pytest.mark.parametrize("name", CELLS)
def test_any_split_is_the_whole(name):
    problem, call, _ = CELLS[name]
    x = problem(2, 39, 6)
    first, last = list(x.values())[:-1], list(x.values())[-1]
    m = torch.zeros(2, 6)
    f = ops.rg_lru if name == "rg_lru" else ops.mlstm

    def run(state, begin, end):
        part = [one[:, begin:end] if one.dim() > 1 else one for one in first]
        return f(*part, initial_state=state, return_state=True)

    state = last if name == "rg_lru" else (last, m)
    whole, end = run(state, 0, 39)
    parts = []
    for begin, stop in [(0, 1), (1, 2), (2, 20), (20, 20), (20, 39)]:
        out, state = run(state, begin, stop)
        parts.append(out)
    if name == "rg_lru":
        assert torch.equal(torch.cat(parts, 1), whole) and torch.equal(state, end)
    else:  # chunks of the recurrence begin elsewhere; m has the same bits
        near(torch.cat(parts, 1), whole.double(), 1e-5)
        near(state[0], end[0].double(), 1e-5)
        assert torch.equal(state[1], end[1])


@pytest.mark.parametrize("name", CELLS)
def test_same_bits_for_any_number_of_threads_and_any_layout(name):
    problem, call, _ = CELLS[name]
    x = problem(3, 80, 37)

    def bits(given):
        leaves = {key: one.detach().requires_grad_() for key, one in given.items()}
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
    strided = {
        key: torch.cat([one, one], -1)[..., : one.shape[-1]] if one.dim() > 1 else one
        for key, one in x.items()
    }
    found.append(bits(strided))
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(other, found[0], strict=True))


@pytest.mark.parametrize("composed", [False, True])
def test_gates_of_any_size_are_finite(composed):
    x = cell_problem(1, 30, 4)
    x["input_gates"] *= 60
    x["forget_gates"] *= 60
    leaves = {key: one.requires_grad_() for key, one in x.items()}
    first = list(leaves.values())[:-1]
    with forms(composed):
        out, (S, m) = ops.mlstm(*first, return_state=True)
        (out.sum() + S.sum()).backward()
    assert all(one.isfinite().all() for one in (out, S, m))
    assert all(leaves[key].grad.isfinite().all() for key in list(x)[:-1])


@pytest.mark.parametrize("eps", [1e-6, 0.1])
def test_the_maximum_has_its_gradient(eps):
    """Of results that depend on m: states as they are, and h by a large eps."""
    x = cell_problem(1, 39, 3, states=4) | {"m": torch.randn(4, 3)}

    def gradients(given, composed):
        leaves = {key: one.detach().clone().requires_grad_() for key, one in given.items()}
        *first, S, m = leaves.values()
        with forms(composed):
            out, (S, m) = ops.mlstm(
                *first, initial_state=(S, m), cu_seqlens=STARTS, eps=eps, return_state=True
            )
        loss = out.square().sum() + S.square().sum() + m.square().sum()
        return torch.autograd.grad(loss, list(leaves.values()))

    wanted = gradients({key: one.double() for key, one in x.items()}, False)
    for composed in (False, True):
        for ours, theirs in zip(gradients(x, composed), wanted, strict=True):
            near(ours, theirs, 1e-4)
    small = {key: one.double() for key, one in x.items()}
    for key in ("queries", "keys", "values", "input_gates", "forget_gates"):
        small[key] = small[key][:, :6]
    leaves = [one.requires_grad_() for one in small.values()]
    few = torch.tensor([0, 2, 2, 3, 6])

    def f(*given):
        *first, S, m = given
        out, state = ops.mlstm(
            *first, initial_state=(S, m), cu_seqlens=few, eps=eps, return_state=True
        )
        return out, *state

    assert torch.autograd.gradcheck(f, leaves)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_opcheck(dtype):
    x = [one.requires_grad_() for one in lru_problem(2, 9, 5, dtype).values()]
    kept = torch.rand(2, 9) > 0.3
    opcheck(torch.ops.tarn.rg_lru_gates.default, (*x[:6], kept.flip(1), kept))
    opcheck(torch.ops.tarn.rg_lru_gates.default, (*x[:4],))
    y = [one.requires_grad_() for one in cell_problem(2, 9, 5, dtype).values()]
    m = torch.randn(2, 5, dtype=dtype)
    opcheck(torch.ops.tarn.mlstm_gates.default, (*y[3:7], 5.0, kept, None, m))
    row = cell_problem(1, 39, 5, dtype)
    packed = [row[key].requires_grad_() for key in ("input_gates", "forget_gates")]
    opcheck(torch.ops.tarn.mlstm_gates.default, (*packed, None, None, 0.0, None, STARTS))
    read = torch.randn(2, 9, 5, 8, dtype=dtype, requires_grad=True)
    opcheck(torch.ops.tarn.mlstm_read.default, (read, torch.randn(2, 9, 5, dtype=dtype)))
    if dtype == torch.float32:
        flow = torch.randn(2, 9, 5)
        plain = [one.detach() for one in (*x, *y)]
        opcheck(
            torch.ops.tarn.rg_lru_gates_backward.default,
            (flow, None, *plain[:4], None, plain[5], None, kept),
        )
        opcheck(
            torch.ops.tarn.mlstm_gates_backward.default,
            (flow, flow, None, None, *plain[10:13], None, 2.0, kept, None, m, flow.exp(), flow),
        )


@pytest.mark.parametrize("name", CELLS)
def test_compiled_whole(name):
    problem, call, _ = CELLS[name]
    x = problem(2, 9, 5)
    compiled = torch.compile(lambda leaves: call(leaves), fullgraph=True, backend="aot_eager")
    for got, wanted in zip(compiled(x), call(x), strict=True):
        torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("name", CELLS)
def test_autocast_keeps_gates_and_states_wide(name):
    problem, call, loop = CELLS[name]
    x = problem(2, 9, 5)
    with torch.autocast("cpu", torch.bfloat16):
        out, state = call(x)
    assert out.dtype == torch.bfloat16 and state.dtype == torch.float32
    near(out, reference(loop, x)[0], 3e-2)


@pytest.mark.parametrize(
    ("name", "change", "kind", "words"),
    [
        ("rg_lru", {"inputs": torch.zeros(2, 9)}, ValueError, r"inputs: want \[batch, seq_len"),
        ("rg_lru", {"inputs": [1.0]}, TypeError, "inputs: want a tensor, got list"),
        ("rg_lru", {"input_gates": torch.zeros(2, 9, 4)}, ValueError, r"input_gates: want \[2, 9"),
        ("rg_lru", {"recurrence_gates": torch.zeros(2, 9, 5).half()}, TypeError, "want Float"),
        ("rg_lru", {"Lambda": torch.zeros(4)}, ValueError, r"Lambda: want \[5\], got \[4\]"),
        ("rg_lru", {"begins": torch.zeros(2, 8).bool()}, ValueError, r"begins: want \[2, 9\]"),
        ("rg_lru", {"kept": torch.zeros(2, 9)}, TypeError, "kept: want Bool"),
        ("rg_lru", {"lengths": torch.tensor([1, 10])}, ValueError, r"lengths\[1\]"),
        ("rg_lru", {"cu_seqlens": torch.tensor([0, 9])}, ValueError, "cu_seqlens: want a batch"),
        ("rg_lru", {"initial_state": torch.zeros(2, 4)}, ValueError, "initial_state: want"),
        ("rg_lru", {"most_slope": 0.0}, ValueError, "most_slope: want a number above 0"),
        ("rg_lru", {"most_slope": "1"}, TypeError, "most_slope: want a number, got str"),
        ("mlstm", {"queries": torch.zeros(2, 9, 5)}, ValueError, r"queries: want \[batch, seq"),
        ("mlstm", {"keys": torch.zeros(2, 9, 5, 4)}, ValueError, r"keys: want \[2, 9, 5, 5\]"),
        ("mlstm", {"values": torch.zeros(2, 9, 5, 7).half()}, TypeError, "values: want Float"),
        ("mlstm", {"input_gates": torch.zeros(2, 9, 4)}, ValueError, r"input_gates: want \[2, 9"),
        ("mlstm", {"forget_gates": torch.zeros(2, 8, 5)}, ValueError, r"forget_gates: want \[2"),
        ("mlstm", {"input_bias": torch.zeros(4)}, ValueError, r"input_bias: want \[5\]"),
        ("mlstm", {"softcap": -1.0}, ValueError, "softcap: want a number of at least 0"),
        ("mlstm", {"scale": "1"}, TypeError, "scale: want a number"),
        ("mlstm", {"initial_state": torch.zeros(2)}, TypeError, "initial_state: want a pair"),
        (
            "mlstm",
            {"initial_state": (torch.zeros(2, 5, 5, 7), torch.zeros(2, 5))},
            ValueError,
            r"initial_state: want \[2, 5, 5, 8\]",
        ),
        (
            "mlstm",
            {"initial_state": (torch.zeros(2, 5, 5, 8), torch.zeros(2, 4))},
            ValueError,
            r"initial_maximum: want \[2, 5\]",
        ),
        ("mlstm", {"lengths": torch.tensor([1, 10])}, ValueError, r"lengths\[1\]"),
    ],
)
def test_refusals(name, change, kind, words):
    given = CELLS[name][0](2, 9, 5)
    given.popitem()
    with pytest.raises(kind, match=words):
        getattr(ops, name)(**given | change)
