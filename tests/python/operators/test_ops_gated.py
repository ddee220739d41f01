"""decay_, delta_ and dplr_attention against their definitions, token by token in
float64, and the families against them."""

import math

import pytest
import torch

from tarn import ops

BATCH, HEADS, GROUP, K, V = 2, 2, 2, 5, 3
VALUE_HEADS = HEADS * GROUP
LENGTHS = (0, 1, 15, 16, 17, 70)
TOKENS = ("queries", "keys", "values", "gates", "betas", "reads", "writes")
GATES = ("none", "head", "token", "channel")
KINDS = ("decay", "delta", "bonus", "dplr")
# Relative error of the whole tensor: ||a - b|| / ||b||.
BOUND = {torch.float32: 1e-6, torch.bfloat16: 2e-2, torch.float16: 3e-3, torch.float64: 1e-13}


def reference(x, scale):
    """out [B, T, HV, V] and the state [B, HV, K, V] after each token's row."""
    v, state, rows = x["values"], x["initial_state"], []
    group = v.shape[2] // x["queries"].shape[2]
    q, k = (x[name].repeat_interleave(group, 2) for name in ("queries", "keys"))
    gates = x.get("gates")
    for t in range(q.shape[1]):
        decay = torch.ones(VALUE_HEADS, 1, dtype=v.dtype)
        if gates is not None:
            decay = gates if gates.dim() == 1 else gates[:, t]
            decay = decay.exp() if decay.dim() == 3 else decay.exp().unsqueeze(-1)
        written = k[:, t].unsqueeze(-1) * v[:, t].unsqueeze(-2)
        if "bonus" in x:
            seen = state + x["bonus"].unsqueeze(-1) * written
            state = decay.unsqueeze(-1) * state + written
        else:
            before, state = state, decay.unsqueeze(-1) * state
            if "reads" in x:
                found = (before * x["reads"][:, t].unsqueeze(-1)).sum(-2)
                written = written + x["writes"][:, t].unsqueeze(-1) * found.unsqueeze(-2)
            if "betas" in x:
                held = (state * k[:, t].unsqueeze(-1)).sum(-2)
                change = x["betas"][:, t].unsqueeze(-1) * (v[:, t] - held)
                written = k[:, t].unsqueeze(-1) * change.unsqueeze(-2)
            state = seen = state + written
        rows.append(scale * (seen * q[:, t].unsqueeze(-1)).sum(-2))
    return (torch.stack(rows, 1) if rows else v), state


def problem(kind, gates, tokens, dtype=torch.float32, resets=False, seed=0):
    draw = torch.Generator().manual_seed(seed)

    def normal(*sizes):
        return torch.randn(*sizes, generator=draw, dtype=torch.float64)

    heads = VALUE_HEADS if kind == "dplr" else HEADS
    x = {
        "queries": normal(BATCH, tokens, heads, K),
        "keys": normal(BATCH, tokens, heads, K),
        "values": normal(BATCH, tokens, VALUE_HEADS, V),
        "initial_state": normal(BATCH, VALUE_HEADS, K, V),
    }
    sizes = {
        "head": (VALUE_HEADS,),
        "token": (BATCH, tokens, VALUE_HEADS),
        "channel": (BATCH, tokens, VALUE_HEADS, K),
    }
    if gates != "none":
        x["gates"] = -torch.rand(sizes[gates], generator=draw, dtype=torch.float64)
        if resets and gates != "head" and tokens > 12:
            x["gates"][:, 3] = -math.inf
            x["gates"][:, 9] = -1e4
            x["gates"][:, 12] = -104.0
    if kind == "delta":
        x["keys"] = torch.nn.functional.normalize(x["keys"], dim=-1)
        x["betas"] = torch.rand(BATCH, tokens, VALUE_HEADS, generator=draw, dtype=torch.float64)
    if kind == "dplr":  # as RWKV-7: -kappa of length 1, and kappa times a share
        x["reads"] = -torch.nn.functional.normalize(normal(BATCH, tokens, heads, K), dim=-1)
        x["writes"] = -x["reads"] * torch.rand(
            BATCH, tokens, heads, K, generator=draw, dtype=torch.float64
        )
    if kind == "bonus":
        x["bonus"] = normal(VALUE_HEADS, K)
    exact = ("gates", "initial_state", "bonus", "betas")
    return {
        name: one.to(torch.float32 if name in exact and dtype != torch.float64 else dtype)
        for name, one in x.items()
    }


def call(x, **options):
    arguments = dict(x)
    main = [arguments.pop(name) for name in ("queries", "keys", "values")]
    if "betas" in arguments:
        return ops.delta_attention(*main, arguments.pop("betas"), **arguments, **options)
    if "reads" in arguments:
        pair = [arguments.pop(name) for name in ("reads", "writes")]
        return ops.dplr_attention(*main, *pair, **arguments, **options)
    return ops.decay_attention(*main, **arguments, **options)


def error(ours, theirs):
    ours, theirs = ours.detach().double(), theirs.detach().double()
    return float((ours - theirs).norm() / max(float(theirs.norm()), 1e-30))


def doubles(x):
    return {name: one.detach().double() for name, one in x.items()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gates", GATES)
@pytest.mark.parametrize("tokens", LENGTHS)
def test_values_and_states(kind, gates, tokens):
    x = problem(kind, gates, tokens, resets=True)
    out, state = call(x, scale=0.7, return_state=True)
    wanted, last = reference(doubles(x), 0.7)
    assert out.shape == wanted.shape and error(out, wanted) <= BOUND[torch.float32]
    assert error(state, last) <= BOUND[torch.float32]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_other_dtypes(kind, dtype):
    x = problem(kind, "token", 40, dtype)
    out, state = call(x, scale=0.7, return_state=True)
    assert out.dtype == dtype
    assert state.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    wanted, last = reference(doubles(x), 0.7)
    assert error(out, wanted) <= BOUND[dtype]
    assert error(state, last) <= max(BOUND[torch.float32], BOUND[dtype] * (dtype == torch.float64))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gates", GATES)
@pytest.mark.parametrize("tokens", [1, 17, 70])
def test_gradients(kind, gates, tokens):
    x = {
        name: one.requires_grad_()
        for name, one in problem(kind, gates, tokens, resets=True).items()
    }
    y = {name: one.requires_grad_() for name, one in doubles(x).items()}
    weights = torch.randn(
        BATCH,
        tokens,
        VALUE_HEADS,
        V,
        dtype=torch.float64,
        generator=torch.Generator().manual_seed(1),
    )

    def loss(out, state):
        return (out.double() * weights).sum() + state.double().square().sum()

    ours = torch.autograd.grad(loss(*call(x, scale=0.7, return_state=True)), list(x.values()))
    theirs = torch.autograd.grad(loss(*reference(y, 0.7)), list(y.values()))
    for name, one, wanted in zip(x, ours, theirs, strict=True):
        assert one.dtype == x[name].dtype and one.isfinite().all(), name
        assert error(one, wanted) <= 3e-6, name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gates", GATES)
def test_gradcheck_of_the_composed_form(kind, gates):
    x = problem(kind, gates, 5, torch.float64)
    names = list(x)

    def function(*tensors):
        return call(dict(zip(names, tensors, strict=True)), return_state=True)

    tensors = [one.requires_grad_() for one in x.values()]
    assert torch.autograd.gradcheck(function, tensors)
    # Fast mode: random projections of both Jacobians, not entry by entry.
    assert torch.autograd.gradgradcheck(function, tensors, atol=1e-4, fast_mode=True)


@pytest.mark.parametrize("kind", KINDS)
def test_pads_touch_nothing(kind):
    x = problem(kind, "channel", 20)
    lengths = torch.tensor([20, 7])
    for name in TOKENS:
        if name in x:
            x[name][1, 7:] = math.nan
    out, state = call(x, lengths=lengths, return_state=True)
    short = {name: one if name == "bonus" else one[1:] for name, one in x.items()}
    short = {
        name: one[:, :7] if name not in ("bonus", "initial_state") else one
        for name, one in short.items()
    }
    wanted, last = call(short, return_state=True)
    torch.testing.assert_close(out[1:, :7], wanted, rtol=0, atol=0)
    torch.testing.assert_close(state[1:], last, rtol=0, atol=0)
    assert (out[1, 7:] == 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_packed_sequences_are_those_apart(kind):
    x = problem(kind, "token", 40)
    packed = {name: one if name == "bonus" else one[:1] for name, one in x.items()}
    bounds = torch.tensor([0, 16, 16, 40])
    packed["initial_state"] = torch.cat([x["initial_state"], x["initial_state"][:1]])
    out, state = call(packed, cu_seqlens=bounds, return_state=True)
    for i, (begin, end) in enumerate(zip(bounds[:-1], bounds[1:], strict=True)):
        own = {
            name: one if name == "bonus" else one[:, begin:end]
            for name, one in packed.items()
            if name != "initial_state"
        }
        own["initial_state"] = packed["initial_state"][i : i + 1]
        wanted, last = call(own, return_state=True)
        assert error(out[:, begin:end], wanted) <= 1e-6 or begin == end
        assert error(state[i : i + 1], last) <= 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_continues(kind):
    x = problem(kind, "token", 30)
    whole, last = call(x, return_state=True)
    state, rows = x["initial_state"], []
    for begin, end in ((0, 11), (11, 12), (12, 30)):
        piece = {name: one[:, begin:end] if name in TOKENS else one for name, one in x.items()}
        out, state = call(piece | {"initial_state": state}, return_state=True)
        rows.append(out)
    assert error(torch.cat(rows, 1), whole) <= 1e-6
    assert error(state, last) <= 1e-6


@pytest.mark.parametrize("threads", [2, 3, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_same_bits_for_any_threads(kind, threads):
    x = problem(kind, "channel", 70)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        wanted = call(x, return_state=True)
        torch.set_num_threads(threads)
        got = call(x, return_state=True)
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(wanted, got, strict=True))


def test_families():
    """Each is one of the two with its own gates."""
    x = problem("delta", "channel", 12)
    q, k, v, g, b = (x[name] for name in ("queries", "keys", "values", "gates", "betas"))
    constant = torch.log(1 - 2.0 ** (-5 - torch.arange(VALUE_HEADS, dtype=torch.float64))).float()
    torch.testing.assert_close(ops.retention_gates(VALUE_HEADS), constant)
    pairs = [
        (ops.retention(q, k, v), ops.decay_attention(q, k, v, gates=constant)),
        (ops.gated_linear_attention(q, k, v, g), ops.decay_attention(q, k, v, gates=g)),
        (ops.delta_rule(q, k, v, b), ops.delta_attention(q, k, v, b)),
        (
            ops.gated_delta_rule(q, k, v, g[..., 0], b),
            ops.delta_attention(q, k, v, b, gates=g[..., 0]),
        ),
        (ops.kda(q, k, v, g, b), ops.delta_attention(q, k, v, b, gates=g)),
    ]
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


def test_the_pair_is_the_delta_rule_in_other_words():
    """c = -exp(g) beta k and b = k, with the value beta v: u = beta (v - W^T k)."""
    x = problem("delta", "channel", 40)
    q, k = (x[name].repeat_interleave(GROUP, 2) for name in ("queries", "keys"))
    beta = x["betas"].unsqueeze(-1)
    reads = -x["gates"].exp() * k * beta
    options = {"gates": x["gates"], "initial_state": x["initial_state"], "return_state": True}
    out, state = ops.dplr_attention(q, k, beta * x["values"], reads, k, **options)
    wanted, last = call(x, return_state=True)
    assert error(out, wanted) <= 2e-6 and error(state, last) <= 2e-6
    same = ops.rwkv7(
        q,
        x["gates"],
        k,
        beta * x["values"],
        reads,
        k,
        scale=K**-0.5,
        initial_state=x["initial_state"],
    )
    assert torch.equal(same, out)


def test_lightning_gates_are_those_of_minimax():
    # 4 heads, layer 1 of 4: as transformers computes them.
    decays = ops.lightning_gates(4, 1, 4).exp()
    slopes = torch.tensor([2.0 ** (-2 * h) for h in (1, 2, 3, 4)])
    torch.testing.assert_close(decays, torch.exp(-slopes * (1 - 1 / 3.00001 + 1e-5)))
    with pytest.raises(ValueError, match="lightning_gates: layer: want 0 to 3, got 4"):
        ops.lightning_gates(4, 4, 4)


def test_ssd_by_its_definition():
    draw = torch.Generator().manual_seed(2)
    x = torch.randn(2, 9, 4, 3, generator=draw)
    dt = torch.rand(2, 9, 4, generator=draw)
    A, D = -torch.rand(4, generator=draw), torch.randn(4, generator=draw)
    B, C = torch.randn(2, 2, 9, 2, 5, generator=draw).unbind()
    out, state = ops.ssd(x, dt, A, B, C, D=D, return_state=True)
    wanted, h = [], torch.zeros(2, 4, 5, 3)
    for t in range(9):
        b, c = (one[:, t].repeat_interleave(2, 1) for one in (B, C))
        h = (dt[:, t] * A).exp()[..., None, None] * h + b.unsqueeze(-1) * (
            dt[:, t].unsqueeze(-1) * x[:, t]
        ).unsqueeze(-2)
        wanted.append((h * c.unsqueeze(-1)).sum(-2) + D.unsqueeze(-1) * x[:, t])
    torch.testing.assert_close(out, torch.stack(wanted, 1))
    torch.testing.assert_close(state, h)


@pytest.mark.parametrize(
    ("change", "error_type", "words"),
    [
        ({"queries": torch.zeros(2, 4, 3, 5)}, ValueError, "keys: want"),
        (
            {"values": torch.zeros(2, 4, 3, 3)},
            ValueError,
            "values: want heads in a multiple of the 2",
        ),
        ({"gates": torch.zeros(2, 4, 3)}, ValueError, r"gates: want \[2, 4, 4\], got \[2, 4, 3\]"),
        ({"gates": torch.zeros(2, 4)}, ValueError, r"gates: want \[heads\]"),
        ({"gates": torch.zeros(4, dtype=torch.int64)}, TypeError, "gates: want float32"),
        (
            {"initial_state": torch.zeros(2, 4, 5, 3, dtype=torch.float64)},
            TypeError,
            "initial_state: want Float",
        ),
        ({"lengths": torch.zeros(3, dtype=torch.int64)}, ValueError, r"lengths: want \[2\]"),
        ({"cu_seqlens": torch.tensor([0, 4])}, ValueError, "cu_seqlens: want a batch of 1"),
        ({"values": 3}, TypeError, "values: want a tensor, got int"),
    ],
)
def test_refusals(change, error_type, words):
    x = problem("decay", "token", 4) | change
    with pytest.raises(error_type, match=words):
        call(x)
