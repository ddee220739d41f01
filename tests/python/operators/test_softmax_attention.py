"""Full, local and exact top-k attention against their definitions: masks,
offsets, windows, empty rows, NaN in hidden places, padding, causality."""

import pytest
import torch
from softmax_attention_reference import reference

from tarn.ops import (
    draw_seed,
    dropout_scales,
    exact_topk_attention,
    full_attention,
    local_attention,
)

NAN, INF = float("nan"), float("inf")


def local(q, k, v, **options):
    return local_attention(q, k, v, local_context=17, **options)


def topk(q, k, v, **options):
    return exact_topk_attention(q, k, v, topk=7, **options)


KINDS = {
    "full": (full_attention, {}),
    "local": (local, dict(local_context=17)),
    "exact-topk": (topk, dict(topk=7)),
}
kinds = pytest.mark.parametrize("kind", KINDS)


def tensors(B=2, T=13, S=None, H=2, K=5, V=3, dtype=torch.float32, requires_grad=False):
    S = T if S is None else S
    shapes = ((B, T, H, K), (B, S, H, K), (B, S, H, V))
    return [torch.randn(shape).to(dtype).requires_grad_(requires_grad) for shape in shapes]


def masks_of(name, B=2, T=13, S=13, H=2):
    return {
        "none": dict,
        "causal": lambda: dict(causal=True),
        "offset": lambda: dict(causal=True, causal_offset=S - T - 2),
        "key-mask": lambda: dict(key_mask=torch.rand(B, S) > 0.4),
        "lengths": lambda: dict(key_lengths=torch.tensor([S - 3, 0])),
        "dense": lambda: dict(attention_mask=torch.rand(B, 1, T, S) > 0.4),
        "dense-2d": lambda: dict(attention_mask=torch.rand(T, S) > 0.4, causal=True),
        "bias": lambda: dict(bias=torch.randn(1, H, T, S), softmax_temp=0.3),
        "window": lambda: dict(causal=True, causal_offset=S - T, window=4),
        "softcap": lambda: dict(softcap=0.7, softmax_temp=1.5, key_mask=torch.rand(B, S) > 0.4),
        "sinks": lambda: dict(causal=True, sinks=torch.randn(H)),
        "every option": lambda: dict(
            causal=True,
            causal_offset=3,
            window=5,
            softcap=1.1,
            sinks=torch.randn(H),
            key_lengths=torch.tensor([S, S - 4]),
            bias=torch.randn(B, 1, 1, S),
        ),
        "everything": lambda: dict(
            causal=True,
            causal_offset=3,
            key_mask=torch.rand(B, S) > 0.2,
            key_lengths=torch.tensor([S, S - 4]),
            attention_mask=torch.rand(H, T, S) > 0.2,
            bias=torch.randn(B, 1, 1, S),
            softmax_temp=0.0,
        ),
    }[name]()


MASKS = ("none", "causal", "offset", "key-mask", "lengths", "dense", "dense-2d", "bias")
MORE = ("window", "softcap", "sinks", "every option")
TOLERANCE = {torch.float32: 3e-6, torch.float64: 1e-13, torch.bfloat16: 2e-2}


@kinds
@pytest.mark.parametrize("masks", (*MASKS, "everything"))
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_equals_the_definition(kind, masks, dtype):
    op, extra = KINDS[kind]
    for T, S in ((13, 13), (9, 21), (21, 9)):
        q, k, v = tensors(T=T, S=S, dtype=dtype)
        options = masks_of(masks, T=T, S=S)
        given = op(q, k, v, **options)
        assert given.dtype == dtype and given.shape == (2, T, 2, 3)
        wanted, _ = reference(q, k, v, **options, **extra)
        assert (given.double() - wanted).abs().max() < TOLERANCE[dtype]


@pytest.mark.parametrize("masks", MORE)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_window_cap_and_sinks_equal_the_definition(masks, dtype):
    for T, S in ((13, 13), (9, 21), (1, 21), (21, 9)):
        q, k, v = tensors(T=T, S=S, dtype=dtype)
        options = masks_of(masks, T=T, S=S)
        given, weights = full_attention(q, k, v, need_weights=True, **options)
        wanted, wide = reference(q, k, v, **options)
        assert (given.double() - wanted).abs().max() < TOLERANCE[dtype]
        assert (weights.double() - wide).abs().max() < TOLERANCE[dtype]


@pytest.mark.parametrize("masks", MORE)
def test_gradients_of_window_cap_and_sinks_equal_those_of_the_definition(masks):
    for dtype, bound in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        call = tensors(T=11, S=19, requires_grad=True, dtype=dtype)
        options = masks_of(masks, T=11, S=19)
        for name in ("bias", "sinks"):
            if name in options:
                options[name] = options[name].to(dtype).requires_grad_()
                call.append(options[name])
        grad = torch.randn(2, 11, 2, 3)
        given = torch.autograd.grad(full_attention(*call[:3], **options), call, grad.to(dtype))
        wide, _ = reference(*call[:3], **options)
        wanted = torch.autograd.grad(wide, call, grad.double())
        for a, b in zip(given, wanted):
            assert a.shape == b.shape and (a - b).abs().max() < bound


def test_the_last_keys_are_a_band():
    # The composed form cuts windows into blocks; T and S take it across their ends.
    for T, S in ((130, 130), (1, 130), (40, 130), (130, 40)):
        q, k, v = tensors(T=T, S=S, dtype=torch.float64)
        keys = torch.rand(2, S) > 0.2
        for offset in (S - T, 3, -7, 200):
            for window in (1, 5, 17):
                ahead = torch.arange(S) - torch.arange(T)[:, None] - offset
                given = full_attention(
                    q, k, v, causal=True, causal_offset=offset, window=window, key_mask=keys
                )
                wanted = full_attention(
                    q, k, v, attention_mask=(ahead <= 0) & (ahead > -window), key_mask=keys
                )
                torch.testing.assert_close(given, wanted)


def test_a_ring_of_the_last_keys_gives_the_rows_of_a_window():
    q, k, v = tensors(T=60)
    sinks = torch.randn(2)
    whole = full_attention(q, k, v, causal=True, window=9, softcap=2.0, sinks=sinks)
    for t in range(60):
        seen = slice(max(0, t - 8), t + 1)
        step = full_attention(q[:, t : t + 1], k[:, seen], v[:, seen], softcap=2.0, sinks=sinks)
        torch.testing.assert_close(step, whole[:, t : t + 1], atol=2e-6, rtol=0)


@kinds
@pytest.mark.parametrize("masks", ("none", "lengths", "bias", "everything"))
def test_gradients_equal_those_of_the_definition(kind, masks):
    op, extra = KINDS[kind]
    call = tensors(T=11, S=19, requires_grad=True)
    options = masks_of(masks, T=11, S=19)
    if "bias" in options:
        call.append(options["bias"].requires_grad_())
    grad = torch.randn(2, 11, 2, 3)
    out = op(*call[:3], **options)
    given = torch.autograd.grad(out, call, grad)
    wide, _ = reference(*call[:3], **options, **extra)
    wanted = torch.autograd.grad(wide, call, grad.double())
    for a, b in zip(given, wanted):
        assert a.shape == b.shape and (a - b).abs().max() < 1e-5


@pytest.mark.parametrize("T, S", [(0, 4), (4, 0), (0, 0), (1, 1)])
@pytest.mark.parametrize("B", [0, 2])
@kinds
def test_empty_sizes(kind, T, S, B):
    op, extra = KINDS[kind]
    for dtype in (torch.float32, torch.float64):
        q, k, v = tensors(B=B, T=T, S=S, dtype=dtype)
        out = op(q, k, v)
        wanted, _ = reference(q, k, v, **extra)
        assert out.shape == wanted.shape
        torch.testing.assert_close(out.double(), wanted, atol=1e-6, rtol=0)


@kinds
def test_strided_inputs(kind):
    op, _ = KINDS[kind]
    q, k, v = tensors(T=30)
    strided = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k)]
    gaps = torch.full((2, 30, 2, 6), NAN)
    gaps[..., ::2] = v
    out = op(*strided, gaps[..., ::2], bias=torch.zeros(30, 30).t())
    assert torch.equal(out, op(q, k, v, bias=torch.zeros(30, 30)))


# ---- Between the kinds.


def test_local_17_is_full_inside_a_band():
    q, k, v = tensors(T=128)
    near = (torch.arange(128)[:, None] - torch.arange(128)).abs() < 9
    given = local_attention(q, k, v, local_context=17)
    torch.testing.assert_close(
        given, full_attention(q, k, v, attention_mask=near), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("context", [1, 2, 4, 64])
@pytest.mark.parametrize("causal", [False, True])
def test_even_contexts_have_one_key_more_before(context, causal):
    q, k, v = tensors(T=40)
    ahead = torch.arange(40) - torch.arange(40)[:, None]
    band = (ahead >= -(context // 2)) & (ahead < (context + 1) // 2)
    given = local_attention(q, k, v, local_context=context, causal=causal)
    wanted = full_attention(q, k, v, attention_mask=band, causal=causal)
    torch.testing.assert_close(given, wanted, atol=1e-6, rtol=0)
    assert not local_attention(q, k, v, local_context=context).isnan().any()


def test_topk_of_every_key_is_full():
    q, k, v = tensors(T=50)
    for width in (50, 51, 1000):
        for options in ({}, dict(causal=True), dict(key_lengths=torch.tensor([50, 20]))):
            torch.testing.assert_close(
                exact_topk_attention(q, k, v, topk=width, **options),
                full_attention(q, k, v, **options),
                atol=1e-6,
                rtol=0,
            )
    # At most 20 keys are allowed, so that topk 20 takes all of them.
    mask = torch.zeros(50, 50, dtype=torch.bool)
    mask[:, ::3] = True
    torch.testing.assert_close(
        exact_topk_attention(q, k, v, topk=20, attention_mask=mask),
        full_attention(q, k, v, attention_mask=mask),
        atol=1e-6,
        rtol=0,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_topk_ties_go_to_the_lower_position(dtype):
    q, k, v = tensors(B=1, T=3, S=100, dtype=dtype)
    k[:, 1:] = k[:, :1]  # one key, a hundred times
    _, weights = exact_topk_attention(q, k, v, topk=10, need_weights=True)
    wanted = torch.zeros(1, 2, 3, 100, dtype=dtype)
    wanted[..., :10] = 0.1
    torch.testing.assert_close(weights, wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("op, extra", [KINDS["full"], KINDS["exact-topk"]])
def test_weights_on_request(op, extra, dtype):
    options = masks_of("everything") | dict(softmax_temp=0.7)
    q, k, v = tensors(dtype=dtype, requires_grad=True)
    seed = draw_seed()
    out, weights = op(q, k, v, need_weights=True, dropout=0.5, seed=seed, **options)
    wanted = reference(q, k, v, **options, **extra)[1]
    assert weights.shape == (2, 2, 13, 13)
    torch.testing.assert_close(weights.double(), wanted, atol=1e-6, rtol=0)  # before dropout
    torch.testing.assert_close(out, op(q, k, v, dropout=0.5, seed=seed, **options))
    grads = torch.autograd.grad(weights.square().sum(), (q, k))
    wide = torch.autograd.grad(wanted.square().sum(), (q, k))
    for a, b in zip(grads, wide):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=0)


# ---- One query at a time: what a cache of keys and values computes.


@kinds
def test_a_hundred_steps_equal_the_sequence(kind):
    op, _ = KINDS[kind]
    q, k, v = tensors(B=10, T=100, H=4, K=25, V=64)
    whole = op(q, k, v, causal=True)
    for t in range(100):
        # A ring holds the window alone, so blocks of keys begin elsewhere, and sums
        # differ by rounding.
        first = max(0, t - 8) if kind == "local" else 0
        seen = slice(first, t + 1)
        if kind == "local":
            step = full_attention(q[:, t : t + 1], k[:, seen], v[:, seen])
            torch.testing.assert_close(step, whole[:, t : t + 1], atol=1e-5, rtol=0)
        else:
            step = op(q[:, t : t + 1], k[:, seen], v[:, seen])
            assert torch.equal(step, whole[:, t : t + 1])


@pytest.mark.parametrize("op, _", [KINDS["full"], KINDS["exact-topk"]])
def test_cross_attention_row_by_row(op, _):
    q, k, v = tensors(T=42, S=100)
    keep = torch.rand(2, 100) > 0.3
    whole = op(q, k, v, key_mask=keep)
    rows = [op(q[:, t : t + 1], k, v, key_mask=keep) for t in range(42)]
    assert torch.equal(torch.cat(rows, 1), whole)


# ---- Dropout.


@pytest.mark.parametrize("kind", ["full", "local"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dropout_multiplies_the_weights_by_its_factors(kind, dtype):
    op, extra = KINDS[kind]
    q, k, v = tensors(T=30, S=150, dtype=dtype)
    seed = draw_seed()
    factors = dropout_scales(seed, 2 * 2 * 30, 150, 0.3).view(2, 2, 30, 150).double()
    wanted, _ = reference(q, k, v, factors=factors, **extra)
    out = op(q, k, v, dropout=0.3, seed=seed)
    assert (out.double() - wanted).abs().max() < 1e-5
    assert torch.equal(out, op(q, k, v, dropout=0.3, seed=seed))
    assert not torch.equal(out, op(q, k, v, dropout=0.3, seed=draw_seed()))


def test_dropout_of_topk_keeps_the_mean():
    q, k, v = tensors(B=1, T=200, H=1, V=1)
    v[:] = 1
    out = topk(q, k, v, dropout=0.4, seed=draw_seed())
    assert abs(out.mean().item() - 1) < 0.1 and out.min() < 0.7 and out.max() > 1.2


# ---- What is hidden has no influence.


@kinds
@pytest.mark.parametrize("how", ["key_mask", "key_lengths", "causal", "attention_mask", "bias"])
def test_hidden_keys_and_values_may_be_nan(kind, how):
    op, _ = KINDS[kind]
    T, cut = 40, 25
    options = {
        "key_mask": dict(key_mask=torch.arange(T).expand(2, T) < cut),
        "key_lengths": dict(key_lengths=torch.tensor([cut, cut])),
        "causal": dict(causal=True),
        "attention_mask": dict(attention_mask=(torch.arange(T) < cut).expand(T, T)),
        "bias": dict(bias=torch.where(torch.arange(T) < cut, 0.0, -INF).expand(T, T)),
    }[how]
    rows = cut if how == "causal" else T
    q, k, v = tensors(T=T, requires_grad=True)
    grad = torch.randn(2, T, 2, 3)
    grad[:, rows:] = 0
    wanted = op(q, k, v, **options)
    wanted_grads = torch.autograd.grad(wanted, (q, k, v), grad)
    for bad in (NAN, INF, 1e9):
        dirty = [x.detach().clone().requires_grad_() for x in (q, k, v)]
        with torch.no_grad():
            dirty[1][:, cut:] = dirty[2][:, cut:] = bad
        given = op(*dirty, **options)
        assert torch.equal(given[:, :rows], wanted[:, :rows])
        grads = torch.autograd.grad(given[:, :rows], dirty, grad[:, :rows])
        assert torch.equal(grads[0][:, :rows], wanted_grads[0][:, :rows])
        # Later queries do read them: their contribution, 0 times NaN, is 0 from the
        # kernel and NaN from torch's operators.
        if how == "causal" and kind == "exact-topk":
            continue
        for a, b in zip(grads[1:], wanted_grads[1:]):
            assert torch.equal(a, b)


@kinds
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_empty_rows_are_zero_and_send_nothing(kind, dtype):
    op, _ = KINDS[kind]
    q, k, v = tensors(requires_grad=True, dtype=dtype)
    mask = torch.ones(13, 13, dtype=torch.bool)
    mask[4] = False
    out = op(q, k, v, attention_mask=mask, key_lengths=torch.tensor([13, 0]))
    assert not out[0, 4].any() and not out[1].any() and out[0, 5].any()
    grads = torch.autograd.grad(out[:, 4].sum() + out[1].sum(), (q, k, v))
    assert not any(g.any() for g in grads)


@kinds
def test_strictly_causal(kind):
    """Changing the future changes no bit of the past, nor of its gradient."""
    op, _ = KINDS[kind]
    q, k, v = tensors(T=90, requires_grad=True)
    before = op(q, k, v, causal=True)
    past = torch.autograd.grad(before[:, :50].sum(), (q, k, v))
    later = [x.detach().clone().requires_grad_() for x in (q, k, v)]
    with torch.no_grad():
        for x in later:
            x[:, 50:] = torch.randn_like(x[:, 50:]) * 100
    after = op(*later, causal=True)
    assert torch.equal(before[:, :50], after[:, :50])
    for a, b in zip(past, torch.autograd.grad(after[:, :50].sum(), later)):
        assert torch.equal(a[:, :50], b[:, :50])
        assert not b[:, 50:].any()


@kinds
def test_batch_mates_and_padding_change_no_bit(kind):
    op, _ = KINDS[kind]
    q, k, v = tensors(B=1, T=45, requires_grad=True)
    alone = op(q, k, v, causal=True)
    grad = torch.randn_like(alone)
    wanted = torch.autograd.grad(alone, (q, k, v), grad)
    wide = [x.detach() for x in tensors(B=3, T=131)]
    for x, part in zip(wide, (q, k, v)):
        x[1, 45:] = NAN
        x[1, :45] = part[0].detach()
    wide[0][1, 45:] = 5.0  # padded queries are computed like any other
    call = [x.requires_grad_() for x in wide]
    out = op(*call, causal=True, key_lengths=torch.tensor([131, 45, 7]))
    assert torch.equal(out[1, :45], alone[0])
    padded = torch.zeros_like(out)
    padded[1, :45] = grad[0]
    for a, b in zip(torch.autograd.grad(out, call, padded), wanted):
        assert torch.equal(a[1, :45], b[0])


@kinds
def test_threads_change_no_bit(kind):
    op, _ = KINDS[kind]
    q, k, v = tensors(B=3, T=150, requires_grad=True)
    bias = torch.randn(150, 150, requires_grad=True)
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        out = op(q, k, v, bias=bias, causal=True)
        grad = torch.cos(torch.arange(out.numel())).view_as(out)
        results.append((out, *torch.autograd.grad(out, (q, k, v, bias), grad)))
    for other in results[1:]:
        for a, b in zip(results[0], other):
            assert torch.equal(a, b)
