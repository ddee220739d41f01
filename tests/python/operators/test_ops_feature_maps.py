"""Feature maps and their random directions: formulas in float64, statistics,
behaviour inside torch, errors."""

import math
import re

import feature_map_reference as reference
import pytest
import torch
from torch.autograd import gradcheck
from torch.library import opcheck

from tarn import ops

OPS = torch.ops.tarn


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def omega_for(d_key, n_freq=7, **options):
    return ops.draw_omega(d_key, n_freq, **{"orthogonal": True, "seed": 5, **options})


MAPS = {
    "poly2": (lambda x, w, t: ops.poly2(x, softmax_temp=t), lambda x, w, t: reference.poly2(x, t)),
    "favor": (lambda x, w, t: ops.favor(x, w, softmax_temp=t), reference.favor),
    "favor-positive": (
        lambda x, w, t: ops.favor(x, w, softmax_temp=t, positive=True),
        lambda x, w, t: reference.favor(x, w, t, positive=True),
    ),
    "rff": (lambda x, w, t: ops.rff(x, w, softmax_temp=t), reference.rff),
    "smoothed-rff": (
        lambda x, w, t: ops.smoothed_rff(x, w, softmax_temp=t, smoothing=0.7),
        lambda x, w, t: reference.rff(x, w, t, smoothing=0.7),
    ),
    "grf": (
        lambda x, w, t: ops.grf(x, w, softmax_temp=t),
        lambda x, w, t: reference.project(reference.tempered(x, t), w).clamp(min=0),
    ),
    "grf-cos": (
        lambda x, w, t: ops.grf(x, w, softmax_temp=t, kernel_fn=torch.cos),
        lambda x, w, t: reference.project(reference.tempered(x, t), w).cos(),
    ),
}


# ---- Formulas.


@pytest.mark.parametrize("softmax_temp", [None, 0.0, 0.3, 1.0])
@pytest.mark.parametrize("d_key", [1, 2, 5, 8, 33])
@pytest.mark.parametrize("name", list(MAPS))
def test_formula(name, d_key, softmax_temp):
    given, wanted = MAPS[name]
    omega = omega_for(d_key, n_freq=d_key + 2)
    x = torch.randn(3, 4, d_key, dtype=torch.float64)
    exact = wanted(x, omega, softmax_temp)
    torch.testing.assert_close(given(x, omega, softmax_temp), exact, rtol=1e-12, atol=1e-12)
    single = given(x.float(), omega, softmax_temp)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), exact, rtol=1e-4, atol=1e-5)
    for dtype in (torch.bfloat16, torch.float16):
        half = given(x.to(dtype), omega, softmax_temp)
        assert half.dtype == dtype
        rounded = wanted(x.to(dtype).double(), omega, softmax_temp)
        torch.testing.assert_close(half.double(), rounded, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("shape", [(0, 5), (2, 0, 3, 5), (5,), (4, 5)])
@pytest.mark.parametrize("name", list(MAPS))
def test_any_axes_and_strides(name, shape):
    given, wanted = MAPS[name]
    omega = omega_for(5)
    x = torch.randn(*shape, 2, dtype=torch.float64)[..., 0]
    torch.testing.assert_close(given(x, omega, None), wanted(x, omega, None))


@pytest.mark.parametrize("coefficients", [(1, 2, 1), (0, 0, 1), (1, 1, 0.5), (0, 3, 0), (2, 0, 1)])
def test_poly2_is_the_kernel(coefficients):
    x, y = torch.randn(2, 50, 7, dtype=torch.float64)
    phi_x, phi_y = (ops.poly2(z, softmax_temp=0.4, coefficients=coefficients) for z in (x, y))
    assert phi_x.shape[-1] == ops.feature_width("poly2", 7, coefficients=coefficients)
    product = 0.4 * (x * y).sum(-1)
    a0, a1, a2 = coefficients
    kernel = a0 + a1 * product + a2 * product**2
    torch.testing.assert_close((phi_x * phi_y).sum(-1), kernel)
    torch.testing.assert_close(phi_x, reference.poly2(x, 0.4, coefficients))


def test_widths():
    for d_key in (1, 2, 3, 16, 33):
        assert ops.feature_width("poly2", d_key) == 1 + d_key + d_key * (d_key + 1) // 2
        for name in ("elu1", "identity", "relu", "relu2", "softplus"):
            assert ops.feature_width(name, d_key) == d_key
            assert ops.feature_frequencies(name, d_key) == 0
        for name in ("favor-positive", "grf"):
            assert ops.feature_width(name, d_key) == ops.feature_frequencies(name, d_key) == d_key
            assert ops.feature_width(name, d_key, 9) == 9
    for n_dims in (2, 3, 8, 9):
        for name in ("favor", "rff"):
            assert ops.feature_frequencies(name, 5, n_dims) == n_dims // 2
            assert ops.feature_width(name, 5, n_dims) == 2 * (n_dims // 2)
    for n_dims in (3, 4, 5, 32, 33):
        assert ops.feature_frequencies("smoothed-rff", 5, n_dims) == (n_dims - 1) // 2
        assert ops.feature_width("smoothed-rff", 5, n_dims) == 2 * ((n_dims - 1) // 2) + 1
    assert ops.feature_width("favor", 33) == 32  # n_dims is d_key


@pytest.mark.parametrize("name", ["favor", "favor-positive", "rff", "smoothed-rff", "grf"])
def test_width_is_that_of_the_features(name):
    for d_key in (4, 5):
        omega = omega_for(d_key, ops.feature_frequencies(name, d_key))
        phi = MAPS[name][0](torch.randn(2, d_key), omega, None)
        assert phi.shape[-1] == ops.feature_width(name, d_key)


@pytest.mark.parametrize("n_freq", [1, 2, 7])
def test_features_are_normalised_by_the_columns_produced(n_freq):
    """A dropped column must not shrink the kernel: phi(x).phi(x) of rff is 1."""
    x = torch.randn(20, 5, dtype=torch.float64)
    omega = omega_for(5, n_freq)
    assert torch.allclose(ops.rff(x, omega).square().sum(-1), torch.ones(20).double())
    smoothed = ops.smoothed_rff(x, omega, smoothing=2.0)
    assert torch.allclose(smoothed.square().sum(-1), torch.full((20,), 5.0).double())
    zero = ops.favor(torch.zeros(1, 5), omega)
    torch.testing.assert_close(zero.square().sum(), torch.tensor(1.0))


def test_temperature_zero_is_not_the_default():
    x, omega = torch.randn(6, 5), omega_for(5)
    torch.testing.assert_close(ops.favor(x, omega, softmax_temp=0.0), torch.full((6, 14), 14**-0.5))
    assert not torch.allclose(ops.favor(x, omega), ops.favor(x, omega, softmax_temp=0.0))


def test_stabilised_features_are_bounded_and_proportional():
    x, omega = 30 * torch.randn(50, 16), omega_for(16, 16)
    phi = ops.favor(x, omega, stabilise=True)
    torch.testing.assert_close(phi.amax(-1), torch.full((50,), 32**-0.5))
    small = x.double() / 30
    plain = reference.favor(small, omega)
    given = ops.favor(small, omega, stabilise=True)
    torch.testing.assert_close(
        given / given.sum(-1, keepdim=True), plain / plain.sum(-1, keepdim=True)
    )


# ---- Random directions.


def test_omega_is_a_function_of_its_arguments():
    call = dict(orthogonal=True, seed=11, layer=3, step=7)
    omega = ops.draw_omega(6, 20, **call)
    assert omega.shape == (6, 20) and omega.dtype == torch.float32
    assert torch.equal(omega, ops.draw_omega(6, 20, **call))
    for change in (dict(seed=12), dict(layer=4), dict(step=8), dict(orthogonal=False)):
        other = ops.draw_omega(6, 20, **{**call, **change})
        assert not torch.isclose(omega, other).any(), change
    torch.manual_seed(99)  # torch's generator plays no part
    assert torch.equal(omega, ops.draw_omega(6, 20, **call))
    # More columns leave the first ones as they are.
    assert torch.equal(omega, ops.draw_omega(6, 33, **call)[:, :20])


# draw_omega(3, 2) as checkpoints rely on it: a change of these draws would change
# models whose omega is redrawn while they train.
GAUSSIAN = [
    [-0.6762005090713501, -0.9746429920196533],
    [-1.1361980438232422, -0.1547250747680664],
    [0.10820981115102768, -1.1682538986206055],
]
ORTHOGONAL = [
    [1.0525617599487305, -0.1571781188249588],
    [-0.35799065232276917, -0.205224871635437],
    [-0.22162829339504242, -0.4149790108203888],
]


def test_omega_stays_what_it_was():
    """The last bit of a double may differ between mathematical libraries."""
    gaussian = ops.draw_omega(3, 2, orthogonal=False, seed=1)
    orthogonal = ops.draw_omega(3, 2, orthogonal=True, seed=1, layer=2, step=3)
    torch.testing.assert_close(gaussian, torch.tensor(GAUSSIAN), rtol=1e-6, atol=0)
    torch.testing.assert_close(orthogonal, torch.tensor(ORTHOGONAL), rtol=1e-6, atol=0)


@pytest.mark.parametrize("d_key, n_freq", [(32, 32), (32, 100), (7, 20), (1, 5), (64, 33)])
def test_orthogonal_columns_in_blocks(d_key, n_freq):
    omega = omega_for(d_key, n_freq).double()
    for begin in range(0, n_freq, d_key):
        block = omega[:, begin : begin + d_key]
        gram = block.T @ block
        off_diagonal = gram - gram.diag().diag()
        assert off_diagonal.abs().max() < 1e-4
        unit = block / block.norm(dim=0)
        eye = torch.eye(block.shape[1]).double()
        torch.testing.assert_close(unit.T @ unit, eye, atol=1e-6, rtol=0)


@pytest.mark.parametrize("orthogonal", [True, False])
def test_distribution_of_omega(orthogonal):
    d_key, n_freq = 16, 40_000
    omega = omega_for(d_key, n_freq, orthogonal=orthogonal).double()
    # Moments of N(0, 1) entries; 5 standard errors of 640,000 entries.
    assert abs(omega.mean()) < 5 / 800
    assert abs(omega.var() - 1) < 5 * math.sqrt(2) / 800
    assert abs(omega.pow(4).mean() - 3) < 5 * math.sqrt(96) / 800
    # Norms are chi(d_key): mean of squares d_key, variance 2 d_key.
    squares = omega.square().sum(0)
    assert abs(squares.mean() - d_key) < 5 * math.sqrt(2 * d_key / n_freq)
    assert abs(squares.var() / (2 * d_key) - 1) < 0.1
    # Norms of neighbouring columns are independent, orthogonal ones included.
    a, b = squares[0::2] - d_key, squares[1::2] - d_key
    assert abs((a * b).mean() / (2 * d_key)) < 5 / math.sqrt(n_freq / 2)


def test_haar_columns_have_no_preferred_sign():
    """QR without fixed signs would make the first entries one-sided."""
    firsts = torch.stack([omega_for(4, 4, seed=s)[0] for s in range(800)])
    assert (firsts > 0).double().mean(0).sub(0.5).abs().max() < 5 * 0.5 / math.sqrt(800)
    assert abs((firsts[:, 0] * firsts[:, 1]).mean()) < 0.2


# ---- Statistics: the kernels that random features approximate.


def kernel_error(phi, kernel, scale=0.15):
    x, y = scale * torch.randn(2, 100, 32)
    approximate = phi(x).double() @ phi(y).double().T
    return (approximate - kernel(x.double(), y.double())).square().mean().item()


def softmax_kernel(x, y):
    return (x @ y.T).exp()


def gaussian_kernel(x, y):
    return (-torch.cdist(x, y).square() / 2).exp()


def test_favor_approximates_the_softmax_kernel():
    omega = omega_for(32, ops.feature_frequencies("favor", 32, 32_000))
    assert kernel_error(lambda x: ops.favor(x, omega, softmax_temp=1.0), softmax_kernel) < 1e-3
    omega = omega_for(32, ops.feature_frequencies("favor-positive", 32, 32_000))
    phi = lambda x: ops.favor(x, omega, softmax_temp=1.0, positive=True)  # noqa: E731
    assert kernel_error(phi, softmax_kernel) < 1e-3


def test_rff_approximate_the_gaussian_kernel():
    omega = omega_for(32, ops.feature_frequencies("rff", 32, 32_000), orthogonal=False)
    assert kernel_error(lambda x: ops.rff(x, omega, softmax_temp=1.0), gaussian_kernel) < 1e-4
    omega = omega_for(32, ops.feature_frequencies("smoothed-rff", 32, 32_000), orthogonal=False)
    smoothed = lambda x: ops.smoothed_rff(x, omega, softmax_temp=1.0)  # noqa: E731
    assert kernel_error(smoothed, lambda x, y: gaussian_kernel(x, y) + 1) < 1e-4


def test_orthogonal_directions_reduce_the_error():
    errors = {}
    for orthogonal in (True, False):
        total = 0
        for draw in range(20):
            omega = omega_for(32, 32, orthogonal=orthogonal, seed=draw)
            total += kernel_error(
                lambda x, w=omega: ops.rff(x, w, softmax_temp=1.0), gaussian_kernel, scale=0.1
            )
        errors[orthogonal] = total
    assert errors[True] < errors[False]


def test_grf_with_relu_is_the_arc_cosine_kernel():
    """Cho and Saul 2009: E relu(w.x) relu(w.y) = |x||y| (sin t + (pi - t) cos t) / 2 pi."""
    omega = omega_for(8, 40_000)
    x, y = torch.randn(2, 30, 8)
    product = (ops.grf(x, omega) * ops.grf(y, omega)).double().mean(-1)
    norms = (x.norm(dim=-1) * y.norm(dim=-1)).double()
    angle = torch.acos((x * y).sum(-1).double() / norms)
    kernel = norms * (angle.sin() + (math.pi - angle) * angle.cos()) / (2 * math.pi)
    torch.testing.assert_close(product, kernel, rtol=0.05, atol=0.05)


# ---- Inside torch.


@pytest.mark.parametrize("name", list(MAPS))
def test_gradcheck(name):
    given, _ = MAPS[name]
    omega = omega_for(3, 4).double().requires_grad_(name != "poly2")
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x, w: given(x, w, 0.6), (x, omega))


@pytest.mark.parametrize(
    "op, arguments",
    [
        (OPS.poly2.default, (0.5, [0.0, 1.0, 2.0])),
        (OPS.favor.default, ("omega", None, False, True)),
        (OPS.rff.default, ("omega",)),
        (OPS.smoothed_rff.default, ("omega", 0.5, 2.0)),
        (OPS.grf.default, ("omega",)),
        (OPS.random_projection.default, ("omega",)),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_opcheck(op, arguments, dtype):
    x = torch.randn(3, 2, 5).to(dtype).requires_grad_()
    opcheck(op, (x, *(omega_for(5) if a == "omega" else a for a in arguments)))


# ---- Errors.

X, W = torch.zeros(2, 5), torch.zeros(5, 3)
ERRORS = [
    (ValueError, lambda: ops.poly2(X, softmax_temp=-1.0), "poly2: softmax_temp: want a finite"),
    (ValueError, lambda: ops.favor(X, W, softmax_temp=float("nan")), "favor: softmax_temp: want"),
    (ValueError, lambda: ops.poly2(X, coefficients=(1, -1, 0)), "poly2: coefficients: want three"),
    (ValueError, lambda: ops.poly2(X, coefficients=(0, 0, 0)), "poly2: coefficients: want one"),
    (ValueError, lambda: ops.poly2(X, coefficients=(1, 2)), "coefficients: want three numbers"),
    (ValueError, lambda: ops.rff(X, W.T), "rff: omega: want [5, n_freq] with n_freq >= 1, got"),
    (ValueError, lambda: ops.rff(X, W[:, :0]), "rff: omega: want [5, n_freq]"),
    (ValueError, lambda: ops.smoothed_rff(X, W, smoothing=math.inf), "smoothing: want a finite"),
    (ValueError, lambda: ops.grf(X, W, kernel_fn="tanh"), "kernel_fn: want one of 'relu'"),
    (TypeError, lambda: ops.rff(X.int(), W), "rff: x: want a floating point tensor, got Int"),
    (TypeError, lambda: ops.rff(X, W.int()), "rff: omega: want a floating point tensor"),
    (TypeError, lambda: ops.poly2([1.0]), "poly2: x: want a tensor, got list"),
    (ValueError, lambda: ops.poly2(torch.zeros(2, 0)), "poly2: x: want [..., K] with K >= 1"),
    (ValueError, lambda: ops.feature_width("elu", 4), "feature_map: want one of elu1, identity,"),
    (ValueError, lambda: ops.feature_width("favor", 4, 1), "favor: n_dims: want at least 2, got 1"),
    (ValueError, lambda: ops.feature_width("smoothed-rff", 2), "n_dims: want at least 3, got 2"),
    (ValueError, lambda: ops.feature_width("rff", 0), "d_key: want at least 1, got 0"),
    (ValueError, lambda: ops.feature_width("rff", 4, 0), "n_dims: want at least 1 or None, got 0"),
    (ValueError, lambda: omega_for(0), "draw_omega: d_key: want from 1 to 65535, got 0"),
    (ValueError, lambda: omega_for(4, 0), "draw_omega: n_freq: want from 1"),
    (ValueError, lambda: omega_for(4, layer=1 << 24), "draw_omega: layer: want from 0 to 16777215"),
    (ValueError, lambda: omega_for(4, step=-1), "draw_omega: step: want from 0"),
    (ValueError, lambda: omega_for(4, seed=-1), "draw_omega: seed: want at least 0, got -1"),
]


@pytest.mark.parametrize("kind, action, text", ERRORS, ids=[t for _, _, t in ERRORS])
def test_errors(kind, action, text):
    with pytest.raises(kind, match=re.escape(text)):
        action()
