"""The composed forms, which serve every device without kernels: forced on the CPU
they agree with the kernels, gradients included; they trace on meta, and work with
torch.func, forward-mode derivatives and autocast."""

import contextlib

import pytest
import torch
from operator_cases import CASES, ONE_FORM, first

from tarn import ops


def random_x(dtype=torch.float32):
    torch.manual_seed(0)
    return torch.randn(2, 6, 2, 4, dtype=dtype, requires_grad=True)


def with_gradient(call, x):
    out = first(call(x))
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape)
    return out.detach(), torch.autograd.grad((out * weights).sum(), x)[0]


def near(a, b, tolerance):
    assert a.dtype == b.dtype and a.shape == b.shape
    size = 1 + b.abs().max()
    assert (a - b).abs().max() <= tolerance * size, ((a - b).abs().max(), size)


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_the_kernel(name):
    _, call = CASES[name]
    out, gradient = with_gradient(call, random_x())
    with ops.composed_forms():
        composed_out, composed_gradient = with_gradient(call, random_x())
    near(composed_out, out, 1e-5)
    near(composed_gradient, gradient, 1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["linear", "linear offset", "packed", "full masked", "aft simple"])
def test_half_types_agree_with_the_kernel(name, dtype):
    _, call = CASES[name]
    with torch.no_grad():
        out = first(call(random_x().to(dtype)))
        with ops.composed_forms():
            composed = first(call(random_x().to(dtype)))
    near(composed.float(), out.float(), 2 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("name", CASES)
def test_gradients_against_finite_differences(name):
    _, call = CASES[name]
    with ops.composed_forms():
        assert torch.autograd.gradcheck(lambda x: first(call(x)), (random_x(torch.float64),))


@pytest.mark.parametrize("name", sorted(CASES.keys() - ONE_FORM))
def test_runs_in_inference_mode(name):
    _, call = CASES[name]
    with torch.inference_mode(), ops.composed_forms():
        composed = first(call(random_x().detach()))
    with torch.inference_mode():
        near(composed, first(call(random_x().detach())), 1e-5)


@pytest.mark.parametrize("name", sorted(CASES.keys() - ONE_FORM))
def test_gradients_on_meta(name):
    _, call = CASES[name]
    x = torch.empty(2, 6, 2, 4, device="meta", requires_grad=True)
    with torch.device("meta"), ops.composed_forms():
        out = first(_on_device(call, x))
    (gradient,) = torch.autograd.grad(out.float().sum(), x)
    assert gradient.is_meta and gradient.shape == x.shape


def _on_device(call, x):
    """The call with the masks of its closure moved to x's device."""
    import operator_cases as cases

    names = ("KEPT", "LENGTHS", "STARTS")
    before = {name: getattr(cases, name) for name in names}
    try:
        for name, tensor in before.items():
            setattr(cases, name, torch.empty_like(tensor, device=x.device))
        return call(x)
    finally:
        for name, tensor in before.items():
            setattr(cases, name, tensor)


@pytest.mark.parametrize("name", sorted(CASES.keys() - ONE_FORM))
def test_torch_func(name):
    _, call = CASES[name]
    x = random_x(torch.float64).detach()

    def loss(x):
        return first(call(x)).square().sum()

    wanted = torch.autograd.grad(loss(x.requires_grad_()), x)[0]
    x = x.detach()
    near(torch.func.grad(loss)(x), wanted, 1e-12)
    direction = torch.randn_like(x)
    _, slope = torch.func.jvp(loss, (x,), (direction,))
    near(slope, (wanted * direction).sum(), 1e-12)
    # The bound against float64 is what float32 loses in sums and quotients of x's size.
    near(torch.func.grad(loss)(x.float()), wanted.float(), 1e-4)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, w: ops.linear_attention(x, w, x),
        lambda x, w: ops.linear_attention(x, x, w),
        lambda x, w: ops.full_attention(x, x, w),
        lambda x, w: ops.aft_simple_attention(x, w, x),
        lambda x, w: ops.decay_attention(x, x, x, gates=w),
        lambda x, w: ops.decay_attention(x, x, x, bonus=w[0, 0]),
        lambda x, w: ops.delta_attention(x, x, x, w[..., 0]),
        lambda x, w: ops.short_convolution(x.flatten(2), w[0, :4].flatten(1).t()),
        lambda x, w: ops.gated_norm(x, x[0, 0, 0], gate=w),
        lambda x, w: ops.gated_norm(x, w[0, 0], w[0, 1]),
        lambda x, w: ops.affine(x, w[0, :4, 0]),
        lambda x, w: ops.residual_norm(x, w, gamma=x[0, 0, 0], beta=x[0, 1, 0])[0],
        lambda x, w: ops.swiglu_feed_forward(x, x[0, :4, 0], x[1, :4, 0], w[0, :4, 0]),
    ],
)
def test_forward_mode_of_any_argument(call):
    """A tangent of another argument than the first is not lost."""
    x, w = random_x().detach(), random_x().detach().flip(1)
    direction = torch.randn_like(w)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(w, direction)
        slope = torch.autograd.forward_ad.unpack_dual(call(x, dual)).tangent
    # Central differences in float64, against a float32 tangent.
    step = 1e-6 * direction.double()
    x, w = x.double(), w.double()
    near(slope.double(), (call(x, w + step) - call(x, w - step)) / 2e-6, 1e-4)


@pytest.mark.parametrize("name", sorted(CASES.keys() - ONE_FORM))
def test_vmap(name):
    _, call = CASES[name]
    x = torch.stack([random_x().detach(), 2 * random_x().detach() - 1])
    together = torch.func.vmap(lambda x: first(call(x)))(x)
    for got, one in zip(together, x):
        near(got, first(call(one)), 1e-5)


@pytest.mark.parametrize("name", sorted(ONE_FORM))
def test_torch_func_names_what_it_cannot_follow(name):
    _, call = CASES[name]
    with pytest.raises(RuntimeError, match="tarn|functorch|autograd.Function"):
        torch.func.grad(lambda x: first(call(x)).sum())(random_x().detach())


@pytest.mark.parametrize("composed", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_autocast(name, composed):
    """Under autocast a float32 call gives what the call of cast operands gives;
    losses and norms stay float32."""
    _, call = CASES[name]
    x = random_x()
    form = ops.composed_forms() if composed else contextlib.nullcontext()
    with torch.autocast("cpu", dtype=torch.bfloat16), form:
        out = first(call(x))
    ours = ("residual", "rms", "logistic", "layer rest", "gated norm", "route", "balance")
    wide = name.startswith(ours)
    # Passes over rows keep the dtype that they are given.
    wide = wide or name.startswith(
        ("decay gate", "depth bounds", "unit norm", "token shift", "head scale")
    )
    wide = wide or name.endswith(("final state", "packed state"))
    assert out.dtype == (torch.float32 if wide else torch.bfloat16), out.dtype
    # bfloat16 has 8 bits, and the cast operands are rounded before any product.
    near(out.float(), first(call(x)).float(), 0.05)


def test_autocast_takes_operands_of_two_dtypes():
    x = random_x().detach()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = ops.linear_attention(x, x.bfloat16(), x)
    assert out.dtype == torch.bfloat16


def test_linear_memory():
    """Nothing has size T x T: the peak of a traced run grows with T, not T^2."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        elements = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            for tensor in result if isinstance(result, (tuple, list)) else [result]:
                if isinstance(tensor, torch.Tensor):
                    Largest.elements = max(Largest.elements, tensor.numel())
            return result

    def largest(call, tokens):
        Largest.elements = 0
        x = torch.randn(1, tokens, 2, 16)
        with ops.composed_forms(), Largest():
            call(x)
        return Largest.elements

    for call in (
        lambda x: ops.linear_attention(x, x, x),
        lambda x: ops.linear_attention(x, x, x, cu_seqlens=torch.tensor([0, 100, x.shape[1]])),
        lambda x: ops.local_attention(x, x, x, local_context=32),
        lambda x: ops.aft_simple_attention(x, x, x, causal=True),
        lambda x: ops.decay_attention(x, x, x, gates=-x.exp()),
        lambda x: ops.delta_attention(x, x, x, x[..., 0], gates=-x[..., 1].exp()),
    ):
        assert largest(call, 4096) <= 4.2 * largest(call, 1024)
