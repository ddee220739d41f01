"""Softmax attention inside torch: operator checks, gradients of any order in
float64, compilation, errors, memory."""

import os
import subprocess
import sys

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.library import opcheck

from tarn.ops import draw_seed, exact_topk_attention, full_attention, local_attention

FORWARD = torch.ops.tarn.softmax_attention.default
BACKWARD = torch.ops.tarn.softmax_attention_backward.default
WEIGHTS = torch.ops.tarn.softmax_attention_weights.default
TOPK = torch.ops.tarn.exact_topk_attention.default
INDICES = torch.ops.tarn.exact_topk_indices.default

B, T, S, H, K, V = 2, 7, 9, 2, 3, 4
DTYPES = (torch.float32, torch.float64)


def tensors(dtype=torch.float32, requires_grad=True):
    shapes = ((B, T, H, K), (B, S, H, K), (B, S, H, V))
    return [torch.randn(shape).to(dtype).requires_grad_(requires_grad) for shape in shapes]


def masks(dtype=torch.float32, requires_grad=True):
    """The operators' arguments after queries, keys and values, all of them in use."""
    return (
        torch.rand(B, 1, T, S) > 0.2,
        torch.rand(B, S) > 0.2,
        torch.tensor([S, 4]),
        torch.randn(H, 1, S, dtype=dtype, requires_grad=requires_grad),
        draw_seed(),
    )


RICH = dict(causal=True, causal_offset=2, softmax_temp=0.4, dropout=0.25)


def more(dtype=torch.float32, requires_grad=True):
    """The arguments that exact top-k does not take."""
    sinks = torch.randn(H, dtype=dtype, requires_grad=requires_grad)
    return RICH | dict(window=4, softcap=0.9, sinks=sinks)


@pytest.mark.parametrize(
    "rich, dtype",
    [
        (False, torch.float32),
        (True, torch.float32),
        (True, torch.bfloat16),
        (True, torch.float64),
    ],
)
def test_opcheck_forward(rich, dtype):
    if not rich:
        opcheck(FORWARD, tensors(dtype), dict(local_context=3))
    else:
        opcheck(FORWARD, (*tensors(dtype), *masks(dtype)), RICH)
        opcheck(FORWARD, (*tensors(dtype), *masks(dtype)), more(dtype))


def test_opcheck_backward_weights_and_topk():
    q, k, v = tensors(requires_grad=False)
    rest = masks(requires_grad=False)
    out, statistics = FORWARD(q, k, v, *rest, **RICH)
    opcheck(BACKWARD, (torch.randn_like(out), out, statistics, q, k, v, *rest), RICH)
    grad = torch.randn_like(out)
    opcheck(BACKWARD, (grad, out, statistics, q, k, v, *rest), RICH | dict(want_bias=False))
    options = more(requires_grad=False)
    out, statistics = FORWARD(q, k, v, *rest, **options)
    opcheck(BACKWARD, (grad, out, statistics, q, k, v, *rest), options)
    opcheck(WEIGHTS, (*tensors(), *masks()), more())
    opcheck(INDICES, (q, k, v, *rest), RICH | dict(width=5))
    opcheck(WEIGHTS, (*tensors(), *masks()), RICH)
    opcheck(TOPK, (*tensors(), *masks()), RICH | dict(topk=4, need_weights=True))


def calls(dtype=torch.float64):
    mask, key_mask, lengths, _, seed = masks()
    everything = dict(
        attention_mask=mask,
        key_mask=key_mask,
        key_lengths=lengths,
        causal=True,
        causal_offset=3,
        dropout=0.25,
        seed=seed,
    )

    def full(q, k, v, bias):
        return full_attention(q, k, v, bias=bias, need_weights=True, **everything)

    def local(q, k, v, bias):
        return local_attention(q, k, v, bias=bias, local_context=4, softmax_temp=0.5)

    def topk(q, k, v, bias):
        return exact_topk_attention(q, k, v, topk=3, bias=bias, need_weights=True, **everything)

    def capped(q, k, v, bias):
        sinks = bias[:, 0, 0]
        return full_attention(
            q, k, v, bias=bias, causal=True, causal_offset=2, window=4, softcap=0.9, sinks=sinks
        )

    return dict(full=full, local=local, topk=topk, capped=capped)


@pytest.mark.parametrize("kind", ["full", "local", "topk", "capped"])
def test_gradcheck_float64(kind):
    bias = torch.randn(H, 1, S, dtype=torch.float64, requires_grad=True)
    call = (*tensors(torch.float64), bias)
    assert gradcheck(calls()[kind], call)
    small = [x.detach()[:1, :3, :1].requires_grad_() for x in call[:3]]
    if kind == "capped":
        sinks = torch.randn(1, dtype=torch.float64, requires_grad=True)
        options = dict(causal=True, window=2, softcap=0.9)
        assert gradgradcheck(
            lambda *x: full_attention(*x[:3], sinks=x[3], **options), (*small, sinks)
        )
        return
    assert gradgradcheck(
        lambda q, k, v: (
            exact_topk_attention(q, k, v, topk=2)
            if kind == "topk"
            else full_attention(q, k, v, causal=kind == "local")
        ),
        small,
    )


def test_bias_with_minus_infinity_has_a_finite_gradient():
    q, k, v = tensors(torch.float64)
    bias = torch.randn(T, S, dtype=torch.float64)
    bias[torch.rand(T, S) > 0.6] = -float("inf")
    bias.requires_grad_()
    for dtype in (torch.float64, torch.float32):
        call = [x.to(dtype) for x in (q, k, v, bias)]
        out = full_attention(*call[:3], bias=call[3])
        grads = torch.autograd.grad(out.sum() + (out * out).sum(), (q, k, v, bias))
        assert all(g.isfinite().all() for g in grads)
        assert not grads[3][bias == -float("inf")].any()


# The blocks of top-k make its number of queries a constant of the trace.
@pytest.mark.parametrize(
    "kind, dtype, dynamic",
    [(kind, dtype, False) for kind in ("full", "local", "topk") for dtype in DTYPES]
    + [("full", torch.float32, True), ("local", torch.float32, True)]
    + [("window", dtype, dynamic) for dtype in DTYPES for dynamic in (False, True)],
)
def test_compiles_without_graph_breaks(kind, dtype, dynamic):
    torch._dynamo.reset()  # it compiles one function eight times at most

    def layer(q, k, v, mask):
        if kind == "full":
            return full_attention(q, k, v, key_mask=mask, causal=True, causal_offset=2)
        if kind == "local":
            return local_attention(q, k, v, local_context=5, key_mask=mask)
        if kind == "window":
            sinks = q[0, 0, :, 0]
            options = dict(causal=True, causal_offset=2, window=3, softcap=0.9)
            return full_attention(q, k, v, key_mask=mask, sinks=sinks, **options)
        return exact_topk_attention(q, k, v, topk=3, key_mask=mask)

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    call, mask = tensors(dtype), torch.rand(B, S) > 0.2
    given, wanted = compiled(*call, mask), layer(*call, mask)
    torch.testing.assert_close(given, wanted)
    for a, b in zip(*(torch.autograd.grad(x.sum(), call) for x in (given, wanted))):
        torch.testing.assert_close(a, b)


def test_meta_tensors_give_shapes():
    q, k, v = (x.detach().to("meta") for x in tensors(torch.bfloat16))
    assert full_attention(q, k, v).shape == (B, T, H, V)
    out, weights = full_attention(q, k, v, need_weights=True)
    assert out.dtype == torch.bfloat16 and weights.shape == (B, H, T, S)
    assert exact_topk_attention(q, k, v, topk=3).shape == (B, T, H, V)


# ---- Errors: before any work, naming the argument.

WRONG = [
    (dict(attention_mask=torch.ones(T, T, dtype=torch.bool)), ValueError, "attention_mask"),
    (dict(attention_mask=torch.ones(B, 3, T, S, dtype=torch.bool)), ValueError, "attention_mask"),
    (dict(attention_mask=torch.ones(1, B, H, T, S).bool()), ValueError, "attention_mask"),
    (dict(attention_mask=torch.ones(T, S)), TypeError, "attention_mask"),
    (dict(key_mask=torch.ones(B, T, dtype=torch.bool)), ValueError, "key_mask"),
    (dict(key_mask=torch.ones(B, S)), TypeError, "key_mask"),
    (dict(key_mask=[True]), TypeError, "key_mask"),
    (dict(key_lengths=torch.tensor([1, S + 1])), ValueError, "key_lengths"),
    (dict(key_lengths=torch.tensor([1, -1])), ValueError, "key_lengths"),
    (dict(key_lengths=torch.tensor([1])), ValueError, "key_lengths"),
    (dict(key_lengths=torch.tensor([1.0, 2.0])), TypeError, "key_lengths"),
    (dict(bias=torch.ones(S, T)), ValueError, "bias"),
    (dict(bias=torch.ones(T, S, dtype=torch.int64)), TypeError, "bias"),
    (dict(causal_offset=1.5), TypeError, "causal_offset"),
    (dict(softmax_temp=float("nan")), ValueError, "softmax_temp"),
    (dict(softmax_temp="1"), TypeError, "softmax_temp"),
    (dict(dropout=1.0), ValueError, "dropout"),
    (dict(dropout=0.5), ValueError, "seed"),
]


@pytest.mark.parametrize("options, error, name", WRONG)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_wrong_arguments_are_named(options, error, name, dtype):
    q, k, v = tensors(dtype)
    for call in (
        lambda: full_attention(q, k, v, **options),
        lambda: local_attention(q, k, v, local_context=3, **options),
        lambda: exact_topk_attention(q, k, v, topk=3, **options),
    ):
        with pytest.raises(error, match=name):
            call()


@pytest.mark.parametrize(
    "options, error, name",
    [
        (dict(window=-1, causal=True), ValueError, "window"),
        (dict(window=3), ValueError, "window"),
        (dict(window=2.5, causal=True), TypeError, "window"),
        (dict(softcap=-1.0), ValueError, "softcap"),
        (dict(softcap=float("inf")), ValueError, "softcap"),
        (dict(softcap="1"), TypeError, "softcap"),
        (dict(sinks=torch.ones(H + 1)), ValueError, "sinks"),
        (dict(sinks=torch.ones(H, 1)), ValueError, "sinks"),
        (dict(sinks=torch.ones(H, dtype=torch.int64)), TypeError, "sinks"),
        (dict(sinks=[1.0] * H), TypeError, "sinks"),
    ],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_wrong_windows_caps_and_sinks_are_named(options, error, name, dtype):
    with pytest.raises(error, match=name):
        full_attention(*tensors(dtype), **options)


def test_wrong_operands_and_options_are_named():
    q, k, v = tensors()
    for wrong, error, name in (
        ((q, k[:, :, :1], v), ValueError, "keys"),
        ((q, k, v[:, :4]), ValueError, "values"),
        ((q, k.transpose(1, 2), v), ValueError, "keys"),
        ((q, k.double(), v), TypeError, "keys"),
        ((q.int(), k, v), TypeError, "queries"),
        ((q[0], k, v), ValueError, "queries"),
    ):
        with pytest.raises(error, match=name):
            full_attention(*wrong)
    for context in (0, -1):
        with pytest.raises(ValueError, match="local_context"):
            local_attention(q, k, v, local_context=context)
    with pytest.raises(TypeError, match="local_context"):
        local_attention(q, k, v, local_context=2.5)
    with pytest.raises(ValueError, match="topk"):
        exact_topk_attention(q, k, v, topk=0)


# ---- Memory: nothing of size T x S.

PEAK = """
import resource, torch
from tarn.ops import exact_topk_attention, full_attention, local_attention
torch.set_num_threads(1)
N = 16384
shape = (1, N, 1, 16)
q, k, v = (torch.randn(shape, requires_grad=True) for _ in range(3))
def run(n):
    call = [x[:, :n] for x in (q, k, v)]
    out = {call}
    out.sum().backward()
run(128)  # loads what loads late
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
run(N)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.parametrize(
    "call, limit_mib",
    [
        ("full_attention(*call, causal=True)", 40),
        ("local_attention(*call, local_context=128)", 40),
        ("exact_topk_attention(*call, topk=8)", 300),
    ],
)
def test_peak_memory_is_far_below_the_square(call, limit_mib):
    """Forward and gradient at N = 16,384: one N x N float32 buffer is 1,024
    MiB, one of bool 256. Keys, values, gradients and scratch are 1 MiB each;
    top-k keeps 8 keys and values per query, 16 MiB and the same again per step."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK.replace("{call}", call)],
        capture_output=True,
        text=True,
        env=os.environ | {"GLIBC_TUNABLES": ""},
        check=True,
    )
    assert int(done.stdout) < limit_mib * 2**20


def test_saved_bytes_are_inputs_output_and_two_numbers_a_row():
    q, k, v = (torch.randn(1, 500, 2, 16, requires_grad=True) for _ in range(3))
    saved = []

    def pack(tensor):
        saved.append(tensor.numel() * tensor.element_size())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        full_attention(q, k, v, causal=True)
    assert sum(saved) == 4 * (4 * q.numel() + 2 * 500 * 2)


def test_bias_gradient_is_computed_only_where_wanted():
    q, k, v = tensors()
    out, statistics = FORWARD(q, k, v, bias=torch.zeros(T, S))
    call = (torch.ones_like(out), out.detach(), statistics, *(x.detach() for x in (q, k, v)))
    grads = BACKWARD(*call, bias=torch.zeros(T, S), want_bias=False)
    assert grads[3].numel() == 0
    wanted = BACKWARD(*call, bias=torch.zeros(T, S))
    assert wanted[3].shape == (T, S)
    assert all(torch.equal(a, b) for a, b in zip(grads[:3], wanted[:3]))
