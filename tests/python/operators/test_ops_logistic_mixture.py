"""torch.ops.tarn.logistic_mixture_loss against the definition, written here
with differences of sigmoids, and under torch's own checks."""

import math

import pytest
import torch
from torch.library import opcheck

from tarn import ops

LOSS = torch.ops.tarn.logistic_mixture_loss.default


def reference(params, targets):
    """The loss by definition: params [..., 3 K] float64, targets [...]."""
    logits, means, log_scales = params.chunk(3, -1)
    scales = log_scales.clamp(min=-7).exp()
    y = (2 * targets.double() / 255 - 1)[..., None]
    upper = torch.sigmoid((y - means + 1 / 255) / scales)
    lower = torch.sigmoid((y - means - 1 / 255) / scales)
    at = (y - means) / scales
    density = torch.sigmoid(at) * torch.sigmoid(-at) / scales / 127.5
    mass = upper - lower
    mass = torch.where(mass <= 1e-5, density, mass)
    mass = torch.where(y < -0.999, upper, torch.where(y > 0.999, 1 - lower, mass))
    return -(logits.softmax(-1) * mass).sum(-1).log()


def problem(*shape, mixtures=5, seed=0, dtype=torch.float32):
    """Scales from e^-3 to e: no component's mass is near 1e-5 by chance alone."""
    torch.manual_seed(seed)
    logits = torch.randn(*shape, mixtures)
    means = torch.rand(*shape, mixtures) * 2 - 1
    log_scales = torch.rand(*shape, mixtures) * 4 - 3
    params = torch.cat([logits, means, log_scales], -1).to(dtype)
    targets = torch.randint(0, 256, shape)
    if targets.numel() > 1:
        targets.view(-1)[0], targets.view(-1)[-1] = 0, 255
    return params, targets


@pytest.mark.parametrize("shape", [(1,), (17,), (3, 50), (2, 3, 7), (0,), (4, 0)])
@pytest.mark.parametrize("mixtures", [1, 10])
def test_equals_the_definition(shape, mixtures):
    params, targets = problem(*shape, mixtures=mixtures)
    wanted = params.double().requires_grad_()
    weights = torch.randn(*shape, dtype=torch.float64)
    want = reference(wanted, targets)
    (want * weights).sum().backward()
    for dtype, bound in ((torch.float32, 2e-5), (torch.float64, 1e-10)):
        for bytes_ in (targets, targets.to(torch.uint8)):
            given = params.clone().to(dtype).requires_grad_()
            loss = ops.logistic_mixture_loss(given, bytes_)
            assert loss.shape == torch.Size(shape) and loss.dtype == dtype
            (loss * weights.to(dtype)).sum().backward()
            for a, b in ((loss, want), (given.grad, wanted.grad)):
                torch.testing.assert_close(a.double(), b, rtol=bound, atol=bound)


def test_strided_parameters_and_targets():
    params, targets = problem(6, 9)
    wide = torch.full((6, 2, 9, 31), math.nan)
    wide[:, 0, :, :15] = params
    strided = wide[:, 0, :, :15].requires_grad_()
    plain = params.clone().requires_grad_()
    losses = [
        ops.logistic_mixture_loss(strided, targets.T.contiguous().T),
        ops.logistic_mixture_loss(plain, targets),
    ]
    assert torch.equal(*losses)
    # An expanded gradient: the sum's.
    grads = [torch.autograd.grad(a.sum(), b)[0] for a, b in zip(losses, (strided, plain))]
    assert torch.equal(*grads)


def test_nan_stays_in_its_row_and_masked_rows_have_no_gradient():
    params, targets = problem(8)
    clean = params.clone().requires_grad_()
    params[3, 2] = math.nan
    params.requires_grad_()
    loss = ops.logistic_mixture_loss(params, targets)
    keep = torch.arange(8) != 3
    assert loss[3].isnan()
    want = ops.logistic_mixture_loss(clean, targets)
    assert torch.equal(loss[keep], want[keep])
    loss[keep].sum().backward()  # row 3 is given a gradient of 0
    want[keep].sum().backward()
    assert torch.equal(params.grad, clean.grad)
    assert (params.grad[3] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", [torch.uint8, torch.int64])
def test_opcheck(dtype, kind):
    for shape in ((5,), (2, 3), (0,)):
        params, targets = problem(*shape, mixtures=2, dtype=dtype)
        opcheck(LOSS, (params.requires_grad_(), targets.to(kind)))
    if dtype == torch.float32:
        params, targets = problem(5, mixtures=2)
        opcheck(
            torch.ops.tarn.logistic_mixture_loss_backward.default,
            (torch.randn(5), params, targets.to(kind)),
        )


def test_gradcheck_twice():
    params, targets = problem(4, mixtures=3, dtype=torch.float64)
    # Far in the tail, where the density counts; and a clamped scale.
    params[1, 3:6], params[1, 6:] = 0.5, -5.0
    targets[1] = 3
    params[2, 6] = -8.0
    params.requires_grad_()

    def loss(given):
        return ops.logistic_mixture_loss(given, targets)

    assert torch.autograd.gradcheck(loss, (params,), eps=1e-7)
    assert torch.autograd.gradgradcheck(loss, (params,), eps=1e-7)


def test_compiles():
    params, targets = problem(4, 6)
    params.requires_grad_()

    def bits(given, bytes_):
        return ops.logistic_mixture_loss(2 * given, bytes_).mean() / math.log(2)

    compiled = torch.compile(bits, backend="aot_eager", fullgraph=True)
    a, b = compiled(params, targets), bits(params, targets)
    torch.testing.assert_close(a, b)
    torch.testing.assert_close(torch.autograd.grad(a, params)[0], torch.autograd.grad(b, params)[0])


def test_refuses():
    params, targets = problem(4)
    with pytest.raises(ValueError, match=r"targets: want \[4\], got \[3\]"):
        ops.logistic_mixture_loss(params, targets[:3])
    with pytest.raises(ValueError, match=r"params: want \[..., 3 K\]"):
        ops.logistic_mixture_loss(params[:, :14], targets)
    with pytest.raises(ValueError, match="a last size of 0"):
        ops.logistic_mixture_loss(params[:, :0], targets)
    with pytest.raises(ValueError, match="a scalar"):
        ops.logistic_mixture_loss(params[0, 0], targets[0])
    with pytest.raises(TypeError, match="params: want float32 or float64, got BFloat16"):
        ops.logistic_mixture_loss(params.bfloat16(), targets)
    with pytest.raises(TypeError, match="targets: want uint8 or int64, got Int"):
        ops.logistic_mixture_loss(params, targets.int())
    for value in (-1, 256):
        targets[1] = value
        for dtype in (torch.float32, torch.float64):
            with pytest.raises(ValueError, match=f"targets: want 0 to 255, got {value}"):
                ops.logistic_mixture_loss(params.to(dtype), targets)
