"""Mixtures of experts: the router, the experts and the load-balancing loss against their
equations in plain torch, and inside torch's own checks."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import gradcheck, gradgradcheck
from torch.library import opcheck

from tarn import ops

TARN = torch.ops.tarn
ROUTERS = list(itertools.product(["softmax", "sigmoid"], [True, False], [1.0, 2.5]))
CURVES = {"silu": F.silu, "gelu": F.gelu, "relu": F.relu, "relu2": lambda x: F.relu(x) ** 2}


def plain_router(logits, top_k, scores, normalize, scale, bias=None):
    """By definition; random logits have no ties."""
    every = logits.softmax(-1) if scores == "softmax" else logits.sigmoid()
    chosen = (every if bias is None else every + bias).topk(top_k)[1]
    own = every.gather(-1, chosen)
    return (own / own.sum(-1, keepdim=True) if normalize else own) * scale, chosen


def plain_experts(x, chosen, weights, weight1, weight2, weight3, activation):
    """Token by token."""
    rows = []
    flat = zip(x.flatten(0, -2), chosen.flatten(0, -2), weights.flatten(0, -2), strict=True)
    for row, experts, shares in flat:
        out = torch.zeros_like(row)
        for e, share in zip(experts, shares, strict=True):
            hidden = CURVES[activation](weight1[e] @ row)
            if weight3 is not None:
                hidden = hidden * (weight3[e] @ row)
            out = out + share * (weight2[e] @ hidden)
        rows.append(out)
    return torch.stack(rows).view(x.shape) if rows else x * 1


def draw(tokens=(2, 7), top_k=2, experts=5, d_model=6, d_ff=9, dtype=torch.float32, gated=True):
    """x, chosen, weights, weight1, weight2, weight3; the last expert is never chosen."""
    torch.manual_seed(0)

    def leaf(*shape):
        return torch.randn(shape, dtype=torch.float64).to(dtype).requires_grad_()

    chosen = torch.rand(*tokens, experts - 1).argsort(-1)[..., :top_k]
    first = leaf(*tokens, d_model), chosen, leaf(*tokens, top_k)
    matrices = leaf(experts, d_ff, d_model), leaf(experts, d_model, d_ff)
    return [*first, *matrices, leaf(experts, d_ff, d_model) if gated else None]


def leaves(tensors):
    return [t for t in tensors if t is not None and t.requires_grad]


def doubled(tensors):
    return [
        t if t is None or not t.requires_grad else t.detach().double().requires_grad_()
        for t in tensors
    ]


def near(got, wanted, bound):
    size = wanted.abs().max().clamp_min(1) if wanted.numel() else 1
    assert got.shape == wanted.shape
    assert (got.double() - wanted).abs().le(bound * size).all()


@pytest.fixture(params=[False, True], ids=["kernel", "composed"])
def form(request):
    TARN.force_composed(request.param)
    yield
    TARN.force_composed(False)


@pytest.mark.parametrize("router", ROUTERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_router_equals_plain_torch(dtype, router, form):
    logits = (3 * torch.randn(2, 30, 9, dtype=dtype)).requires_grad_()
    wide = logits.detach().double().requires_grad_()
    scores, normalize, scale = router
    got, chosen = ops.route_tokens(logits, 4, scores=scores, normalize=normalize, scale=scale)
    wanted, theirs = plain_router(wide, 4, *router)
    assert torch.equal(chosen, theirs) and got.dtype == dtype
    near(got, wanted, 1e-6)
    flow = torch.randn(2, 30, 4, dtype=dtype)
    near(
        *(
            torch.autograd.grad(y, z, flow.to(y.dtype))[0]
            for y, z in ((got, logits), (wanted, wide))
        ),
        2e-6,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_biases_choose_and_do_not_weigh(dtype, form):
    logits = (3 * torch.randn(2, 30, 9, dtype=dtype)).requires_grad_()
    wide = logits.detach().double().requires_grad_()
    bias = torch.randn(9)
    got, chosen = ops.route_tokens(logits, 4, scores="sigmoid", scale=2.5, bias=bias)
    wanted, theirs = plain_router(wide, 4, "sigmoid", True, 2.5, bias.double())
    assert torch.equal(chosen, theirs)
    assert not torch.equal(chosen, ops.route_tokens(logits, 4, scores="sigmoid")[1])
    near(got, wanted, 1e-6)
    flow = torch.randn(2, 30, 4, dtype=dtype)
    (mine,) = torch.autograd.grad(got, logits, flow)
    near(mine, torch.autograd.grad(wanted, wide, flow.double())[0], 2e-6)
    with pytest.raises(ValueError, match="bias: want none with softmax scores"):
        ops.route_tokens(logits, 4, bias=bias)
    with pytest.raises(ValueError, match=r"bias: want \[9\]"):
        ops.route_tokens(logits, 4, scores="sigmoid", bias=bias[:3])


def test_ties_go_to_the_smaller_index(form):
    logits = torch.tensor([[1.0, 2, 2, 1, 2], [0, 0, 0, 0, 0], [3, float("nan"), 9, 4, 1]])
    _, chosen = ops.route_tokens(logits, 3)
    assert chosen.tolist() == [[1, 2, 4], [0, 1, 2], [1, 2, 3]]


@pytest.mark.parametrize("activation", CURVES)
@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_experts_equal_plain_torch(dtype, gated, activation, form):
    given = draw((3, 20), dtype=dtype, gated=gated)
    wide = doubled(given)
    got = ops.expert_feed_forward(*given, activation=activation)
    wanted = plain_experts(*wide, activation)
    near(got, wanted, 3e-6)
    flow = torch.randn_like(wanted)
    ours = torch.autograd.grad(got, leaves(given), flow.to(dtype))
    theirs = torch.autograd.grad(wanted, leaves(wide), flow)
    for one, other in zip(ours, theirs, strict=True):
        near(one, other, 3e-6)
    assert not ours[2][-1].any()  # of the expert that no token chose


@pytest.mark.parametrize("tokens", [(0,), (3, 0), (1,)])
def test_few_tokens(tokens, form):
    given = draw(tokens)
    got = ops.expert_feed_forward(*given)
    grads = torch.autograd.grad(got.sum(), leaves(given))
    assert got.shape == given[0].shape
    assert [g.shape for g in grads] == [t.shape for t in leaves(given)]
    weights, chosen = ops.route_tokens(torch.randn(*tokens, 5), 2)
    assert weights.shape == chosen.shape == (*tokens, 2)


def test_strided_operands():
    given = draw()
    turned = [
        t if t is None else t.detach().transpose(0, -1).contiguous().transpose(0, -1) for t in given
    ]
    assert torch.equal(ops.expert_feed_forward(*turned), ops.expert_feed_forward(*given))


@pytest.mark.parametrize("gated", [True, False])
def test_gradcheck(gated):
    x, chosen, *others = draw((4,), dtype=torch.float64, gated=gated)

    def run(*tensors):
        return ops.expert_feed_forward(tensors[0], chosen, *tensors[1:], activation="gelu")

    assert gradcheck(run, leaves([x, *others]))
    assert gradgradcheck(run, leaves([x, *others]))
    for router in ROUTERS:
        logits = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)

        def route(z, router=router):
            return TARN.moe_router(z, 2, *router)[0]

        assert gradcheck(route, [logits]) and gradgradcheck(route, [logits])


@pytest.mark.parametrize("gated", [True, False])
def test_gradients_of_gradients_begin_at_the_kernel(gated):
    found = []
    for dtype in (torch.float32, torch.float64):
        torch.manual_seed(0)
        x, chosen, _, *others = draw((5,), gated=gated)
        x, *others = doubled([x, *others]) if dtype == torch.float64 else [x, *others]
        logits = torch.randn(5, 5).to(dtype).requires_grad_()
        weights = TARN.moe_router(logits, 2)[0]
        out = ops.expert_feed_forward(x, chosen, weights, *others)
        inputs = [logits, *leaves([x, *others])]
        first = torch.autograd.grad(out.square().sum(), inputs, create_graph=True)
        found.append(torch.autograd.grad(sum(g.square().sum() for g in first), inputs))
    for one, other in zip(*found, strict=True):
        near(one, other, 1e-4)


def test_same_bits_for_any_number_of_threads():
    given, found, before = draw((2, 500), d_model=40, d_ff=200), [], torch.get_num_threads()
    try:
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            out = ops.expert_feed_forward(*given)
            found.append([out, *torch.autograd.grad(out.sum(), leaves(given))])
    finally:
        torch.set_num_threads(before)
    for others in found[1:]:
        assert all(map(torch.equal, found[0], others))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gated", [True, False])
def test_opcheck(gated, dtype):
    given = draw((3,), dtype=dtype, gated=gated)
    logits = torch.randn(3, 5, dtype=dtype, requires_grad=True)
    opcheck(TARN.moe_experts.default, (*given, "silu"))
    opcheck(TARN.moe_router.default, (logits, 2, "sigmoid", True, 2.0))
    opcheck(TARN.moe_router.default, (logits, 2, "sigmoid", True, 2.0, torch.randn(5)))
    opcheck(TARN.moe_balance_loss.default, (logits, given[1], "softmax"))


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("want_x", [True, False])
def test_opcheck_backward(want_x, gated):
    given = [t if t is None else t.detach() for t in draw((3,), gated=gated)]
    out, one, three = TARN.moe_experts.default(*given)
    opcheck(TARN.moe_experts_backward.default, (out, *given, one, three, "silu", want_x))
    logits = torch.randn(3, 5)
    weights, chosen = TARN.moe_router.default(logits, 2)
    opcheck(TARN.moe_router_backward.default, (weights, logits, chosen, "softmax", True, 1.0))


def test_keeps_first_products_alone():
    saved = []
    given = draw((50,), d_model=8, d_ff=16)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.numel()), lambda t: t):
        ops.expert_feed_forward(*given)
    assert sum(saved) == sum(t.numel() for t in given) + 2 * 50 * 2 * 16


def test_compiles_and_maps():
    given = [t.detach() for t in draw((4, 3))]

    def run(x, chosen, weights):
        return ops.expert_feed_forward(x, chosen, weights, *given[3:])

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*given[:3]), run(*given[:3]))
    torch.testing.assert_close(torch.vmap(run)(*given[:3]), run(*given[:3]))
    logits = torch.randn(4, 3, 5)
    for one, other in zip(
        torch.vmap(lambda z: ops.route_tokens(z, 2))(logits), ops.route_tokens(logits, 2)
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_compose(dtype):
    given = [t.detach().to(dtype) if t.is_floating_point() else t for t in draw()]
    wanted = plain_experts(*doubled(given), "silu")
    got = ops.expert_feed_forward(*given)
    assert got.dtype == dtype
    near(got, wanted.double(), 0.05)
    weights, chosen = ops.route_tokens(torch.randn(3, 5).to(dtype), 2)
    assert weights.dtype == dtype and chosen.dtype == torch.int64


def test_autocast():
    given = draw()
    with torch.autocast("cpu"):
        assert ops.expert_feed_forward(*given).dtype == torch.bfloat16
        assert ops.route_tokens(torch.randn(3, 5).bfloat16(), 2)[0].dtype == torch.float32


def test_other_devices_compose():
    with FakeTensorMode():
        x, weights = torch.randn(3, 6, device="cuda"), torch.randn(3, 2, device="cuda")
        chosen = torch.zeros(3, 2, dtype=torch.int64, device="cuda")
        weight1, weight2 = torch.randn(5, 9, 6, device="cuda"), torch.randn(5, 6, 9, device="cuda")
        y = ops.expert_feed_forward(x, chosen, weights, weight1, weight2)
        assert y.device.type == "cuda" and y.shape == (3, 6)


@pytest.mark.parametrize("scores", ["softmax", "sigmoid"])
def test_balance_loss(scores):
    logits = torch.randn(3, 40, 6, dtype=torch.float64, requires_grad=True)
    _, chosen = ops.route_tokens(logits, 2, scores=scores)
    got = ops.load_balancing_loss(logits, chosen, scores=scores)
    p = logits.softmax(-1) if scores == "softmax" else logits.sigmoid()
    p = (p / p.sum(-1, keepdim=True)).flatten(0, 1)
    # transformers' load_balancing_loss_func, of one layer without a mask.
    share = F.one_hot(chosen.flatten(0, 1), 6).double().mean(0)
    wanted = 6 * (share * p.mean(0)).sum()
    torch.testing.assert_close(got, wanted)
    torch.testing.assert_close(*(torch.autograd.grad(y, logits)[0] for y in (got, wanted)))
    even = torch.arange(12).view(6, 2) % 6
    torch.testing.assert_close(ops.load_balancing_loss(torch.zeros(6, 6), even), torch.tensor(2.0))
    none = torch.zeros(0, 2, dtype=torch.int64)
    assert ops.load_balancing_loss(torch.zeros(0, 6), none).item() == 0


def test_refuses():
    x, chosen, weights, weight1, weight2, weight3 = draw()
    call = ops.expert_feed_forward
    with pytest.raises(ValueError, match=r"chosen\[1\]: want 0 to 4, got 5"):
        wrong = chosen.clone()
        wrong.view(-1)[1] = 5
        call(x, wrong, weights, weight1, weight2)
    with pytest.raises(ValueError, match="moe_experts: weight2: want"):
        call(x, chosen, weights, weight1, weight1)
    with pytest.raises(ValueError, match="moe_experts: weight3: want"):
        call(x, chosen, weights, weight1, weight2, weight2)
    with pytest.raises(ValueError, match="moe_experts: weights: want"):
        call(x, chosen, weights[..., :1], weight1, weight2)
    with pytest.raises(TypeError, match="moe_experts: chosen: want int64"):
        call(x, chosen.int(), weights, weight1, weight2)
    with pytest.raises(
        ValueError, match="activation: want silu, gelu, gelu-tanh, relu or relu2, got tanh"
    ):
        call(x, chosen, weights, weight1, weight2, activation="tanh")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="top_k: want 1 to 5, got 6"):
        ops.route_tokens(torch.zeros(2, 5), 6)
    with pytest.raises(ValueError, match="scores: want softmax or sigmoid"):
        ops.route_tokens(torch.zeros(2, 5), 1, scores="tanh")  # type: ignore[arg-type]
