"""tarn.ops.gated_norm against its equations in float64: outputs and gradients of every
input, by the kernel and by the composed form."""

import itertools

import pytest
import torch
from torch.library import opcheck

from tarn import ops

OP = torch.ops.tarn.gated_norm.default
# float32 sums of a row; what halves are rounded to, relative to their size.
BOUND = {torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float64: 1e-12}
# With and without a gate, a bias and weights of groups; where a gate's place and
# activation mean nothing, they are not varied.
FORMS = [
    {
        "gate": gate,
        "bias": bias,
        "by_group": by_group,
        "centred": centred,
        "activation": activation,
        "gate_first": gate_first,
    }
    for gate, bias, by_group, centred, activation, gate_first in itertools.product(
        (True, False),
        (True, False),
        (True, False),
        (True, False),
        ("silu", "sigmoid"),
        (True, False),
    )
    if gate or (activation == "silu" and not gate_first)
]


def problem(form, shape, dtype=torch.float32):
    torch.manual_seed(sum(shape))
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    weights = shape[2:] if form["by_group"] else shape[3:]
    x = {"x": torch.randn(shape).to(dtype), "weight": torch.randn(weights).to(wide)}
    if form["bias"]:
        x["bias"] = torch.randn(weights).to(wide)
    if form["gate"]:
        x["gate"] = (2 * torch.randn(shape)).to(dtype)
    return x


def options(form):
    return {name: form[name] for name in ("centred", "activation", "gate_first")}


def call(x, form, **more):
    return ops.gated_norm(
        x["x"], x["weight"], x.get("bias"), x.get("gate"), **options(form), **more
    )


def reference(x, form, eps=1e-5):
    x = {name: one.double() for name, one in x.items()}
    gate = torch.sigmoid(x["gate"]) if "gate" in x else None
    if gate is not None and form["activation"] == "silu":
        gate = gate * x["gate"]
    u = x["x"] if gate is None or not form["gate_first"] else x["x"] * gate
    if form["centred"]:
        u = u - u.mean(-1, keepdim=True)
    n = u / (u.square().mean(-1, keepdim=True) + eps).sqrt()
    y = n * x["weight"] + x.get("bias", 0)
    return y if gate is None or form["gate_first"] else y * gate


def near(got, wanted, bound):
    torch.testing.assert_close(got.double(), wanted, rtol=bound, atol=bound)


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize(
    "shape",
    [(1, 1, 1, 4), (2, 0, 2, 5), (0, 4, 1, 3), (2, 7, 3, 64), (3, 2, 1, 130), (1, 33, 2, 17)],
)
def test_outputs(dtype, shape):
    for form in FORMS:
        x = problem(form, shape, dtype)
        out = call(x, form)
        assert out.dtype == dtype and out.shape == shape
        # Rows of 4 may be close together: their difference is amplified.
        near(out, reference(x, form), BOUND[dtype] * (10 if shape[3] < 8 else 1))


def test_eps():
    x = torch.ones(1, 1, 1, 2)
    near(ops.gated_norm(x, torch.full((2,), 2.0), eps=3.0), torch.ones(1, 1, 1, 2).double(), 1e-6)


def gradients(x, f, flow):
    leaves = {name: one.detach().requires_grad_() for name, one in x.items()}
    (f(leaves).double() * flow).sum().backward()
    return {name: one.grad for name, one in leaves.items()}


@pytest.mark.parametrize("composed", [False, True])
@pytest.mark.parametrize("shape", [(2, 9, 2, 37), (1, 40, 3, 16), (2, 0, 2, 5)])
def test_gradients(composed, shape):
    for form in FORMS:
        x = problem(form, shape)
        flow = torch.randn(shape, dtype=torch.float64)
        wanted = gradients(x, lambda leaves, form=form: reference(leaves, form), flow)
        torch.ops.tarn.force_composed(composed)
        try:
            got = gradients(x, lambda leaves, form=form: call(leaves, form), flow)
        finally:
            torch.ops.tarn.force_composed(False)
        for name, gradient in wanted.items():
            assert got[name].dtype == torch.float32
            near(got[name], gradient.double(), 2e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_of_halves(dtype):
    for form in FORMS:
        x = problem(form, (2, 5, 2, 33), dtype)
        flow = torch.randn(2, 5, 2, 33).to(dtype).double()
        wanted = gradients(x, lambda leaves, form=form: reference(leaves, form), flow)
        got = gradients(x, lambda leaves, form=form: call(leaves, form), flow)
        for name, gradient in wanted.items():
            assert got[name].dtype == x[name].dtype
            near(got[name], gradient.double(), 2 * BOUND[dtype])


def test_gradcheck_to_second_order():
    for form in FORMS:
        x = problem(form, (1, 2, 2, 3), torch.float64)
        leaves = [one.requires_grad_() for one in x.values()]

        def f(*given, x=x, form=form):
            return call(dict(zip(x, given, strict=True)), form)

        assert torch.autograd.gradcheck(f, leaves)
        assert torch.autograd.gradgradcheck(f, leaves)


def test_gradients_of_gradients_begin_at_the_kernel():
    form = FORMS[0]
    single, double = [
        {name: one.to(dtype).requires_grad_() for name, one in problem(form, (2, 5, 2, 8)).items()}
        for dtype in (torch.float32, torch.float64)
    ]
    seconds = []
    for x in (single, double):
        first = torch.autograd.grad(call(x, form).square().sum(), x["x"], create_graph=True)[0]
        seconds.append(torch.autograd.grad(first.sum(), x["gate"])[0])
    near(seconds[0], seconds[1], 1e-4)


def test_same_bits_for_any_number_of_threads_layout_and_split():
    form = FORMS[0]
    x = {name: one.requires_grad_() for name, one in problem(form, (2, 700, 3, 24)).items()}
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            out = call(x, form)
            found.append([out, *torch.autograd.grad(out.square().sum(), list(x.values()))])
    finally:
        torch.set_num_threads(before)
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            assert torch.equal(one, other)
    strided = dict(x, x=x["x"].detach().transpose(1, 2).contiguous().transpose(1, 2))
    strided["gate"] = torch.cat([x["gate"], x["gate"]], -1)[..., :24]
    assert torch.equal(call(strided, form), found[0][0])
    one = {name: part[:, 5:6] if part.dim() == 4 else part for name, part in x.items()}
    assert torch.equal(call(one, form), found[0][0][:, 5:6])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_opcheck(dtype):
    for form in (FORMS[0], FORMS[-1]):
        x = {name: one.requires_grad_() for name, one in problem(form, (2, 3, 2, 5), dtype).items()}
        x["x"] = x["x"].detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()
        arguments = (
            x["x"],
            x["weight"],
            x.get("bias"),
            x.get("gate"),
            1e-5,
            form["centred"],
            form["activation"],
            form["gate_first"],
        )
        opcheck(OP, arguments)
        if dtype == torch.float32:
            plain = [one.detach() if isinstance(one, torch.Tensor) else one for one in arguments]
            opcheck(torch.ops.tarn.gated_norm_backward.default, (torch.randn(2, 3, 2, 5), *plain))


def test_compiled_whole():
    form = FORMS[0]
    x = problem(form, (2, 9, 2, 5))
    compiled = torch.compile(lambda leaves: call(leaves, form), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), call(x, form))


def test_autocast_keeps_norms_in_float32():
    form = FORMS[0]
    x = problem(form, (2, 3, 2, 16))
    x["gate"] = x["gate"].bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = call(x, form)
    assert out.dtype == torch.float32
    near(out, reference(x, form), BOUND[torch.float32])


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"x": torch.zeros(2, 9, 5)}, ValueError, r"x: want \[batch, seq_len, groups, width\]"),
        ({"x": [1.0]}, TypeError, "x: want a tensor, got list"),
        ({"x": torch.zeros(2, 3, 2, 5, dtype=torch.int64)}, TypeError, "x: want float32"),
        ({"weight": torch.zeros(4)}, ValueError, r"weight: want \[5\], got \[4\]"),
        ({"weight": torch.zeros(3, 5)}, ValueError, r"weight: want \[2, 5\], got \[3, 5\]"),
        ({"weight": None}, TypeError, "weight: want a tensor"),
        ({"bias": torch.zeros(2, 5)}, ValueError, r"bias: want \[5\], got \[2, 5\]"),
        ({"gate": torch.zeros(2, 3, 1, 5)}, ValueError, r"gate: want \[2, 3, 2, 5\]"),
        ({"gate": torch.zeros(2, 3, 2, 5).half()}, TypeError, "gate: want Float, got Half"),
        ({"activation": "relu"}, ValueError, 'activation: want "silu" or "sigmoid"'),
        ({"eps": -1.0}, ValueError, "eps: want at least 0, got -1"),
    ],
)
def test_refusals(change, kind, words):
    given = {"x": torch.zeros(2, 3, 2, 5), "weight": torch.ones(5)} | change
    with pytest.raises(kind, match=words):
        ops.gated_norm(given.pop("x"), given.pop("weight"), **given)
