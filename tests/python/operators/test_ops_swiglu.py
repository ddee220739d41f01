"""swiglu_feed_forward: against plain torch, and inside torch's own checks."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import gradcheck, gradgradcheck
from torch.library import opcheck
from torch.nn.functional import linear, silu

from tarn import ops

TARN = torch.ops.tarn
SEED = torch.tensor(1234567)


def rand(*shape, dtype=torch.float32, grad=True):
    return torch.randn(*shape, dtype=dtype).requires_grad_(grad)


def call(rows=(2, 3), d_model=5, d_ff=7, d_out=4, dtype=torch.float32, grad=True):
    """x, weight1, weight2, weight3."""
    shapes = (*rows, d_model), (d_ff, d_model), (d_out, d_ff), (d_ff, d_model)
    return [rand(*shape, dtype=dtype, grad=grad) for shape in shapes]


def plain(x, weight1, weight2, weight3, dropout):
    """The result by definition, from torch's own operators, under the same mask."""
    hidden = silu(linear(x, weight1)) * linear(x, weight3)
    if dropout > 0:
        rows, width = hidden.numel() // hidden.shape[-1], hidden.shape[-1]
        scales = ops.dropout_scales(SEED, rows, width, dropout)
        hidden = hidden * scales.view(hidden.shape).to(hidden.dtype)
    return linear(hidden, weight2)


def given(*tensors, dropout):
    return ops.swiglu_feed_forward(*tensors, dropout=dropout, seed=SEED)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_plain_torch(dtype, dropout, threads):
    torch.set_num_threads(threads)
    tensors = call((3, 67), 20, 33, 18, dtype)
    wide = [t.detach().double().requires_grad_() for t in tensors]
    weights = torch.randn(3, 67, 18)
    results = []
    for function, inputs in ((given, tensors), (plain, wide)):
        y = function(*inputs, dropout=dropout)
        results.append([y, *torch.autograd.grad((y * weights.to(y.dtype)).sum(), inputs)])
    # Sums of up to 201 products of entries near 1.
    bound = 1e-5 if dtype == torch.float32 else 1e-12
    for a, b in zip(*results):
        assert a.dtype == dtype
        error = (a.double() - b).abs().max().item()
        assert error <= bound * max(1.0, b.abs().max().item()), error


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dropout", [0.0, 0.25])
def test_opcheck(dropout, dtype):
    opcheck(TARN.swiglu_feed_forward.default, (*call(dtype=dtype), dropout, SEED))


@pytest.mark.parametrize("want_x", [True, False])
def test_opcheck_backward(want_x):
    tensors = call(grad=False)
    out, gate, up = TARN.swiglu_feed_forward.default(*tensors, 0.25, SEED)
    opcheck(
        TARN.swiglu_feed_forward_backward.default,
        (torch.randn_like(out), *tensors, gate, up, 0.25, SEED, want_x),
    )


def test_gradcheck_double():
    tensors = call(dtype=torch.float64)

    def network(*inputs):
        return given(*inputs, dropout=0.25)

    assert gradcheck(network, tensors)
    assert gradgradcheck(network, tensors)


def test_keeps_two_products_and_no_mask():
    saved = []

    def pack(tensor):
        saved.append(tensor.numel())
        return tensor

    tensors = call((100,), 16, 64, 16)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        given(*tensors, dropout=0.5)
    assert sum(saved) == 100 * 16 + 3 * 64 * 16 + 2 * 100 * 64 + 1


def test_frozen_input_and_strided_weights():
    x, weight1, weight2, weight3 = call((4,), 6, 8, 6)
    weight3 = rand(6, 8).t()
    x = x.detach()
    y = given(x, weight1, weight2, weight3, dropout=0.0)
    wanted = plain(x, weight1, weight2, weight3, 0.0)
    torch.testing.assert_close(y, wanted)
    for a, b in zip(*(torch.autograd.grad(v.sum(), (weight1, weight2)) for v in (y, wanted))):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("rows", [(0,), (3, 0)])
def test_empty_batches(rows):
    tensors = call(rows)
    y = given(*tensors, dropout=0.5)
    y.sum().backward()
    assert y.shape == (*rows, 4) and tensors[0].grad.shape == (*rows, 5)
    assert all(t.grad.eq(0).all() for t in tensors[1:])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_compose(dtype):
    tensors = [t.detach().to(dtype).requires_grad_() for t in call()]
    y = given(*tensors, dropout=0.0)
    assert y.dtype == dtype and torch.equal(y, plain(*tensors, 0.0))


def test_compiles_without_graph_breaks():
    tensors = call()
    compiled = torch.compile(given, fullgraph=True, backend="aot_eager")
    grads = [
        torch.autograd.grad(f(*tensors, dropout=0.25).square().sum(), tensors)
        for f in (compiled, given)
    ]
    for a, b in zip(*grads):
        torch.testing.assert_close(a, b)


def test_other_devices_compose():
    """Checks shapes and devices of fake tensors on a device without a kernel. (There
    are no gradients: those need the device itself.)"""
    with FakeTensorMode():
        tensors = [torch.randn(t.shape, device="cuda") for t in call()]
        y = ops.swiglu_feed_forward(*tensors)
        assert y.device.type == "cuda" and y.shape == (2, 3, 4)


def test_composed_form_equals_the_kernel():
    """The form of other devices, forced on the CPU in float32, gradients included."""
    tensors = call((3, 50), 20, 33, 18)
    op, composed = TARN.swiglu_feed_forward.default, torch._C.DispatchKey.CompositeExplicitAutograd
    weights, results = torch.randn(3, 50, 18), []
    for y, *_ in (op(*tensors, 0.25, SEED), op._op_dk(composed, *tensors, 0.25, SEED)):
        results.append((y, *torch.autograd.grad((y * weights).sum(), tensors)))
    for a, b in zip(*results):
        assert (a - b).abs().max() <= 1e-5 * b.abs().max().clamp_min(1)


def test_refuses():
    x, weight1, weight2, weight3 = call()
    for index, name in ((1, "weight1"), (2, "weight2"), (3, "weight3")):
        tensors = [x, weight1, weight2, weight3]
        tensors[index] = torch.zeros(7, 9)
        with pytest.raises(ValueError, match=f"swiglu_feed_forward: {name}: want"):
            ops.swiglu_feed_forward(*tensors)
    with pytest.raises(ValueError, match="3, 1 and 2 axes"):
        ops.swiglu_feed_forward(x, weight1[0], weight2, weight3)
    with pytest.raises(TypeError, match="weight3: want Float, got Double"):
        ops.swiglu_feed_forward(x, weight1, weight2, weight3.double())
    with pytest.raises(ValueError, match="seed: want a tensor with dropout > 0, got none"):
        ops.swiglu_feed_forward(x, weight1, weight2, weight3, dropout=0.5)
