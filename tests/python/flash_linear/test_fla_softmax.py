"""Softmax attention with forget gates against its definition in float64, query by query: values,
gradients, packed sequences, windows, sinks, dtypes, gates of any size, steps, refusals."""

import math

import pytest
import torch

from tarn import fla
from tarn.fla import _softmax

H, K, V = 2, 5, 3
BOUND = {torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float64: 1e-12}


def row(q, k, v, g, t, scale, window, sink, begin=0):
    """Query t by its definition: q [B, HQ, K]; keys of [begin, t]."""
    group = q.shape[1] // k.shape[2]
    low = begin if window is None else max(begin, t - window + 1)
    weights = []
    for j in range(low, t + 1):
        score = scale * (q * k[:, j].repeat_interleave(group, 1)).sum(-1)
        if g is not None:
            score = score + g[:, j + 1 : t + 1].sum(1)
        weights.append(score)
    scores = torch.stack(weights, -1)
    if sink is not None:
        scores = torch.cat([scores, sink.expand(*scores.shape[:2]).unsqueeze(-1)], -1)
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    weights = (weights / weights.sum(-1, keepdim=True))[..., : t + 1 - low]
    values = v[:, low : t + 1].repeat_interleave(group, 2)
    return torch.einsum("bhj,bjhv->bhv", weights, values)


def loop(q, k, v, g=None, scale=K**-0.5, window=None, sink=None, bounds=None):
    bounds = bounds or [0, k.shape[1]]
    rows = [
        row(q[:, t], k, v, g, t, scale, window, sink, begin)
        for begin, end in zip(bounds[:-1], bounds[1:], strict=True)
        for t in range(begin, end)
    ]
    return torch.stack(rows, 1) if rows else q[..., :1].expand(*q.shape[:3], V)


def draw(tokens, batch=2, group=1, gates="small", sink=False, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def normal(*sizes):
        return torch.randn(*sizes, generator=generator, dtype=torch.float64)

    x = dict(
        q=normal(batch, tokens, H * group, K),
        k=normal(batch, tokens, H, K),
        v=normal(batch, tokens, H, V),
    )
    if gates != "none":
        x["g"] = -normal(batch, tokens, H * group).abs()
    if gates == "of any size":
        x["g"][:, 3], x["g"][:, 8, 0], x["g"][:, 9] = -math.inf, -1e4, -104.0
        x["g"][:, 30:33, 1] = -math.inf
    if sink:
        x["sink_bias"] = normal(H * group)
    return x


def theirs_of(x, **options):
    x = dict(x)
    if "sink_bias" in x:
        options["sink"] = x.pop("sink_bias")
    return loop(**x, **options)


def error(ours, theirs):
    ours, theirs = ours.detach().double(), theirs.detach().double()
    assert ours.shape == theirs.shape
    return float((ours - theirs).norm() / max(float(theirs.norm()), 1e-30))


@pytest.fixture(params=["one piece", "pieces"])
def pieces(request, monkeypatch):
    """Pieces as small as they get, at lengths that a loop can follow."""
    if request.param == "pieces":
        monkeypatch.setattr(_softmax, "_PAIRS", 64)
        monkeypatch.setattr(_softmax, "_QUERIES", 8)
    return request.param


CASES = {
    "gates": ({}, {}),
    "groups": (dict(group=3), {}),
    "none": (dict(gates="none"), {}),
    "any size": (dict(gates="of any size"), {}),
    "window": ({}, dict(window_size=7)),
    "window of 1": ({}, dict(window_size=1)),
    "window without gates": (dict(gates="none"), dict(window_size=7)),
    "sink": (dict(sink=True), {}),
    "sink alone": (dict(sink=True, gates="none"), {}),
    "all": (dict(sink=True, gates="of any size", group=2), dict(window_size=11, scale=0.3)),
    "packed": (dict(batch=1), dict(cu_seqlens=[0, 9, 9, 40])),
    "packed all": (
        dict(batch=1, sink=True, gates="of any size", group=2),
        dict(cu_seqlens=[0, 9, 9, 40], window_size=6),
    ),
}


def problem(case, dtype, tokens=40):
    made, options = CASES[case]
    x = draw(tokens, **made)
    ours = {
        n: one.to(dtype if n in "qkv" or dtype == torch.float64 else torch.float32)
        for n, one in x.items()
    }
    theirs = {n: one.double() for n, one in ours.items()}
    names = dict(window_size="window", cu_seqlens="bounds", scale="scale")
    given = {n: torch.tensor(one) if n == "cu_seqlens" else one for n, one in options.items()}
    return ours, theirs, given, {names[n]: one for n, one in options.items()}


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("case", CASES)
def test_values(case, dtype, pieces):
    ours, theirs, given, meant = problem(case, dtype)
    out = fla.parallel_attn(**ours, **given)
    assert out.dtype == dtype and error(out, theirs_of(theirs, **meant)) <= BOUND[dtype]
    if "g" in ours and "sink_bias" not in ours:
        assert torch.equal(out, fla.parallel_forgetting_attn(**ours, **given))


@pytest.mark.parametrize(
    ("case", "dtype"),
    [*((case, torch.float32) for case in CASES), ("all", torch.bfloat16), ("gates", torch.float16)],
)
def test_gradients_reach_every_tensor(case, dtype, pieces):
    ours, theirs, given, meant = problem(case, dtype)
    for one in (*ours.values(), *theirs.values()):
        one.requires_grad_()
    out, o = fla.parallel_attn(**ours, **given), theirs_of(theirs, **meant)
    found = torch.autograd.grad(out.double().square().sum(), list(ours.values()))
    expected = torch.autograd.grad(o.square().sum(), list(theirs.values()))
    for name, one, other in zip(ours, found, expected, strict=True):
        if not other.any():  # a window of 1 has one weight, which is 1
            assert one.abs().max() <= 1e-5, name
            continue
        assert one.isfinite().all(), name
        assert error(one, other) <= (1e-5 if dtype == torch.float32 else BOUND[dtype]), name


@pytest.mark.parametrize("case", ["gates", "all", "packed"])
def test_gradients_of_gradients(case, pieces):
    ours, _, given, _ = problem(case, torch.float64, tokens=40)
    ours = {n: one[:1] if n != "sink_bias" else one for n, one in ours.items()}
    names = list(ours)
    weights = torch.randn(1, 40, ours["q"].shape[2], V, dtype=torch.float64)

    def directional(*tensors):
        """Of gradients too, along one direction: whole Jacobians of rows this long take long."""
        with torch.enable_grad():
            out = fla.parallel_attn(**dict(zip(names, tensors, strict=True)), **given)
            first = torch.autograd.grad((out * weights).sum(), tensors, create_graph=True)
        return sum(one.sin().sum() for one in first)

    tensors = [one.requires_grad_() for one in ours.values()]
    found = torch.autograd.grad(directional(*tensors), tensors)
    generator = torch.Generator().manual_seed(1)
    along = [torch.randn(one.shape, generator=generator, dtype=torch.float64) for one in tensors]
    step = 1e-5
    ends = [
        directional(
            *(
                (one + sign * step * other).detach().requires_grad_()
                for one, other in zip(tensors, along, strict=True)
            )
        )
        for sign in (1, -1)
    ]
    wanted = (ends[0] - ends[1]) / (2 * step)
    slope = sum((one * other).sum() for one, other in zip(found, along, strict=True))
    torch.testing.assert_close(slope, wanted, rtol=1e-6, atol=1e-6)


def test_gradients_of_gradients_of_arguments_that_share_one(pieces):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(1, 20, 2, 2, generator=generator, dtype=torch.float64, requires_grad=True)

    def shared(x):
        q = x.sin()
        return fla.parallel_attn(q, q * x, x.tanh(), -x[..., 0].square(), sink_bias=x[0, 0, :, 0])

    (plain,) = torch.autograd.grad(shared(x).square().sum(), x)
    (recorded,) = torch.autograd.grad(shared(x).square().sum(), x, create_graph=True)
    torch.testing.assert_close(recorded, plain)
    assert torch.autograd.gradcheck(shared, x)
    assert torch.autograd.gradgradcheck(shared, x)


def test_inference_mode_and_transforms_give_the_same(pieces):
    ours, _, given, _ = problem("all", torch.float64)

    def loss(q):
        return fla.parallel_attn(**{**ours, "q": q}, **given).square().sum()

    q = ours["q"].clone().requires_grad_()
    value = loss(q)
    (wanted,) = torch.autograd.grad(value, q)
    assert error(torch.func.grad(loss)(ours["q"]), wanted) <= 1e-12
    with torch.inference_mode():
        assert torch.equal(loss(ours["q"]), value)


def test_a_gradient_of_part_of_the_arguments(pieces):
    ours, theirs, given, meant = problem("all", torch.float32)
    for name in ("k", "g"):
        for one in (ours, theirs):
            one[name].requires_grad_()
    found = torch.autograd.grad(fla.parallel_attn(**ours, **given).sum(), (ours["k"], ours["g"]))
    expected = torch.autograd.grad(theirs_of(theirs, **meant).sum(), (theirs["k"], theirs["g"]))
    assert all(error(*pair) <= 1e-5 for pair in zip(found, expected, strict=True))


@pytest.mark.parametrize(("batch", "tokens"), [(2, 0), (0, 4), (2, 1)])
def test_few_tokens(batch, tokens, pieces):
    x = {n: one.float().requires_grad_() for n, one in draw(tokens, batch=batch).items()}
    out = fla.parallel_forgetting_attn(**x)
    assert out.shape == (batch, tokens, H, V)
    if tokens == 1:
        torch.testing.assert_close(out, x["v"])
    assert not any(one.grad is not None for one in x.values())
    out.sum().backward()
    assert all(one.grad.shape == one.shape for one in x.values())


def test_long_sums_of_gates_cost_no_precision():
    """Gates sum up to -2e5, where numbers of 32 bits are 0.016 apart."""
    x = draw(400, batch=1)
    x["g"][:, :300] = -700
    ours = {n: one.float() for n, one in x.items()}
    theirs = {n: one.double() for n, one in ours.items()}
    out = fla.parallel_forgetting_attn(**ours)
    q, k, v, g = (theirs[name] for name in ("q", "k", "v", "g"))
    wanted = row(q[:, 399], k, v, g, 399, K**-0.5, None, None)
    assert error(out[:, 399], wanted) <= 2e-6


def test_spans_cover_every_query_and_stay_small():
    for rows, heads, bounds, window in (
        (3, 4, [0, 5000], None),
        (1, 32, [0, 9, 9, 3000], 256),
        (64, 8, [0, 700], None),
        (1, 1, [0, 3], None),
    ):
        seen = torch.zeros(rows, bounds[-1])
        for span in _softmax.spans_of(rows, heads, bounds, window):
            seen[span.row : span.end, span.first : span.last] += 1
            begin = max(one for one in bounds if one <= span.first)
            assert span.high == span.last and span.low <= span.first
            assert span.low == (begin if window is None else max(begin, span.first - window + 1))
            queries, keys = span.last - span.first, span.high - span.low
            pairs = (span.end - span.row) * heads * queries * keys
            most = bounds[-1] if window is None else 2 * window
            assert pairs <= max(1 << 21, heads * 64 * most)
        assert (seen == 1).all()


@pytest.mark.parametrize("window", [None, 4, 0])
@pytest.mark.parametrize("sink", [False, True])
@pytest.mark.parametrize("gate_scale", [False, True])
def test_one_query_for_each_sequence(window, sink, gate_scale):
    x = draw(40, batch=1, group=2, gates="of any size", sink=sink)
    bounds = [0, 9, 9, 40]
    generator = torch.Generator().manual_seed(2)
    x["q"] = torch.randn(1, 3, 2 * H, K, generator=generator, dtype=torch.float64)
    ours = {n: one.float() for n, one in x.items()}
    theirs = {n: one.double() for n, one in ours.items()}
    out = fla.attn_decoding_one_step(
        **ours,
        scale=0.4,
        cu_seqlens=torch.tensor(bounds),
        window_size=window,
        do_gate_scale=gate_scale,
    )
    assert out.shape == (1, 3, 2 * H, V) and not out[:, 1].any()
    for i in (0, 2):
        if window == 0:
            assert not out[:, i].any()
            continue
        g = theirs["g"] * 0.4 if gate_scale else theirs["g"]
        wanted = row(
            theirs["q"][:, i],
            theirs["k"],
            theirs["v"],
            g,
            bounds[i + 1] - 1,
            0.4,
            window,
            theirs.get("sink_bias"),
            bounds[i],
        )
        assert error(out[:, i], wanted) <= 2e-6


def test_refusals():
    x = draw(6, group=2, sink=True)
    for change, error_type, message in (
        (dict(q=x["q"][:, :, :3]), ValueError, "q: want a multiple of 2 heads, got 3"),
        (dict(q=x["q"][:, 1:]), ValueError, r"q: want \[2, 6, 4, 5\], got \[2, 5, 4, 5\]"),
        (dict(v=x["v"][:, 1:]), ValueError, r"v: want \[2, 6, 2, 3\], got \[2, 5, 2, 3\]"),
        (dict(k=x["k"][0]), ValueError, "k: want "),
        (dict(k=None), TypeError, "k: want a tensor, got NoneType"),
        (dict(g=x["g"][..., :2]), ValueError, r"g: want \[2, 6, 4\], got \[2, 6, 2\]"),
        (dict(sink_bias=x["g"]), ValueError, r"sink_bias: want \[4\]"),
        (dict(window_size=0), ValueError, "window_size: want 1 or more, got 0"),
        (dict(cu_seqlens=torch.tensor([0, 6])), ValueError, "a batch of 1, got 2"),
    ):
        with pytest.raises(error_type, match="parallel_attn: .*" + message):
            fla.parallel_attn(**{**x, **change})
    one = {n: x[n][:1] for n in ("q", "k", "v", "g")}
    for bounds in ([0, 4, 3, 6], [1, 6], [0, 7]):
        with pytest.raises(ValueError, match="forgetting_attn: cu_seqlens: want 0, ..., 6"):
            fla.parallel_forgetting_attn(**one, cu_seqlens=torch.tensor(bounds))
    with pytest.raises(TypeError, match="parallel_forgetting_attn: g: want a tensor, got NoneType"):
        fla.parallel_forgetting_attn(**{**one, "g": None})
    with pytest.raises(ValueError, match="attn_decoding_one_step: cu_seqlens: want a tensor"):
        fla.attn_decoding_one_step(**one)
    with pytest.raises(ValueError, match=r"attn_decoding_one_step: q: want \[1, 2, 4, 5\]"):
        fla.attn_decoding_one_step(**one, cu_seqlens=torch.tensor([0, 3, 6]))
