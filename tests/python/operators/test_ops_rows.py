"""The operators of rows around gated layers (torch.ops.tarn.entry_form, rotate_rows,
cross_entropy, gate_correction, row_mixes, decay_gate, unit_norm, token_shift and
head_scale) against their equations in float64: values and gradients of every input, by
the kernel and by the composed form."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.library import opcheck

from tarn import ops  # noqa: F401  registers the operators

TARN = torch.ops.tarn
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
TARGET = torch.tensor([3, -100, 0, 6, 1])


def gelu(x, w):
    u = x + w
    return u / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3)))


def turn(x, cos, sin, interleaved):
    """(a + i b) (cos + i sin) of each pair."""
    width = 2 * cos.shape[-1]
    pairs = (
        x[..., :width].unflatten(-1, (-1, 2))
        if interleaved
        else x[..., :width].unflatten(-1, (2, -1)).transpose(-1, -2)
    )
    a, b, c, d = *pairs.unbind(-1), cos.unsqueeze(-2), sin.unsqueeze(-2)
    out = torch.stack((a * c - b * d, a * d + b * c), -1)
    return torch.cat(
        [(out if interleaved else out.transpose(-1, -2)).flatten(-2), x[..., width:]], -1
    )


def tables(x, pairs, by_batch=False):
    size = (*x.shape[:2], pairs) if by_batch else (x.shape[1], pairs)
    angles = torch.arange(math.prod(size)).double().view(size) * 0.7
    return angles.cos().float(), angles.sin().float()


def rotary(interleaved, by_batch):
    def ours(x):
        return TARN.rotate_rows(x, *tables(x, 3, by_batch), interleaved)

    def theirs(x):
        return turn(x, *(one.double() for one in tables(x, 3, by_batch)), interleaved)

    return ours, theirs


def loss(z, smoothing=0.0, scale=1.0, squares=0.0, cap=0.0):
    z = z * scale
    z = cap * torch.tanh(z / cap) if cap else z
    ln = z.log_softmax(-1)
    own = -ln[torch.arange(len(z)), TARGET[: len(z)].clamp(min=0)]
    out = (1 - smoothing) * own - smoothing * ln.mean(-1) + squares * z.logsumexp(-1) ** 2
    return out * (TARGET[: len(z)] != -100)


def losses(*options):
    return lambda z: TARN.cross_entropy(z, TARGET[: len(z)], *options)[0], lambda z: loss(
        z, *options
    )


def corrected(o, r, k, w, v, g):
    return (o + ((r * k * w).sum(-1, keepdim=True) * v).flatten(-2)) * g


def power(x, y, p):
    base = torch.where(x > 0, x, 1.0)
    return torch.where(x > 0, base ** (p / (base.sqrt() + 1)), x) / (1 + (-x).exp()) * y


def mixes(x, d, *weights):
    """All mixes one after the other."""
    return torch.cat(TARN.row_mixes(x, d, weights))


def form(name, scale=1.0):
    weighted = name in ("mixed_gate", "gelu")

    def ours(*given):
        weight = given[-1] if weighted else None
        y = given[1] if len(given) - weighted == 2 else None
        return TARN.entry_form(given[0], y, weight, name, scale)

    return ours


def softplus(u):
    return torch.where(u > 0, u, 0) + (-u.abs()).exp().log1p()


def gate(name, scale=1.0, limits=(0.0, math.inf)):
    """Both results of a gate, one after the other; bounds are between 0 and 1."""
    rated, two = name in ("softplus", "sigmoid"), name in ("softplus", "bounded")

    def ours(x, bias, A_log=None):
        if name == "bounded":
            bias = (bias if bias.dtype == torch.float64 else bias.float()).sigmoid()
        gates, second = TARN.decay_gate(
            x, A_log if rated else None, bias, name, scale, two, *limits
        )
        return torch.cat([gates, second.view_as(x).to(gates)]) if two else gates

    def theirs(x, bias, A_log=None):
        u, rate = x + bias, 1.0
        if rated:
            rate = A_log.exp().repeat_interleave(x.shape[-1] // len(A_log))
        if name == "softplus":
            steps = softplus(u).clamp(*limits)
            return torch.cat([-rate * steps, steps])
        if name == "log_sigmoid":
            return -scale * softplus(-u)
        if name == "exponential":
            return -u.exp()
        if name == "sigmoid":
            return -scale / (1 + (-rate * u).exp())
        lower = 1 / (1 + (-bias).exp())
        sigma = 1 / (1 + (-x).exp())
        return torch.cat([(lower + (1 - lower) * sigma).log(), (1 - lower) * (1 - sigma)])

    shapes = ((2, 5, 18), (18,), (3,)) if rated else ((2, 5, 18), (18,))
    return ours, theirs, shapes


def shifted(x, weight=None, before=None):
    first = torch.zeros_like(x[:, :1]) if before is None else before[:, None]
    change = torch.cat([first, x], 1)[:, : x.shape[1]] - x
    return change if weight is None else x + weight * change


def starts_of(x):
    """Three sequences of all rows of x, the second empty."""
    count = x.shape[0] * x.shape[1]
    return torch.tensor([0, count // 3, count // 3, count])


def shift_packed(x, weight, before):
    rows = x.flatten(0, 1)[None]
    return TARN.token_shift(rows, before, weight, starts_of(x)).view(x.shape)


def shifted_packed(x, weight, before):
    rows, starts = x.flatten(0, 1), starts_of(x).tolist()
    parts = [
        shifted(rows[None, i:j], weight, before[n : n + 1])[0]
        for n, (i, j) in enumerate(zip(starts[:-1], starts[1:], strict=True))
    ]
    return torch.cat(parts).view(x.shape)


def first_rows(x):
    """[B, D], zeros where there is none."""
    return x[:, :1].sum(1)


ROWS, HEADS = (2, 5, 19), (2, 5, 3, 7)
# name: tarn's, the equation, shapes.
CASES = {
    "silu_gate": (form("silu_gate"), lambda x, y: x / (1 + (-x).exp()) * y, (ROWS, ROWS)),
    "sigmoid_gate": (form("sigmoid_gate"), lambda x, y: y / (1 + (-x).exp()), (ROWS, ROWS)),
    "power_gate": (form("power_gate", 3.0), lambda x, y: power(x, y, 3.0), (ROWS, ROWS)),
    "power_gate of 0.5": (form("power_gate", 0.5), lambda x, y: power(x, y, 0.5), (ROWS, ROWS)),
    "elu1": (form("elu1"), lambda x: torch.where(x > 0, x + 1, x.clamp(max=0).exp()), (ROWS,)),
    "sigmoid": (form("sigmoid"), lambda x: 1 / (1 + (-x).exp()), (ROWS,)),
    "log_sigmoid": (form("log_sigmoid", 0.25), lambda x: -(1 + (-x).exp()).log() / 4, (ROWS,)),
    "mixed_gate": (form("mixed_gate"), lambda x, y, w: x * (1 + (y - 1) * w), (ROWS, ROWS, (19,))),
    "gelu": (form("gelu"), gelu, (ROWS, (19,))),
    "rotary": (*rotary(False, False), (HEADS,)),
    "rotary interleaved": (*rotary(True, False), (HEADS,)),
    "rotary of each batch": (*rotary(False, True), (HEADS,)),
    "cross entropy": (*losses(), ((5, 7),)),
    "cross entropy with all": (*losses(0.1, 2.0, 0.3, 4.0), ((5, 7),)),
    "gate correction": (
        lambda o, r, k, w, v, g: TARN.gate_correction(o, r, k, w, v, g),
        corrected,
        ((2, 5, 21), HEADS, HEADS, (3, 7), HEADS, (2, 5, 21)),
    ),
    "square relu": (form("square_relu"), lambda x: x.clamp(min=0) ** 2, (ROWS,)),
    "softplus gate": gate("softplus"),
    "softplus gate between limits": gate("softplus", limits=(0.5, 1.0)),
    "log sigmoid gate": gate("log_sigmoid", 1 / 16),
    "bounded gate": gate("bounded"),
    "exponential gate": gate("exponential"),
    "sigmoid of gate": gate("sigmoid", 0.75),
    "depth bounds": (
        lambda x: TARN.depth_bounds(x),
        lambda x: torch.stack(
            [x[1 : i + 1].exp().sum(0) / x.exp().sum(0) for i in range(x.shape[0])]
        ),
        ((5, 7),),
    ),
    "unit norm": (
        lambda x: TARN.unit_norm(x, 1e-6),
        lambda x: x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt(),
        (HEADS,),
    ),
    "token shift": (lambda x: TARN.token_shift(x), shifted, (ROWS,)),
    "token shift with weights": (
        lambda x, w, b: TARN.token_shift(x, first_rows(b), w),
        lambda x, w, b: shifted(x, w, first_rows(b)),
        (ROWS, (19,), ROWS),
    ),
    "token shift of packed rows": (shift_packed, shifted_packed, (ROWS, (19,), (3, 19))),
    "head scale": (
        lambda v, f: TARN.head_scale(v, f),
        lambda v, f: f[:, None] * v,
        (HEADS, (3,)),
    ),
    "head scale of each row": (
        lambda v, f, base: TARN.head_scale(v, f, base),
        lambda v, f, base: base + f[..., None] * v,
        (HEADS, (2, 5, 3), HEADS),
    ),
    "mixes": (
        mixes,
        lambda x, d, *w: torch.cat([x + d * one for one in w]),
        ((2, 5, 70), (2, 5, 70), (70,), (1, 70), (1, 1, 70)),
    ),
}


def draw(shapes, dtype):
    torch.manual_seed(0)
    return [torch.randn(shape).to(dtype) for shape in shapes]


def near(got, wanted, dtype, what):
    unit = 0 if dtype in (torch.float32, torch.float64) else torch.finfo(dtype).eps / 2
    room = 1.001 * unit * wanted.abs() + 3e-6 * (1 + wanted.abs().amax() if wanted.numel() else 1)
    assert ((got.double() - wanted).abs() <= room).all(), what


def check(name, given, dtype):
    ours, theirs, _ = CASES[name]
    own = [x.detach().requires_grad_() for x in given]
    double = [x.detach().double().requires_grad_() for x in given]
    got, wanted = ours(*own), theirs(*double)
    assert got.shape == wanted.shape
    near(got, wanted, dtype, "value")
    flow = torch.randn(wanted.shape).to(dtype).to(got.dtype)  # both results may be rounded
    ours = torch.autograd.grad(got, own, flow)
    theirs = torch.autograd.grad(wanted, double, flow.double())
    for place, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        assert one.dtype == given[place].dtype
        near(one, other, dtype, f"gradient of input {place}")


@pytest.mark.parametrize("composed", [False, True])
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name, dtype, composed):
    TARN.force_composed(composed)
    try:
        check(name, draw(CASES[name][2], dtype), dtype)
    finally:
        TARN.force_composed(False)


@pytest.mark.parametrize("name", CASES)
def test_strided_and_misaligned_input(name):
    def other_strides(x):
        wide = torch.zeros(*x.shape[:-1], x.shape[-1] + 3, dtype=x.dtype)
        wide[..., 1:-2] = x
        return wide[..., 1:-2]

    shapes = CASES[name][2]
    check(name, [other_strides(x) for x in draw(shapes, torch.bfloat16)], torch.bfloat16)
    turned = [x.transpose(0, -1).contiguous().transpose(0, -1) for x in draw(shapes, torch.float32)]
    check(name, turned, torch.float32)


@pytest.mark.parametrize("name", [name for name in CASES if "cross" not in name])
@pytest.mark.parametrize("empty", [(0, 5), (2, 0)])
def test_no_tokens(name, empty):
    shapes = [shape if len(shape) < 3 else (*empty, *shape[2:]) for shape in CASES[name][2]]
    check(name, draw(shapes, torch.float32), torch.float32)


def test_no_rows_of_logits():
    z = torch.zeros(0, 7, requires_grad=True)
    out, squares, _ = TARN.cross_entropy(z, torch.zeros(0).long())
    assert out.shape == squares.shape == (0,)
    assert torch.autograd.grad(out.sum(), z)[0].shape == (0, 7)


@pytest.mark.parametrize("name", CASES)
def test_gradcheck_to_second_order(name):
    ours, _, shapes = CASES[name]
    leaves = [x.double().requires_grad_() for x in draw(shapes, torch.float64)]
    assert torch.autograd.gradcheck(ours, leaves)
    assert torch.autograd.gradgradcheck(ours, leaves)


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_gradients_begin_at_the_kernel(name):
    ours, theirs, shapes = CASES[name]
    found = []
    for f, dtype in ((ours, torch.float32), (theirs, torch.float64)):
        leaves = [x.to(dtype).requires_grad_() for x in draw(shapes, torch.float32)]
        first = torch.autograd.grad(f(*leaves).square().sum(), leaves, create_graph=True)
        found.append(torch.autograd.grad(sum(one.square().sum() for one in first), leaves))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", CASES)
def test_same_bits_for_any_number_of_threads(name):
    ours, _, shapes = CASES[name]
    if "cross" in name:
        given = [torch.randn(5, 40_000)]
    else:
        given = [torch.randn(s if len(s) < 3 else (2, 3000, *s[2:])) for s in shapes]
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            leaves = [x.detach().requires_grad_() for x in given]
            out = ours(*leaves)
            found.append([out, *torch.autograd.grad(out.sum(), leaves)])
    finally:
        torch.set_num_threads(before)
    for others in found[1:]:
        assert all(map(torch.equal, found[0], others))


@pytest.mark.parametrize("name", CASES)
def test_transforms_and_compilation(name):
    ours, theirs, shapes = CASES[name]
    given = draw(shapes, torch.float32)
    direction = [torch.randn_like(x) for x in given]
    _, got = torch.func.jvp(ours, tuple(given), tuple(direction))
    _, wanted = torch.func.jvp(
        theirs, tuple(x.double() for x in given), tuple(x.double() for x in direction)
    )
    torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-4)
    torch.compiler.reset()  # many forms are one function, which may be compiled 8 times
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*given), ours(*given))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_opcheck(dtype):
    def leaves(*shapes):
        return [x.requires_grad_() for x in draw(shapes, dtype)]

    x, y, w = leaves(ROWS, ROWS, (19,))
    o, r, k, v, g = leaves((2, 5, 21), HEADS, HEADS, HEADS, (2, 5, 21))
    z, q, rk = leaves((5, 7), HEADS, (3, 7))
    opcheck(TARN.entry_form.default, (x, y, None, "silu_gate", 1.0))
    opcheck(TARN.entry_form.default, (x, y, w, "mixed_gate", 1.0))
    opcheck(TARN.rotate_rows.default, (q, *tables(q, 3)))
    opcheck(TARN.cross_entropy.default, (z, TARGET, 0.1, 1.0, 0.1))
    opcheck(TARN.gate_correction.default, (o, r, k, rk, v, g))
    opcheck(TARN.row_mixes.default, (x, y, [w, w.detach().clone().requires_grad_()]))
    A_log, factors, before = leaves((19,), (3,), (2, 19))
    opcheck(TARN.decay_gate.default, (x, A_log, w, "softplus", 1.0, True))
    opcheck(TARN.decay_gate.default, (x, None, None, "exponential"))
    opcheck(TARN.unit_norm.default, (r, 1e-6))
    opcheck(TARN.depth_bounds.default, (z,))
    opcheck(TARN.token_shift.default, (x, before, w))
    opcheck(TARN.token_shift.default, (x[:1], before, None, torch.tensor([0, 2, 5])))
    opcheck(TARN.head_scale.default, (r, factors, k))
    opcheck(TARN.channel_mix.default, (x, before, w, *leaves((7, 19), (19, 7))))
    x, y, w, o, r, k, v, g, z, rk = (one.detach() for one in (x, y, w, o, r, k, v, g, z, rk))
    opcheck(TARN.entry_form_backward.default, (x, x, y, w, "mixed_gate", 1.0))
    opcheck(TARN.gate_correction_backward.default, (o, o, r, k, rk, v, g))
    opcheck(TARN.row_mixes_backward.default, ([x, y], x, [w, w]))
    A_log, factors, before = (one.detach() for one in (A_log, factors, before))
    wide = x.float()
    opcheck(TARN.decay_gate_backward.default, (wide, wide, x, A_log, w, "softplus", 1.0))
    opcheck(TARN.unit_norm_backward.default, (r, k, 1e-6))
    opcheck(TARN.token_shift_backward.default, (x, y, before, w, None))
    opcheck(TARN.head_scale_backward.default, (r, k, factors))
    opcheck(
        TARN.cross_entropy_backward.default,
        (torch.randn(5), z, TARGET, torch.randn(5, 2), 0.1, 1.0, 0.1, 0.0, -100),
    )


def test_what_the_kernels_do_not_take_is_composed():
    x, y = draw((ROWS, ROWS), torch.bfloat16)
    torch.testing.assert_close(
        TARN.entry_form(x, y.float(), None, "silu_gate"), (F.silu(x.float()) * y.float()).bfloat16()
    )
    torch.testing.assert_close(
        TARN.entry_form(x, y[:, :1], None, "silu_gate"),
        (F.silu(x.float()) * y[:, :1].float()).bfloat16(),
    )
    column = torch.randn(5, 1)
    for weights in ([y], [column], [y[0, 0], y[0, 0].float()], [y[0, 0]] * 9):
        for one, weight in zip(TARN.row_mixes(x, y, weights), weights, strict=True):
            assert torch.equal(one, torch.addcmul(x.float(), y.float(), weight.float()).bfloat16())
    assert TARN.row_mixes(x, y, []) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_channel_mix(dtype):
    def theirs(x, before, shift, first, second):
        return (shifted(x, shift, before) @ first.T).clamp(min=0) ** 2 @ second.T

    given = [
        x.requires_grad_() for x in draw(((2, 5, 19), (2, 19), (19,), (7, 19), (19, 7)), dtype)
    ]
    double = [x.detach().double().requires_grad_() for x in given]
    got, wanted = TARN.channel_mix(*given), theirs(*double)
    torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=1e-4)
    flow = torch.randn_like(wanted)
    for one, other in zip(
        torch.autograd.grad(got, given, flow.to(dtype)),
        torch.autograd.grad(wanted, double, flow),
        strict=True,
    ):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-4)


def test_dropout_of_the_channel_mix_scales_what_it_keeps():
    x, shift = torch.rand(1, 64, 8), torch.full((8,), 0.5)
    first, second = torch.eye(8), torch.eye(8)
    seed = torch.tensor(3)
    kept = TARN.channel_mix(x, None, shift, first, second)
    dropped = TARN.channel_mix(x, None, shift, first, second, 0.5, seed)
    assert 0.3 < (dropped == 0).float().mean() < 0.7
    torch.testing.assert_close(dropped[dropped != 0], 2 * kept[dropped != 0])


def test_gates_of_any_size_are_numbers():
    x = torch.tensor([-1e30, -200.0, -30.0, 0.0, 30.0, 200.0, 1e30], requires_grad=True)
    bound = torch.tensor([0.0, 0.25, 0.0, 0.0, 0.5, 0.0, 0.25], requires_grad=True)
    for composed in (False, True):
        TARN.force_composed(composed)
        try:
            results = [
                *TARN.decay_gate(x, None, None, "softplus", 1.0, True),
                TARN.decay_gate(x, None, None, "log_sigmoid")[0],
                *TARN.decay_gate(x, None, bound, "bounded", 1.0, True),
                TARN.decay_gate(x, None, None, "sigmoid")[0],
            ]
        finally:
            TARN.force_composed(False)
        found = torch.autograd.grad(sum(one.clamp(-1e4, 1e4).sum() for one in results), (x, bound))
        assert all(torch.isfinite(one).all() for one in (*results, found[0]))
        # By the bound: e^-x where it is 0, which float32 does not hold for every x.
        assert not any(one.isnan().any() for one in found)


def test_a_gradient_of_one_of_two_results():
    x, bias = torch.randn(2, 5, 6, requires_grad=True), torch.rand(6, requires_grad=True)
    for place in (0, 1):
        got = TARN.decay_gate(x, None, bias, "bounded", 1.0, True)[place].sum()
        ours = torch.autograd.grad(got, (x, bias))
        TARN.force_composed(True)
        try:
            wanted = TARN.decay_gate(x, None, bias, "bounded", 1.0, True)[place].sum()
            theirs = torch.autograd.grad(wanted, (x, bias))
        finally:
            TARN.force_composed(False)
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_states_of_float32_are_read_in_the_dtype_of_rows():
    x, before = draw(((2, 5, 19), (2, 19)), torch.bfloat16)
    exact = before.float() + 1e-4  # rounds to before
    assert torch.equal(TARN.token_shift(x, exact), TARN.token_shift(x, before))
    leaf = exact.requires_grad_()
    assert torch.autograd.grad(TARN.token_shift(x, leaf).sum(), leaf)[0].dtype == torch.float32


def test_head_scale_has_the_dtype_of_its_base():
    values, base = torch.randn(2, 3, 4), torch.randn(2, 3, 4).bfloat16()
    factors = torch.randn(3)
    got = TARN.head_scale(values, factors, base)
    assert torch.equal(got, (base.float() + values * factors[:, None]).bfloat16())


def test_a_mix_that_nothing_reads_has_no_gradient():
    x, d, *weights = [
        one.requires_grad_() for one in draw((ROWS, ROWS, (19,), (19,)), torch.float32)
    ]
    found = torch.autograd.grad(TARN.row_mixes(x, d, weights)[1].sum(), (x, d, *weights))
    wanted = torch.autograd.grad((x + d * weights[1]).sum(), (x, d, weights[1]))
    for one, other in zip([*found[:2], found[3]], wanted, strict=True):
        torch.testing.assert_close(one, other)
    assert not found[2].any()


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (
            lambda x: TARN.entry_form(x, None, None, "tanh"),
            ValueError,
            "entry_form: form: want one of silu_gate",
        ),
        (
            lambda x: TARN.entry_form(x, None, None, "silu_gate"),
            ValueError,
            "y .silu_gate.: want a tensor, got None",
        ),
        (
            lambda x: TARN.entry_form(x, x, None, "elu1"),
            ValueError,
            "y .elu1.: want None, got a tensor",
        ),
        (
            lambda x: TARN.entry_form(x, x, None, "mixed_gate"),
            ValueError,
            "weight .mixed_gate.: want a tensor",
        ),
        (
            lambda x: TARN.entry_form(x, x, x, "silu_gate"),
            ValueError,
            "weight .silu_gate.: want None",
        ),
        (
            lambda x: TARN.rotate_rows(x, x, x),
            ValueError,
            r"rotate_rows: x: want \[batch, seq_len, heads, width\]",
        ),
        (
            lambda x: TARN.rotate_rows(x[None], x[:, :5], x[:, :5]),
            ValueError,
            "rotate_rows: cos: want",
        ),
        (
            lambda x: TARN.cross_entropy(x[0], TARGET),
            ValueError,
            r"logits: want \[tokens, classes\]",
        ),
        (
            lambda x: TARN.decay_gate(x, None, None, "tanh"),
            ValueError,
            "decay_gate: form: want one of softplus, ",
        ),
        (
            lambda x: TARN.decay_gate(x, None, None, "bounded"),
            ValueError,
            "decay_gate: bias .bounded.: want a tensor",
        ),
        (
            lambda x: TARN.decay_gate(x, x[0], None, "exponential"),
            ValueError,
            "decay_gate: A_log .exponential.: want None",
        ),
        (
            lambda x: TARN.decay_gate(x, x[0, :3], None, "softplus"),
            ValueError,
            r"decay_gate: A_log: want \[heads\], a divisor of 7, got \[3\]",
        ),
        (
            lambda x: TARN.decay_gate(x, None, x[0, :3], "softplus"),
            ValueError,
            r"decay_gate: bias: want \[7\], got \[3\]",
        ),
        (
            lambda x: TARN.decay_gate(x, None, None, "sigmoid", 1.0, True),
            ValueError,
            "decay_gate: second .sigmoid.: want False",
        ),
        (
            lambda x: TARN.decay_gate(x, None, None, "softplus", 1.0, False, 2.0, 1.0),
            ValueError,
            "decay_gate: least .softplus.: want a number from 0 to most = 1",
        ),
        (
            lambda x: TARN.decay_gate(x, None, None, "sigmoid", 1.0, False, 0.5),
            ValueError,
            "decay_gate: least, most .sigmoid.: want no limits",
        ),
        (lambda x: TARN.decay_gate(x.int(), None, None, "sigmoid"), TypeError, "decay_gate: x"),
        (lambda x: TARN.depth_bounds(x.int()), TypeError, "depth_bounds: logits: want"),
        (
            lambda x: TARN.depth_bounds(x[0]),
            ValueError,
            r"depth_bounds: logits: want \[layers, channels\], layers > 0, got \[7\]",
        ),
        (lambda x: TARN.unit_norm(x, -1.0), ValueError, "unit_norm: eps: want at least 0"),
        (lambda x: TARN.unit_norm(x.int(), 1e-6), TypeError, "unit_norm: x: want"),
        (
            lambda x: TARN.token_shift(x),
            ValueError,
            r"token_shift: x: want \[batch, seq_len, width\], got \[5, 7\]",
        ),
        (
            lambda x: TARN.token_shift(x[None], x),
            ValueError,
            r"token_shift: before: want \[1, 7\]",
        ),
        (
            lambda x: TARN.token_shift(x[None], None, x[0, :3]),
            ValueError,
            r"token_shift: weight: want \[7\]",
        ),
        (
            lambda x: TARN.token_shift(x[None], None, None, torch.tensor([0, 3])),
            ValueError,
            "token_shift: cu_seqlens",
        ),
        (
            lambda x: TARN.head_scale(x[0], x[0]),
            ValueError,
            r"head_scale: values: want \[..., heads, width\]",
        ),
        (
            lambda x: TARN.head_scale(x, x[0]),
            ValueError,
            r"head_scale: factors: want \[5\], got \[7\]",
        ),
        (
            lambda x: TARN.head_scale(x, x[:, 0], x[:, :3]),
            ValueError,
            r"head_scale: base: want \[5, 7\]",
        ),
        (lambda x: TARN.cross_entropy(x, TARGET[:3]), ValueError, r"target: want \[5\], got \[3\]"),
        (lambda x: TARN.cross_entropy(x, TARGET.int()), TypeError, "target: want Long, got Int"),
        (
            lambda x: TARN.cross_entropy(x, TARGET + 4),
            ValueError,
            r"target\[0\]: want 0 to 6 or -100, got 7",
        ),
    ],
)
def test_refusals(call, kind, words):
    with pytest.raises(kind, match=words):
        call(torch.zeros(5, 7) if "rotate" not in words else torch.zeros(5, 3, 7))
