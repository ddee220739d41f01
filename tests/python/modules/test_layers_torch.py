"""The operators around attention inside torch: operator checks, gradients in
float64, compilation, threads, memory."""

import gc

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.library import opcheck

import tarn
from tarn import ops

TARN = torch.ops.tarn
SEED = torch.tensor(1234567)


def rand(*shape, dtype=torch.float32, grad=True):
    return torch.randn(*shape, dtype=dtype).requires_grad_(grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_opcheck_affine(dtype):
    x, w, b = rand(2, 3, 5, dtype=dtype), rand(4, 5, dtype=dtype), rand(4, dtype=dtype)
    opcheck(TARN.affine.default, (x, w, b))
    opcheck(TARN.affine.default, (x, w))


def test_opcheck_affine_backward():
    g, x, w = rand(2, 3, 4, grad=False), rand(2, 3, 5, grad=False), rand(4, 5, grad=False)
    for want in (True, False):
        opcheck(TARN.affine_backward.default, (g, x, w, want, not want))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_opcheck_feed_forward(activation, dtype):
    shapes = (2, 3, 5), (7, 5), (7,), (4, 7)
    call = [rand(*s, dtype=dtype) for s in shapes]
    opcheck(TARN.feed_forward.default, (*call, activation, 0.25, SEED))


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_opcheck_feed_forward_backward(activation):
    call = [rand(*s, grad=False) for s in ((2, 3, 5), (7, 5), (7,), (4, 7))]
    out, hidden, product = TARN.feed_forward.default(*call, activation, 0.25, SEED)
    grad = torch.randn_like(out)
    opcheck(
        TARN.feed_forward_backward.default,
        (grad, *call, hidden, product, activation, 0.25, SEED, True),
    )


RESIDUAL_CASES = ["all", "sum", "norm"]


def residual_call(kind, dtype=torch.float32, grad=True):
    x, r = rand(2, 3, 6, dtype=dtype, grad=grad), rand(2, 3, 6, dtype=dtype, grad=grad)
    b, gamma, beta = (rand(6, dtype=dtype, grad=grad) for _ in range(3))
    return {
        "all": (x, r, b, gamma, beta, 1e-5, 0.25, SEED),
        "sum": (x, r, b, None, None, 1e-5, 0.25, SEED),
        "norm": (x, None, None, gamma, beta, 1e-5, 0.0, None),
    }[kind]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", RESIDUAL_CASES)
def test_opcheck_residual_norm(kind, dtype):
    opcheck(TARN.residual_norm.default, residual_call(kind, dtype))


def test_opcheck_residual_norm_backward():
    x, r, b, gamma, beta, eps, p, seed = residual_call("all", grad=False)
    y, s, mean, inverse = TARN.residual_norm.default(x, r, b, gamma, beta, eps, p, seed)
    grads = torch.randn_like(y), torch.randn_like(s)
    opcheck(TARN.residual_norm_backward.default, (*grads, s, mean, inverse, gamma, True, p, seed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_opcheck_packed(dtype):
    packed = torch.randn(2, 9, 2 * 2 * 3 + 4 * 5).to(dtype).requires_grad_()
    opcheck(TARN.linear_attention_packed.default, (packed, 2, 4, 3))
    out, denominators = TARN.linear_attention_packed.default(packed.detach(), 2, 4, 3)
    call = (packed.detach(), 2, 4, 3, None, None, out, denominators, torch.randn_like(out))
    opcheck(
        TARN.linear_attention_packed_backward.default,
        (*call, True, "elu1", "exact", 1e-6, 1.0, 0),
    )


def test_opcheck_scales():
    opcheck(TARN.dropout_scales.default, (SEED, 3, 50, 0.5))


def test_gradcheck_double():
    """Checks the composed forms; the kernels are checked against them elsewhere."""
    d = torch.float64
    x = rand(2, 3, 4, dtype=d)
    assert gradcheck(ops.affine, (x, rand(5, 4, dtype=d), rand(5, dtype=d)))
    weights = rand(5, 4, dtype=d), rand(5, dtype=d), rand(3, 5, dtype=d)
    for activation in ("relu", "gelu"):

        def network(*call):
            return ops.feed_forward(*call, activation=activation, dropout=0.25, seed=SEED)

        assert gradcheck(network, (x, *weights))
    vectors = [rand(4, dtype=d) for _ in range(3)]

    def residual(*call):
        return ops.residual_norm(*call, dropout=0.25, seed=SEED)

    assert gradcheck(residual, (x, rand(2, 3, 4, dtype=d), *vectors))
    assert gradgradcheck(residual, (x, rand(2, 3, 4, dtype=d), *vectors))
    packed = rand(1, 4, 2 * 2 * 2 + 2 * 3, dtype=d)
    assert gradcheck(lambda p: ops.linear_attention_packed(p, 2, 2), (packed,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_packed_equals_three_tensors_to_the_bit(dtype):
    heads, value_heads, d_key, d_value = 2, 4, 6, 5
    packed = torch.randn(3, 70, 2 * heads * d_key + value_heads * d_value).to(dtype)
    packed.requires_grad_()
    mask = torch.rand(3, 70) > 0.3
    options = dict(key_mask=mask, causal=True, denominator="compat", eps=0.1, scale=0.5)
    out = ops.linear_attention_packed(packed, heads, d_key, value_heads=value_heads, **options)
    grad = torch.randn_like(out)
    (given,) = torch.autograd.grad(out, packed, grad)
    q, k, v = packed.split([heads * d_key, heads * d_key, value_heads * d_value], 2)
    wanted = ops.linear_attention(
        q.unflatten(2, (heads, d_key)),
        k.unflatten(2, (heads, d_key)),
        v.unflatten(2, (value_heads, d_value)),
        **options,
    ).flatten(2)
    (expected,) = torch.autograd.grad(wanted, packed, grad)
    assert torch.equal(out, wanted) and torch.equal(given, expected)


def test_strided_inputs_and_gradients():
    x = torch.randn(5, 3, 8).transpose(0, 1).requires_grad_()
    w, g = torch.randn(8, 6).t(), torch.randn(4, 3, 6)[0].expand(3, 5, 3, 6)[:, :, 0]
    given = torch.autograd.grad(ops.affine(x, w), x, g)[0]
    wanted = torch.autograd.grad(torch.nn.functional.linear(x, w), x, g)[0]
    torch.testing.assert_close(given, wanted)
    gamma, beta = torch.randn(16)[::2], torch.randn(8)
    g = torch.randn(8, 5, 3).permute(2, 1, 0)
    given = torch.autograd.grad(ops.residual_norm(x, gamma=gamma, beta=beta)[0], x, g)[0]
    wanted = torch.autograd.grad(torch.nn.functional.layer_norm(x, (8,), gamma, beta), x, g)[0]
    torch.testing.assert_close(given, wanted)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_layer_compiles_without_graph_breaks(norm):
    layer = tarn.nn.EncoderLayer(16, 2, 24, 0.0, "gelu", norm)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = torch.randn(2, 11, 16, requires_grad=True)
    given, wanted = compiled(x), layer(x)
    torch.testing.assert_close(given, wanted)
    grads = [torch.autograd.grad(y.square().sum(), x)[0] for y in (given, wanted)]
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_inference_mode_and_no_grad(norm):
    layer = tarn.nn.EncoderLayer(16, 2, 24, 0.5, "gelu", norm).eval()
    x = torch.randn(2, 13, 16)
    wanted = layer(x).detach()
    with torch.inference_mode():
        assert torch.equal(layer(x), wanted)
    with torch.no_grad():
        y = layer(x)
    assert torch.equal(y, wanted) and not y.requires_grad


def test_bfloat16_layer_trains():
    layer = tarn.nn.EncoderLayer(32, 2, 48, 0.0)
    x = torch.randn(2, 40, 32)
    wanted = layer(x)
    half = layer.bfloat16()
    given = half(x.bfloat16())
    given.float().sum().backward()
    assert given.dtype == torch.bfloat16
    # Rounding at each of some ten operators, 2^-9 each, on entries up to 3.
    torch.testing.assert_close(given.float(), wanted, atol=0.1, rtol=0.05)
    assert all(p.grad.isfinite().all() for p in half.parameters())


def test_empty_batches():
    layer = tarn.nn.EncoderLayer(16, 2, 24, 0.5)
    for shape in ((0, 7, 16), (3, 0, 16)):
        x = torch.randn(shape, requires_grad=True)
        layer(x).sum().backward()
        assert x.grad.shape == shape
        assert all(p.grad.eq(0).all() for p in layer.parameters() if p.dim() == 2)
        layer.zero_grad()


def test_threads_give_the_same_bits():
    """Only the passes are tested: products are torch's own."""
    results = []
    x, r = torch.randn(500, 40, requires_grad=True), torch.randn(500, 40)
    gamma, beta = torch.randn(40, requires_grad=True), torch.randn(40)
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        y, s = ops.residual_norm(x, r, beta, gamma, beta, dropout=0.3, seed=SEED)
        results.append((y, s, *torch.autograd.grad(y.sin().sum() + s.sum(), (x, gamma))))
    for result in results:
        assert all(torch.equal(a, b) for a, b in zip(result, results[0]))


def test_relu_keeps_no_mask():
    """Saved for the gradient: inputs, weights and the hidden rows, nothing more."""
    saved = []

    def pack(tensor):
        saved.append(tensor.numel())
        return tensor

    x, w1, b1, w2 = rand(100, 16), rand(64, 16), rand(64), rand(16, 64)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        ops.feed_forward(x, w1, b1, w2, dropout=0.5, seed=SEED)
    assert sum(saved) == 100 * 16 + 2 * 64 * 16 + 64 + 100 * 64 + 1


@pytest.mark.parametrize("rows", [64, 100, 1000, 4096])
def test_memory_returns_to_the_cache(rows):
    """Blocks below 1 MiB are multiples of 16 KiB, others of huge pages."""
    unit = 1 << 14 if rows < 1024 else 1 << 21
    block = -(-rows * 1024 // unit) * unit
    gc.collect()
    TARN.release_cached_memory()
    before = TARN.cached_memory()
    x, w = torch.randn(rows, 256), torch.randn(256, 256)
    y = ops.affine(x, w)
    used, cached, peak = TARN.cached_memory()
    assert used == before[0] + block and peak >= used
    first = y.data_ptr()
    del y
    after = TARN.cached_memory()
    assert after[0] == before[0] and after[1] == cached + block
    assert ops.affine(x, w).data_ptr() == first
    TARN.release_cached_memory()
    assert TARN.cached_memory()[1] == 0
