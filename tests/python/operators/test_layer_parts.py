"""layer_heads and layer_rest: the parts before and after a mixer, against torch's own
operators in float64, and inside torch's own checks."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.library import opcheck
from torch.nn.functional import gelu, layer_norm, linear, relu, rms_norm

from tarn import ops

TARN = torch.ops.tarn
SEEDS = torch.tensor([11, 22, 33])
DROPOUTS = [(), (0.1, 0.2, 0.3), (0.0, 0.2, 0.0), (0.0, 0.0, 0.25)]


def rand(*shape, dtype=torch.float32):
    scale = shape[-1] ** -0.5 if len(shape) == 2 else 1.0
    return (torch.randn(*shape, dtype=dtype) * scale).requires_grad_()


def norm(x, gamma, beta, kind):
    if kind == "rms":
        return rms_norm(x, x.shape[-1:], gamma, 1e-5)
    return layer_norm(x, x.shape[-1:], gamma, beta, 1e-5)


def rest_tensors(rows=(3, 67), kind="layer", post=False, bias=True, dtype=torch.float32):
    d, v, f = 20, 12, 33
    made = lambda wanted, *shape: rand(*shape, dtype=dtype) if wanted else None
    layer = kind == "layer"
    return [
        rand(*rows, d, dtype=dtype),
        rand(*rows, v, dtype=dtype),
        rand(d, v, dtype=dtype),
        made(bias, d),
        rand(d, dtype=dtype),
        made(layer, d),
        rand(f, d, dtype=dtype),
        rand(f, dtype=dtype),
        rand(d, f, dtype=dtype),
        made(bias, d),
        made(post, d),
        made(post and layer, d),
    ]


def dropped(x, site, dropout):
    if not dropout or dropout[site] == 0:
        return x
    rows, width = x.numel() // x.shape[-1], x.shape[-1]
    return x * ops.dropout_scales(SEEDS[site], rows, width, dropout[site]).view(x.shape).to(x)


def plain_rest(x, mixed, wo, bo, gamma, beta, w1, b1, w2, b2, end, end_beta, **options):
    act = {"relu": relu, "gelu": gelu}[options["activation"]]
    kind, dropout = options["kind"], options["dropout"]
    s = x + dropped(linear(mixed, wo, bo), 0, dropout)
    n = norm(s, gamma, beta, kind)
    h = dropped(act(linear(n, w1, b1)), 1, dropout)
    y = (s if end is None else n) + dropped(linear(h, w2, b2), 2, dropout)
    return y if end is None else norm(y, end, end_beta, kind)


def heads_tensors(rows=(3, 67), outputs=(8, 8, 20), kind="layer", bias=True, dtype=torch.float32):
    d = 18
    weights = [rand(e, d, dtype=dtype) for e in outputs]
    biases = [rand(e, dtype=dtype) for e in outputs] if bias else []
    gamma = None if kind is None else rand(d, dtype=dtype)
    beta = rand(d, dtype=dtype) if kind == "layer" else None
    return rand(*rows, d, dtype=dtype), weights, biases, gamma, beta


def plain_heads(x, weights, biases, gamma, beta, kind):
    n = x if gamma is None else norm(x, gamma, beta, kind)
    return torch.cat(
        [linear(n, w, biases[i] if biases else None) for i, w in enumerate(weights)], -1
    )


def flat(tensors):
    lists = [t if isinstance(t, list) else [t] for t in tensors]
    return [t for part in lists for t in part if t is not None]


def wide(tensors):
    double = lambda t: None if t is None else t.detach().double().requires_grad_()
    return [list(map(double, t)) if isinstance(t, list) else double(t) for t in tensors]


def with_gradients(call, tensors):
    y = call(*tensors)
    drawn = torch.Generator().manual_seed(1)  # so that sums over rows do not cancel
    weights = torch.randn(y.shape, generator=drawn, dtype=torch.float64).to(y.dtype)
    return [y, *torch.autograd.grad((y * weights).sum(), flat(tensors))]


def near(got, want, bound):
    for a, b in zip(got, want, strict=True):
        error = (a.double() - b.double()).abs().max().item()
        assert error <= bound * max(1.0, b.abs().max().item()), error


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dropout", DROPOUTS)
@pytest.mark.parametrize("post", [False, True])
@pytest.mark.parametrize(
    "kind, activation, bias", [("layer", "gelu", True), ("rms", "relu", False)]
)
def test_rest_equals_plain_torch(kind, activation, bias, post, dropout, threads):
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    options = {"kind": kind, "activation": activation, "dropout": dropout}
    seeds = {"seeds": SEEDS} if dropout else {}
    for dtype, bound in ((torch.float32, 3e-5), (torch.float64, 1e-12)):
        tensors = rest_tensors(kind=kind, post=post, bias=bias, dtype=dtype)
        got = with_gradients(lambda *t: ops.layer_rest(*t, **options, **seeds), tensors)
        want = with_gradients(lambda *t: plain_rest(*t, **options), wide(tensors))
        near(got, want, bound)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("outputs", [(8, 8, 20), (70,), (1, 2, 3, 4)])
@pytest.mark.parametrize("kind", [None, "layer", "rms"])
def test_heads_equal_plain_torch(kind, outputs, bias, threads):
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    for dtype, bound in ((torch.float32, 3e-5), (torch.float64, 1e-12)):
        tensors = heads_tensors((3, 67), outputs, kind, bias, dtype)
        name = kind or "layer"
        got = with_gradients(lambda *t: ops.layer_heads(*t, kind=name), tensors)
        near(got, with_gradients(lambda *t: plain_heads(*t, name), wide(tensors)), bound)


def rest_call(**options):
    return lambda *t: ops.layer_rest(*t[:10], activation="gelu", **options)


def heads_call(x, w0, w1, b0, b1, gamma, beta):
    return ops.layer_heads(x, [w0, w1], [b0, b1], gamma, beta)


def heads_list(dtype):
    return flat(heads_tensors((2, 3), (4, 5), dtype=dtype))


def test_gradients_and_theirs_by_finite_differences():
    rest = flat(rest_tensors((2, 2), dtype=torch.float64))
    assert gradcheck(rest_call(), rest)
    assert gradgradcheck(rest_call(), rest)
    assert gradcheck(heads_call, heads_list(torch.float64))
    assert gradgradcheck(heads_call, heads_list(torch.float64))


def test_gradients_of_gradients_in_float32():
    for call, tensors in (
        (rest_call(), flat(rest_tensors((2, 5)))),
        (heads_call, heads_list(torch.float32)),
    ):
        results = []
        for inputs in (tensors, wide(tensors)):
            (first,) = torch.autograd.grad(
                call(*inputs).square().sum(), inputs[0], create_graph=True
            )
            results.append(torch.autograd.grad(first.square().sum(), inputs[0]))
        near(*results, 1e-4)


def test_composed_forms_agree_with_the_kernels():
    for call, tensors in (
        (rest_call(dropout=(0.1, 0.2, 0.3), seeds=SEEDS), flat(rest_tensors())),
        (heads_call, heads_list(torch.float32)),
    ):
        kernel = with_gradients(call, tensors)
        with ops.composed_forms():
            near(with_gradients(call, tensors), kernel, 1e-5)


def test_strided_rows_and_none():
    x, mixed, *weights = rest_tensors()
    turned = [t.detach().transpose(0, 1).contiguous().transpose(0, 1) for t in (x, mixed)]
    assert torch.equal(ops.layer_rest(*turned, *weights), ops.layer_rest(x, mixed, *weights))
    for rows in ((0,), (3, 0)):
        tensors = rest_tensors(rows)
        for gradient in with_gradients(ops.layer_rest, tensors)[1:]:
            assert gradient.numel() == 0 or not gradient.any()


def test_autocast_takes_products_in_bfloat16():
    tensors = rest_tensors()
    exact = ops.layer_rest(*tensors)
    with torch.autocast("cpu", torch.bfloat16):
        near([ops.layer_rest(*tensors)], [exact], 0.05)
        tensors[1] = tensors[1].bfloat16()  # as a mixer leaves its rows
        near([ops.layer_rest(*tensors)], [exact], 0.05)
        x, weights, biases, *rest = heads_tensors()
        assert ops.layer_heads(x, weights, biases, *rest).dtype == torch.bfloat16


def test_torch_checks_the_operators():
    tests = ("test_schema", "test_faketensor")
    detached = lambda list_: [None if t is None else t.detach() for t in list_]
    for post in (False, True):
        inputs = detached(rest_tensors((2, 3), post=post))
        present = [torch.empty(0) if t is None else t for t in inputs]
        arguments = (present, 1e-5, "gelu", "layer", [], None)
        opcheck(TARN.layer_rest_forward.default, arguments, test_utils=tests)
    x, weights, biases, gamma, beta = heads_tensors((2, 3))
    inputs = (x.detach(), detached(weights), detached(biases), gamma.detach(), beta.detach())
    opcheck(TARN.layer_heads_forward.default, inputs, test_utils=tests)


@pytest.mark.filterwarnings("ignore")
def test_compiles_whole():
    def call(*tensors):
        return ops.layer_rest(*tensors, activation="gelu").square().sum()

    results = []
    for function in (call, torch.compile(call, fullgraph=True, backend="aot_eager")):
        tensors = rest_tensors()
        with torch.no_grad():
            for i, t in enumerate(flat(tensors)):
                t.copy_(torch.linspace(-1, 1, t.numel()).view(t.shape).roll(i))
        results.append(torch.autograd.grad(function(*tensors), flat(tensors)))
    near(results[1], results[0], 1e-6)


@pytest.mark.parametrize(
    "change, error, words",
    [
        (dict(mixed=torch.randn(2, 3, 11)), ValueError, "out_weight"),
        (dict(weight1=torch.randn(33, 19)), ValueError, "weight1"),
        (dict(weight2=torch.randn(20, 32)), ValueError, "weight2"),
        (dict(gamma=torch.randn(20).double()), TypeError, "gamma"),
        (dict(beta=None), ValueError, "beta"),
        (dict(end_gamma=torch.randn(20)), ValueError, "end_beta"),
        (dict(activation="tanh"), ValueError, "activation"),
        (dict(kind="batch"), ValueError, "kind"),
        (dict(dropout=(0.1,)), ValueError, "dropout"),
        (dict(dropout=(0.1, 0.1, 0.1)), ValueError, "seeds"),
        (dict(dropout=(0.1, 0.1, 1.0), seeds=SEEDS), ValueError, "probability"),
    ],
)
def test_rest_names_what_is_wrong(change, error, words):
    names = "x mixed out_weight out_bias gamma beta weight1 bias1 weight2 bias2".split()
    tensors = dict(zip(names, rest_tensors((2, 3))[:10])) | change
    with pytest.raises(error, match=words):
        ops.layer_rest(**tensors)


@pytest.mark.parametrize(
    "change, error, words",
    [
        (dict(weights=[]), ValueError, "weights"),
        (dict(weights=[torch.randn(4, 18)] * 5), ValueError, "weights"),
        (dict(weights=[torch.randn(4, 17)], biases=[]), ValueError, "weights"),
        (dict(biases=[torch.randn(8)]), ValueError, "biases"),
        (dict(gamma=torch.randn(17)), ValueError, "gamma"),
        (dict(beta=None), ValueError, "beta"),
        (dict(x=torch.randn(2, 18).double()), TypeError, "weights"),
    ],
)
def test_heads_name_what_is_wrong(change, error, words):
    names = "x weights biases gamma beta".split()
    tensors = dict(zip(names, heads_tensors((2, 3)))) | change
    with pytest.raises(error, match=words):
        ops.layer_heads(**tensors)
