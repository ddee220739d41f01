"""residual_norm of kind "rms" and rms_norm: against plain torch, and inside
torch's own checks."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import gradcheck, gradgradcheck
from torch.library import opcheck

from tarn import ops

TARN = torch.ops.tarn
SEED = torch.tensor(1234567)
CASES = ["all", "sum", "norm", "no bias"]


def rand(*shape, dtype=torch.float32, grad=True):
    return torch.randn(*shape, dtype=dtype).requires_grad_(grad)


def call(case, shape=(2, 3, 6), dtype=torch.float32, grad=True):
    """Arguments of torch.ops.tarn.residual_norm."""
    x, residual = (rand(*shape, dtype=dtype, grad=grad) for _ in range(2))
    bias, gamma = (rand(shape[-1], dtype=dtype, grad=grad) for _ in range(2))
    return {
        "all": (x, residual, bias, gamma, None, 1e-5, 0.25, SEED, "rms"),
        "sum": (x, residual, bias, None, None, 1e-5, 0.25, SEED, "rms"),
        "norm": (x, None, None, gamma, None, 1e-5, 0.0, None, "rms"),
        "no bias": (x, residual, None, gamma, None, 1e-5, 0.0, None, "rms"),
    }[case]


def plain(x, residual, bias, gamma, beta, eps, dropout, seed, kind):
    """(y, s) by definition, from torch's own operators."""
    s = x if bias is None else x + bias
    if dropout > 0:
        scales = ops.dropout_scales(seed, s.numel() // s.shape[-1], s.shape[-1], dropout)
        s = s * scales.view(s.shape).to(s.dtype)
    s = s if residual is None else residual + s
    if gamma is None:
        return None, s
    return s / (s.pow(2).mean(-1, keepdim=True) + eps).sqrt() * gamma, s


def given(x, residual, bias, gamma, beta, eps, dropout, seed, kind):
    return ops.residual_norm(
        x, residual, bias, gamma, beta, eps=eps, dropout=dropout, seed=seed, kind=kind
    )


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES)
def test_equals_plain_torch(case, dtype, threads):
    torch.set_num_threads(threads)
    arguments = call(case, (3, 67, 37), dtype)
    wide = [
        a.detach().double().requires_grad_() if torch.is_tensor(a) and a.dim() else a
        for a in arguments
    ]
    inputs = [i for i, a in enumerate(arguments[:4]) if a is not None]
    results = []
    for function, values in ((given, arguments), (plain, wide)):
        parts = [part for part in function(*values) if part is not None]
        torch.manual_seed(0)
        loss = sum((part * torch.randn(part.shape).to(part.dtype)).sum() for part in parts)
        results.append([*parts, *torch.autograd.grad(loss, [values[i] for i in inputs])])
    bound = 1e-5 if dtype == torch.float32 else 1e-12
    for a, b in zip(*results):
        assert a.dtype == dtype
        error = (a.double() - b).abs().max().item()
        assert error <= bound * max(1.0, b.abs().max().item()), error


def test_rms_norm_is_torchs():
    for dtype, bound in ((torch.float32, 1e-6), (torch.float64, 1e-13)):
        x, gamma = torch.randn(5, 7, 33, dtype=dtype), torch.randn(33, dtype=dtype)
        wanted = torch.nn.functional.rms_norm(x, (33,), gamma, 1e-3)
        torch.testing.assert_close(ops.rms_norm(x, gamma, eps=1e-3), wanted, atol=bound, rtol=bound)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_are_summed_in_float32(dtype):
    """A sum of 4,096 ones stops at 256 in bfloat16."""
    x, gamma = torch.ones(2, 4096, dtype=dtype), torch.ones(4096, dtype=dtype)
    y = ops.rms_norm(x, gamma)
    assert y.dtype == dtype and torch.equal(y, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES)
def test_opcheck(case, dtype):
    opcheck(TARN.residual_norm.default, call(case, dtype=dtype))


def test_opcheck_backward():
    arguments = call("all", grad=False)
    y, s, mean, inverse = TARN.residual_norm.default(*arguments)
    assert mean.shape == (0,) and inverse.shape == (2, 3)
    grads = torch.randn_like(y), torch.randn_like(s)
    gamma, dropout, seed, kind = arguments[3], *arguments[6:]
    opcheck(
        TARN.residual_norm_backward.default,
        (*grads, s, mean, inverse, gamma, True, dropout, seed, kind),
    )


def test_gradcheck_double():
    x, residual, bias, gamma = call("all", (2, 3, 4), torch.float64)[:4]

    def network(*call):
        return ops.residual_norm(*call, dropout=0.25, seed=SEED, kind="rms")

    assert gradcheck(network, (x, residual, bias, gamma))
    assert gradgradcheck(network, (x, residual, bias, gamma))
    assert gradcheck(ops.rms_norm, (x, gamma))


def test_threads_give_the_same_bits():
    results = []
    arguments = call("all", (500, 40))
    for threads in (1, 2, 3, 8):
        torch.set_num_threads(threads)
        y, s = given(*arguments)
        results.append((y, s, *torch.autograd.grad(y.sin().sum() + s.sum(), arguments[:4])))
    for result in results:
        assert all(torch.equal(a, b) for a, b in zip(result, results[0]))


def test_strided_inputs_and_empty_batches():
    x = torch.randn(5, 3, 8).transpose(0, 1).requires_grad_()
    gamma, grad = torch.randn(16)[::2], torch.randn(8, 5, 3).permute(2, 1, 0)
    y = ops.rms_norm(x, gamma)
    wanted = torch.nn.functional.rms_norm(x, (8,), gamma, 1e-5)
    torch.testing.assert_close(y, wanted)
    torch.testing.assert_close(*(torch.autograd.grad(v, x, grad)[0] for v in (y, wanted)))
    for shape in ((0, 7, 16), (3, 0, 16)):
        x, gamma = rand(*shape), rand(16)
        ops.rms_norm(x, gamma).sum().backward()
        assert x.grad.shape == shape and gamma.grad.eq(0).all()


def test_compiles_without_graph_breaks():
    arguments = call("all")
    compiled = torch.compile(lambda *a: given(*a)[0], fullgraph=True, backend="aot_eager")
    grads = [
        torch.autograd.grad(f(*arguments).square().sum(), arguments[:4])
        for f in (compiled, lambda *a: given(*a)[0])
    ]
    for a, b in zip(*grads):
        torch.testing.assert_close(a, b)


def test_other_devices_compose():
    """Checks shapes and devices of fake tensors on a device without a kernel. (There
    are no gradients: those need the device itself.)"""
    with FakeTensorMode():
        x, gamma = torch.randn(2, 5, 8, device="cuda"), torch.randn(8, device="cuda")
        for case in ({"beta": gamma}, {"kind": "rms"}):
            y, s = ops.residual_norm(x, x, gamma=gamma, **case)
            assert y.device.type == "cuda" and y.shape == s.shape == x.shape


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_composed_form_equals_the_kernel(kind):
    """The form of other devices, forced on the CPU in float32, gradients included."""
    x, residual, bias, gamma = call("all", (3, 50, 19))[:4]
    beta = None if kind == "rms" else rand(19)
    arguments = (x, residual, bias, gamma, beta, 1e-5, 0.25, SEED, kind)
    inputs = [a for a in arguments[:5] if a is not None]
    op, composed = TARN.residual_norm.default, torch._C.DispatchKey.CompositeExplicitAutograd
    results = []
    for y, s, _, inverse in (op(*arguments), op._op_dk(composed, *arguments)):
        results.append((y, s, inverse, *torch.autograd.grad(y.sin().sum() + s.sum(), inputs)))
    for a, b in zip(*results):
        assert (a - b).abs().max() <= 1e-5 * b.abs().max().clamp_min(1)


def test_refuses():
    x, ones = rand(2, 5, 16), torch.ones(16)
    with pytest.raises(ValueError, match="residual_norm: kind: want one of layer, rms, got mean"):
        ops.residual_norm(x, gamma=ones, beta=ones, kind="mean")
    with pytest.raises(ValueError, match="beta: want none with kind rms, got a tensor"):
        ops.residual_norm(x, gamma=ones, beta=ones, kind="rms")
    with pytest.raises(ValueError, match="gamma, beta: want both or none, got gamma alone"):
        ops.residual_norm(x, gamma=ones)
    with pytest.raises(ValueError, match=r"gamma: want \[16\], got \[15\]"):
        ops.rms_norm(x, ones[1:])
    with pytest.raises(TypeError, match="gamma: want Float, got Double"):
        ops.rms_norm(x, ones.double())
