"""Reformer attention against its definition in float64, written as loops over
rounds and positions (Kitaev et al. 2020)."""

import subprocess
import sys

import pytest
import torch
from hash_reference import buckets_of
from torch.autograd import gradcheck
from torch.library import opcheck

from tarn import ops

D = torch.float64
TARN = torch.ops.tarn


def windows(q, kept, allowed, chunk_size, bits, rounds, same_bucket, hash_seed):
    """P_i^r as lists, [rounds][n][...], of one sequence and head."""
    n, out = len(q), []
    for turn in range(rounds):
        bucket = buckets_of(q, bits, turn, hash_seed)
        order = sorted(range(n), key=lambda t: (not kept[t], bucket[t] if kept[t] else 0, t))
        chunk = {t: place // chunk_size for place, t in enumerate(order)}
        out.append(
            [
                [
                    j
                    for j in range(n)
                    if chunk[i] - chunk[j] in (0, 1)
                    and allowed[i][j]
                    and (not same_bucket or bucket[i] == bucket[j])
                ]
                for i in range(n)
            ]
        )
    return out


def plane(q, v, kept, allowed, temp, options):
    """[n, V] of one sequence and head."""
    o = {"chunk_size": 32, "bits": 63, "rounds": 4, "masked": False, "same_bucket": False}
    o |= {"compat": False, "hash_seed": 0} | options
    masked, compat = o.pop("masked"), o.pop("compat")
    norm = q.norm(dim=1, keepdim=True)
    keys = torch.where(norm > 0, q / norm.clamp_min(1e-300), 0.0)
    read = windows(q.detach(), kept, allowed, **o)
    rows = []
    for i in range(len(q)):
        sets = [read[turn][i] for turn in range(o["rounds"])]
        if masked and compat:
            sets = [[j for j in s if j != i] or s for s in sets]
        union = sorted(set().union(*sets))
        if masked and not compat and set(union) != {i}:
            union = [j for j in union if j != i]

        def soft(js, i=i):
            return torch.softmax(temp * (keys[js] @ q[i]), 0) @ v[js]

        if compat:
            parts = [soft(s) if s else torch.zeros_like(v[0]) for s in sets]
            rows.append(sum(parts) / len(parts))
        else:
            rows.append(soft(union) if union else torch.zeros_like(v[0]))
    return torch.stack(rows)


def reference(q, v, masks, temp=None, **options):
    batch, n, heads, d_key = q.shape
    temp = d_key**-0.5 if temp is None else temp
    out = torch.zeros(batch, n, heads, v.shape[3], dtype=q.dtype)
    if n == 0:
        return out
    for b in range(batch):
        kept = masks["key_mask"][b] if "key_mask" in masks else torch.ones(n) > 0
        for h in range(heads):
            allowed = kept.expand(n, n).clone()
            if masks.get("causal"):
                allowed &= torch.arange(n) <= torch.arange(n).view(-1, 1) + masks.get(
                    "causal_offset", 0
                )
            if "attention_mask" in masks:
                allowed &= masks["attention_mask"].expand(batch, heads, n, n)[b, h]
            args = kept.tolist(), allowed.tolist(), temp, options
            out[b, :, h] = plane(q[b, :, h], v[b, :, h], *args)
    return out


def draw(batch, seq_len, heads, d_key, d_value, dtype=D):
    q = 2 * torch.randn(batch, seq_len, heads, d_key, dtype=dtype)
    return q, torch.randn(batch, seq_len, heads, d_value, dtype=dtype)


def largest(a, b):
    return (a - b).abs().max().item() if a.numel() else 0.0


OPTIONS = [
    {},
    {"masked": True},
    {"same_bucket": True},
    {"same_bucket": True, "masked": True},
    {"compat": True},
    {"compat": True, "masked": True},
    {"rounds": 1},
]
MASKS = ["none", "causal", "key", "dense", "per head", "all"]


def masks_of(kind, batch, heads, n):
    key_mask = torch.rand(batch, n) < 0.7
    dense = torch.rand(n, n) < 0.6
    per_head = torch.rand(1, heads, n, n) < 0.6
    return {
        "none": {},
        "causal": {"causal": True},
        "key": {"key_mask": key_mask},
        "dense": {"attention_mask": dense},
        "per head": {"attention_mask": per_head},
        "all": {
            "causal": True,
            "causal_offset": 2,
            "key_mask": key_mask,
            "attention_mask": per_head,
        },
    }[kind]


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_is_its_definition(kind, options):
    """Covers lengths that are no multiple of the chunk, M != E, T = 0 and 1."""
    for case, (n, chunk_size) in enumerate(((23, 4), (12, 5), (5, 5), (1, 3), (0, 4))):
        q, v = draw(2, n, 2, 5, 3)
        masks = masks_of(kind, 2, 2, n)
        o = {"chunk_size": chunk_size, "bits": 3 + case, "rounds": 3, "hash_seed": case}
        o |= options
        want = reference(q, v, masks, **o)
        for dtype, bound in ((D, 1e-13), (torch.float32, 5e-6)):
            narrow = [x.to(dtype) for x in (q, v)]
            if dtype != D:
                want = reference(*(x.to(D) for x in narrow), masks, **o)
            got = ops.reformer_attention(*narrow, **o, **masks)
            assert got.dtype == dtype and got.shape == want.shape
            assert largest(got.to(D), want) < bound


@pytest.mark.parametrize("chunk_size", [17, 1000])
def test_one_chunk_is_full_attention_with_shared_queries(chunk_size):
    q, v = draw(2, 17, 3, 8, 5)
    keys = q / q.norm(dim=3, keepdim=True)
    causal = torch.ones(17, 17).tril() > 0
    key_mask = torch.rand(2, 17) < 0.7
    key_mask[:, 0] = True
    allowed = causal & key_mask.view(2, 1, 1, 17)
    scores = torch.einsum("bthk,bshk->bhts", q, keys) * 8**-0.5
    weights = torch.softmax(scores.masked_fill(~allowed, float("-inf")), 3)
    want = torch.einsum("bhts,bshv->bthv", weights, v)
    got = ops.reformer_attention(q, v, chunk_size=chunk_size, causal=True, key_mask=key_mask)
    assert largest(got, want) < 1e-13


def test_zero_and_extreme_queries():
    """Defect of the original: a zero query gives NaN. Squares of extreme ones
    overflow or vanish in float32."""
    q, v = draw(1, 12, 1, 4, 3, torch.float32)
    q[:, 3] = 0
    q[:, 5] *= 1e30
    q[:, 6] *= 1e-30
    q.requires_grad_()
    got = ops.reformer_attention(q, v, chunk_size=4, softmax_temp=1e-30)
    want = reference(q.detach().double(), v.double(), {}, temp=1e-30, chunk_size=4)
    assert largest(got.double(), want) < 1e-5
    got.sum().backward()
    assert torch.isfinite(q.grad).all()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_padding_and_batch_mates_do_not_matter(options):
    """With NaN everywhere in padding, values and gradients of the rest are as if alone."""
    lengths = torch.tensor([21, 9, 0, 1])
    q, v = (x.requires_grad_() for x in draw(4, 21, 2, 6, 3, torch.float32))
    with torch.no_grad():
        for row, n in enumerate(lengths):
            q[row, n:] = float("nan")
            v[row, n:] = float("nan")
    o = {"chunk_size": 4, "rounds": 3, "bits": 5, "causal": True, **options}
    out = ops.reformer_attention(q, v, key_lengths=lengths, **o)
    valid = torch.arange(21) < lengths.view(-1, 1)
    out[valid].square().sum().backward()
    for row, n in enumerate(lengths.tolist()):
        alone = [x.detach()[row : row + 1, :n].clone().requires_grad_() for x in (q, v)]
        want = ops.reformer_attention(*alone, **o)
        assert largest(out[row : row + 1, :n], want) < 1e-6
        want.square().sum().backward()
        for x, y in zip((q, v), alone):
            assert largest(x.grad[row : row + 1, :n], y.grad) < 1e-5
            assert (x.grad[row, n:] == 0).all()
    single = ops.reformer_attention(
        *(x.detach()[1:2] for x in (q, v)), key_lengths=lengths[1:2], **o
    )
    assert torch.equal(single[0], out[1])


def test_empty_rows_are_zero_without_gradient():
    """Defect of the original: an empty row attends to everything unmasked."""
    q, v = (x.requires_grad_() for x in draw(1, 10, 1, 4, 3))
    mask = torch.rand(10, 10) < 0.7
    mask[4] = False
    mask[:, 4] = False
    for compat in (False, True):
        out = ops.reformer_attention(q, v, chunk_size=3, attention_mask=mask, compat=compat)
        assert (out[0, 4] == 0).all()
        grads = torch.autograd.grad(out.sum(), (q, v))
        assert all((g[0, 4] == 0).all() and torch.isfinite(g).all() for g in grads)


def test_nothing_later_is_read_under_a_causal_mask_and_seeds_decide():
    q, v = draw(1, 50, 2, 8, 4, torch.float32)
    o = {"chunk_size": 8, "causal": True, "hash_seed": 5}
    one = ops.reformer_attention(q, v, **o)
    assert torch.equal(one, ops.reformer_attention(q, v, **o))
    other = ops.reformer_attention(q, v, chunk_size=8, causal=True, hash_seed=6)
    assert not torch.equal(one, other)
    later = v.clone()
    later[:, 30:] += 1.0
    changed = (ops.reformer_attention(q, later, **o) != one).any(-1).any(-1)[0]
    assert not changed[:30].any() and changed[30:].all()


@pytest.mark.parametrize("dtype", [torch.float32, D])
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_nothing_later_is_read_not_even_nan(options, poison, dtype):
    """Entries that only causality hides reach no earlier row and no gradient of one;
    rows that read them are NaN."""
    q, v = draw(2, 50, 2, 8, 4, dtype)
    weights = torch.randn_like(v)
    weights[:, 30:] = 0.0
    for masks in ({"causal": True}, {"attention_mask": torch.ones(50, 50).tril() > 0}):

        def run(q, v, masks=masks):
            x = q.clone().requires_grad_(), v.clone().requires_grad_()
            out = ops.reformer_attention(*x, chunk_size=8, hash_seed=5, **options, **masks)
            return out, *torch.autograd.grad((out * weights)[:, :30].sum(), x)

        clean = run(q, v)
        later = v.clone()
        later[:, 30:, :, 1] = poison
        spoiled = run(q, later)
        for one, other in zip(clean, spoiled):
            assert torch.equal(one[:, :30], other[:, :30])
        # Where i reads anything besides itself it need not read itself.
        rows = spoiled[0][:, 30:].isnan().all(-1)
        assert rows.any() if options.get("masked") else rows.all()
        # Queries are keys: later ones decide the order, so only NaN is looked for.
        later = q.clone()
        later[:, 30:, :, 1] = poison
        for x in run(later, v):
            assert x[:, :30].isfinite().all()


def test_a_dense_mask_hides_nan_and_the_gradient_of_a_row_that_reads_it_is_nan():
    q, v = (x.requires_grad_() for x in draw(1, 12, 1, 4, 3, torch.float32))
    mask = torch.ones(12, 12, dtype=torch.bool)
    mask[::2, 5] = False
    with torch.no_grad():
        v[0, 5] = float("nan")
    out = ops.reformer_attention(q, v, attention_mask=mask)
    assert out[0, ::2].isfinite().all() and out[0, 1::2].isnan().all()
    out.sum().backward()
    assert q.grad[0, ::2].isfinite().all() and q.grad[0, 1::2].isnan().all()
    assert v.grad.isfinite().all()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_gradcheck(options):
    q, v = (x.requires_grad_() for x in draw(2, 7, 2, 3, 2))
    key_mask = torch.rand(2, 7) < 0.8
    key_mask[1, 2:] = False
    o = {"chunk_size": 3, "rounds": 2, "bits": 3, **options}
    for masks in ({}, {"causal": True, "key_mask": key_mask}):

        def run(*x, masks=masks):
            return ops.reformer_attention(*x, **o, **masks)

        assert gradcheck(run, (q, v))
    assert gradcheck(
        lambda *x: ops.reformer_attention(*x, **o, dropout=0.3, seed=torch.tensor(5)), (q, v)
    )


@pytest.mark.parametrize("compat", [False, True])
def test_dropout_keeps_the_mean(compat):
    q, v = draw(1, 6, 1, 4, 2)
    o = {"chunk_size": 2, "compat": compat}
    plain = ops.reformer_attention(q, v, **o)
    total = torch.zeros_like(plain)
    for seed in range(2000):
        total += ops.reformer_attention(q, v, **o, dropout=0.2, seed=torch.tensor(seed))
    assert 0 < largest(total / 2000, plain) < 0.1


@pytest.mark.parametrize("dtype", [torch.float32, D, torch.bfloat16])
@pytest.mark.parametrize("options", OPTIONS[:5], ids=str)
def test_opcheck(options, dtype):
    q, v = (x.to(dtype).requires_grad_() for x in draw(2, 7, 2, 3, 2))
    flags = [options.get(name, False) for name in ("masked", "same_bucket", "compat")]
    opcheck(TARN.reformer_attention.default, (q, v, 3, 4, 2, *flags))
    mask, key_mask = torch.rand(2, 7, 7) < 0.8, torch.rand(2, 7) < 0.8
    masks = (True, 1, mask[:, None], key_mask, torch.tensor([7, 4]))
    drop = (0.5, 0.25, torch.tensor(3), 8)
    opcheck(TARN.reformer_attention.default, (q, v, 3, 4, 2, *flags, *masks, *drop))
    plain = q.detach(), v.detach()
    out, buckets = TARN.reformer_attention.default(*plain, 3, 4, 2, *flags)
    rest = (False, 0, None, None, None, None, 0.0, None, buckets, torch.randn_like(out))
    opcheck(TARN.reformer_attention_backward.default, (*plain, 3, 4, 2, *flags, *rest))


def test_half_precision_strides_temperature_and_empty_batch():
    q, v = draw(2, 20, 2, 6, 3, torch.bfloat16)
    got = ops.reformer_attention(q, v, chunk_size=6)
    want = ops.reformer_attention(q.float(), v.float(), chunk_size=6)
    assert torch.equal(got, want.to(torch.bfloat16))
    strided = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, v)]
    assert torch.equal(got, ops.reformer_attention(*strided, chunk_size=6))
    assert ops.reformer_attention(q[:0], v[:0]).shape == (0, 20, 2, 3)
    flat = ops.reformer_attention(q.double(), v.double(), softmax_temp=0)
    mean = v.double().mean(1, keepdim=True).expand(flat.shape)
    assert largest(flat, mean) < 1e-12  # 0 is honoured


def test_errors_name_the_argument():
    q, v = draw(2, 5, 2, 3, 2)
    for options, kind, text in (
        ({"chunk_size": 0}, ValueError, "chunk_size"),
        ({"chunk_size": 2.0}, TypeError, "chunk_size"),
        ({"rounds": 0}, ValueError, "rounds"),
        ({"bits": 64}, ValueError, "bits"),
        ({"dropout": 0.5}, ValueError, "seed"),
        ({"dropout": -0.5}, ValueError, "dropout"),
        ({"softmax_temp": float("nan")}, ValueError, "softmax_temp"),
        ({"causal_offset": 0.5}, TypeError, "causal_offset"),
        ({"key_mask": torch.ones(2, 4) > 0}, ValueError, "key_mask"),
        ({"attention_mask": torch.ones(5, 4) > 0}, ValueError, "attention_mask"),
        ({"attention_mask": torch.ones(5, 5)}, TypeError, "attention_mask"),
        ({"key_lengths": torch.tensor([6, 1])}, ValueError, "key_lengths"),
    ):
        with pytest.raises(kind, match=text):
            ops.reformer_attention(q, v, **options)
    with pytest.raises(ValueError, match="values"):
        ops.reformer_attention(q, v[:, :4])
    with pytest.raises(TypeError, match="values"):
        ops.reformer_attention(q, v.float())


def test_long_batches_go_through_in_parts():
    """6 x 2 x 700 x 2 x 2 x 128 pairs are more than one part holds."""
    q, v = (x.requires_grad_() for x in draw(6, 700, 2, 4, 3, torch.float32))
    mask = torch.rand(6, 1, 700, 700) < 0.8
    key_mask = torch.rand(6, 700) < 0.8
    o = {"chunk_size": 128, "rounds": 2}
    out = ops.reformer_attention(q, v, attention_mask=mask, key_mask=key_mask, **o)
    grads = torch.autograd.grad(out.square().sum(), (q, v))
    for row in (0, 5):
        part = slice(row, row + 1)
        alone = [x.detach()[part].requires_grad_() for x in (q, v)]
        masks = {"attention_mask": mask[part], "key_mask": key_mask[part]}
        want = ops.reformer_attention(*alone, **masks, **o)
        assert largest(out[part], want) < 1e-6
        for a, b in zip(grads, torch.autograd.grad(want.square().sum(), alone)):
            assert largest(a[part], b) < 1e-5
    same = [x[:1].detach().expand(6, -1, -1, -1) for x in (q, v)]
    dropped = ops.reformer_attention(*same, **o, dropout=0.5, seed=torch.tensor(1))
    for row in range(1, 6):
        assert not torch.equal(dropped[0], dropped[row])


PEAK = """
import resource, torch
from tarn import ops
torch.set_num_threads(1)
def call(n):
    q, v = (torch.randn(1, n, 1, 16, requires_grad=True) for _ in range(2))
    ops.reformer_attention(q, v, chunk_size=32, rounds=2, causal=True).sum().backward()
call(500)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
call(16384)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def test_no_pairs_are_kept():
    """At N = 16,384 all pairs would take 1 GiB in float32, and 256 MiB as a mask
    of bytes; two rounds of chunks take 8 MiB per tensor."""
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 160 * 2**20
