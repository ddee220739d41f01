"""The CPU forms that tarn.install_as_fla() gives to fla.modules, in bfloat16 and float16: against
the same equations in float64, values and gradients are one rounding away. Forms that end in a
matrix product are left out: they round what they multiply, as the original does."""

import pytest
import torch
import torch.nn.functional as F

from tarn import fla
from tarn._fla_package import activations, losses, norms, residuals, rotary, sequences


def normed(x, groups=1, centred=False, eps=1e-5):
    rows = x.unflatten(-1, (groups, -1))
    if centred:
        rows = rows - rows.mean(-1, keepdim=True)
    return (rows / (rows.square().mean(-1, keepdim=True) + eps).sqrt()).flatten(-2)


def convolved(x, weight, bias, residual):
    seen = F.pad(x, (0, 0, weight.shape[1] - 1, 0)).unfold(1, weight.shape[1], 1)
    return F.silu((seen * weight).sum(-1) + bias) + residual


def convolved_last(x, weight, bias, residual, cache):
    seen = torch.cat([cache[..., 1:], x[..., None]], -1)
    return F.silu((seen * weight).sum(-1) + bias) + residual


def rotated(x):
    angles = torch.arange(9, dtype=torch.float64)[:, None] * torch.tensor([1.0, 0.1])
    turn = torch.polar(torch.ones_like(angles), angles)[:, None]
    pairs = torch.complex(*x[..., :4].double().chunk(2, -1)) * turn
    return torch.cat([pairs.real, pairs.imag, x[..., 4:]], -1)


def turned(x):
    angles = torch.arange(9, dtype=torch.float64)[:, None] * torch.tensor([1.0, 0.1])
    return rotary.rotary_embedding(x, angles.cos().float(), angles.sin().float())


def corrected(o, r, k, r_k, v, g):
    seen = (r * k * r_k).sum(-1, keepdim=True) * v
    return (o + seen.flatten(2)) * g


def mixed(asked, *sources):
    scores = [(asked * v).sum(-1) / (v.square().mean(-1) + 1e-6).sqrt() for v in sources]
    total = sum(score.exp() for score in scores)
    return sum(
        (score.exp() / total)[..., None] * v for score, v in zip(scores, sources, strict=True)
    )


TARGET = torch.tensor([3, -100, 0, 6])


def lost(z):
    z = 4 * torch.tanh(2 * z / 4)
    ln = z.log_softmax(-1)
    own = -ln[torch.arange(4), TARGET.clamp(min=0)]
    return (0.9 * own - 0.1 * ln.mean(-1) + 0.3 * z.logsumexp(-1) ** 2) * (TARGET != -100)


ROWS, GATED = (2, 40, 24), ((2, 5, 3, 8), (2, 5, 3, 8), (8,), (8,))
# Name: tarn's form, its equation, the shapes of the inputs.
CASES = {
    "elu_p1": (
        activations.elu_p1,
        lambda x: torch.where(x > 0, x + 1, x.clamp(max=0).exp()),
        (ROWS,),
    ),
    "sqrelu": (activations.sqrelu, lambda x: F.relu(x) ** 2, (ROWS,)),
    "sigmoid": (activations.sigmoid, lambda x: 1 / (1 + (-x).exp()), (ROWS,)),
    "swish": (activations.swish, lambda x: x / (1 + (-x).exp()), (ROWS,)),
    "logsigmoid": (
        lambda x: activations.logsigmoid(x, 3.0),
        lambda x: F.logsigmoid(x) / 3,
        (ROWS,),
    ),
    "swiglu": (activations.swiglu, lambda x, y: x * torch.sigmoid(x) * y, (ROWS, ROWS)),
    "sigmoidglu": (activations.sigmoidglu, lambda x, y: torch.sigmoid(x) * y, (ROWS, ROWS)),
    "powglu": (
        activations.powglu,
        lambda x, y: (
            torch.where(x > 0, x.clamp(min=1e-9) ** (3 / (x.clamp(min=1e-9).sqrt() + 1)), x)
            * torch.sigmoid(x)
            * y
        ),
        (ROWS, ROWS),
    ),
    "gelu": (
        activations.fast_gelu_impl,
        lambda x: x / 2 * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x**3))),
        (ROWS,),
    ),
    "fused_attnres": (
        lambda q, w, a, b: residuals.fused_attnres(q, [a, b], w),
        lambda q, w, a, b: mixed(q * w, a, b),
        ((24,), (24,), ROWS, ROWS),
    ),
    "rms_norm": (
        lambda x, w, r: norms.rms_norm(x, w, None, r),
        lambda x, w, r: normed(x + r) * w,
        (ROWS, (24,), ROWS),
    ),
    "layer_norm": (
        lambda x, w, b, r: norms.layer_norm(x, w, b, r, prenorm=True),
        lambda x, w, b, r: (normed(x + r, centred=True) * w + b, x + r),
        (ROWS, (24,), (24,), ROWS),
    ),
    "group_norm": (
        lambda x, w, b: norms.group_norm(x, w, b, num_groups=3),
        lambda x, w, b: normed(x, 3, True) * w + b,
        (ROWS, (24,), (24,)),
    ),
    "l2norm": (
        norms.l2norm,
        lambda x: x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt(),
        (ROWS,),
    ),
    "rms_norm_gated": (
        lambda x, g, w: norms.rms_norm_gated(x, g, w, None),
        lambda x, g, w: normed(x, eps=1e-6) * w * F.silu(g),
        GATED[:3],
    ),
    "layer_norm_gated": (
        lambda x, g, w, b: norms.layer_norm_gated(x, g, w, b, "sigmoid"),
        lambda x, g, w, b: (normed(x, centred=True, eps=1e-6) * w + b) * torch.sigmoid(g),
        GATED,
    ),
    "rmsnorm_fn": (
        lambda x, w, z: norms.rmsnorm_fn(x, w, None, z, 1e-6, 8, False),
        lambda x, w, z: normed(x * F.silu(z), 3, eps=1e-6) * w,
        (ROWS, (24,), ROWS),
    ),
    "causal_conv1d": (
        lambda x, w, b, r: sequences.causal_conv1d(x, w, b, r, activation="silu")[0],
        convolved,
        (ROWS, (24, 4), (24,), ROWS),
    ),
    "causal_conv1d_update": (
        lambda x, w, b, r, c: (
            sequences.causal_conv1d_update(x, c.detach().clone(), r, w, b, "silu")[0] + 0 * c.sum()
        ),
        lambda x, w, b, r, c: convolved_last(x, w, b, r, c.detach()) + 0 * c.sum(),
        ((40, 24), (24, 4), (24,), (40, 24), (40, 24, 4)),
    ),
    "token_shift": (sequences.token_shift, lambda x: F.pad(x, (0, 0, 1, -1)) - x, (ROWS,)),
    "rotary_embedding": (turned, rotated, ((4, 9, 3, 6),)),
    "fused_addcmul_rwkv7": (
        sequences.fused_addcmul_rwkv7,
        lambda x, d, *w: tuple(x + d * one for one in w),
        (ROWS, ROWS, *[(1, 1, 24)] * 6),
    ),
    "fused_k_rwkv7": (
        sequences.fused_k_rwkv7,
        lambda k, a, ka: k * (1 + (a - 1) * ka),
        (ROWS, ROWS, (24,)),
    ),
    "gate_output_correction": (
        sequences.gate_output_correction,
        corrected,
        (ROWS, (2, 40, 3, 8), (2, 40, 3, 8), (3, 8), (2, 40, 3, 8), ROWS),
    ),
    "fused_kda_gate": (
        lambda g, a, b: fla.fused_kda_gate(g, a, b, output_dtype=g.dtype),
        lambda g, a, b: -a.exp()[:, None] * (1 + (g + b.view(3, 8)).exp()).log(),
        ((2, 5, 3, 8), (3,), (24,)),
    ),
    "fused_gdn_gate": (
        lambda g, a, b: fla.fused_gdn_gate(g, a, b, output_dtype=g.dtype),
        lambda g, a, b: -a.exp() * (1 + (g + b).exp()).log(),
        ((2, 5, 3), (3,), (3,)),
    ),
    "cross_entropy_loss": (
        lambda z: losses.cross_entropy_loss(z, TARGET, 0.1, 2.0, 0.3, 4.0)[0],
        lost,
        ((4, 7),),
    ),
}


def one_rounding(got, wanted, what):
    """Within half a unit in the last place, and float32's error of sums."""
    room = (
        torch.finfo(got.dtype).eps / 2 * 1.001 * wanted.abs()
        + 2e-6 * wanted.abs().max()
        + torch.finfo(got.dtype).smallest_normal * 2**-9
    )
    over = ((got.double() - wanted).abs() / room).max()
    assert over <= 1, f"{what}: {float(over):.2f} times one rounding"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CASES)
def test_one_rounding(name, dtype):
    ours, theirs, shapes = CASES[name]
    torch.manual_seed(0)
    given = [torch.randn(shape).to(dtype) for shape in shapes]
    narrow = [x.clone().requires_grad_() for x in given]
    double = [x.double().requires_grad_() for x in given]
    got, wanted = ours(*narrow), theirs(*double)
    got, wanted = ((x,) if isinstance(x, torch.Tensor) else x for x in (got, wanted))
    for n, (one, other) in enumerate(zip(got, wanted, strict=True)):
        one_rounding(one, other, f"result {n}")
    flows = [torch.randn(x.shape).to(x.dtype) for x in got]
    ours = torch.autograd.grad(got, narrow, flows)
    theirs = torch.autograd.grad(wanted, double, [flow.double() for flow in flows])
    for n, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        one_rounding(one, other, f"gradient of input {n}")


@pytest.mark.parametrize("name", ["swiglu", "sigmoidglu"])
def test_gates_without_gradients_are_the_same(name):
    """They take fewer buffers."""
    x, y = torch.randn(3, 8).bfloat16(), torch.randn(3, 8).bfloat16()
    gate = getattr(activations, name)
    assert torch.equal(gate(x, y), gate(x.requires_grad_(), y))
    with torch.no_grad():
        before = x.clone()
        assert torch.equal(gate(x, y), gate(before, y)) and torch.equal(x, before)
