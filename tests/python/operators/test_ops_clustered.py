"""Clustered attention against its definition in float64, written as loops over
clusters and queries (Vyas et al. 2020)."""

import subprocess
import sys

import pytest
import torch
from hash_reference import clusters_of
from torch.autograd import gradcheck
from torch.library import opcheck

from tarn import ops

D = torch.float64
TARN = torch.ops.tarn
KINDS = {
    "clustered": ops.clustered_attention,
    "improved": ops.improved_clustered_attention,
    "causal-improved": ops.causal_improved_clustered_attention,
}


def weights_of_plane(kind, q, k, kept, temp, topk, **hashing):
    """[n, S] weights of one sequence and head; q holds valid queries only."""
    cluster = clusters_of(q.detach(), **hashing)
    rows = [None] * len(cluster)
    for c in set(cluster):
        members = [i for i, a in enumerate(cluster) if a == c]
        mean = q[members].mean(0)
        scores = temp * (k[kept] @ mean)
        shared = torch.softmax(scores, 0)
        order = sorted(range(len(kept)), key=lambda j: (-scores[j].item(), j))
        top = order[:topk]
        for i in members:
            row = torch.zeros(len(k), dtype=q.dtype)
            if kind == "clustered":
                row[kept] = shared
            elif kind == "improved" and top:
                row[kept] = shared
                own = torch.softmax(temp * (k[kept][top] @ q[i]), 0)
                row[[kept[j] for j in top]] = own * shared[top].sum()
            elif kind == "causal-improved":
                early = [kept[j] for j in top if kept[j] <= i]
                if early:
                    row[early] = torch.softmax(temp * (k[early] @ q[i]), 0)
            rows[i] = row
    return torch.stack(rows) if rows else torch.zeros(0, len(k), dtype=q.dtype)


def reference(kind, q, k, v, *, lengths=None, key_mask=None, temp=None, topk=32, **hashing):
    batch, seq_len, heads, d_key = q.shape
    temp = d_key**-0.5 if temp is None else temp
    out = torch.zeros(batch, seq_len, heads, v.shape[3], dtype=q.dtype)
    for b in range(batch):
        n = seq_len if lengths is None else int(lengths[b])
        mask = torch.ones(k.shape[1]) > 0 if key_mask is None else key_mask[b]
        kept = mask.nonzero().flatten().tolist()
        if not kept:
            continue
        for h in range(heads):
            args = q[b, :n, h], k[b, :, h], kept, temp, topk
            weights = weights_of_plane(kind, *args, **hashing)
            out[b, :n, h] = weights[:, kept] @ v[b, kept, h]
    return out


def draw(batch, seq_len, seq_len_k, heads, d_key, d_value, dtype=D):
    q = torch.randn(batch, seq_len, heads, d_key, dtype=dtype)
    k = 2 * torch.randn(batch, seq_len_k, heads, d_key, dtype=dtype)
    return q, k, torch.randn(batch, seq_len_k, heads, d_value, dtype=dtype)


def largest(a, b):
    return (a - b).abs().max().item() if a.numel() else 0.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype, bound", [(D, 1e-13), (torch.float32, 5e-6)])
def test_is_its_definition(kind, dtype, bound):
    sizes = ((13, 13, 3), (40, 37, 5), (5, 9, 50), (1, 1, 2), (0, 3, 2), (3, 0, 2))
    for case, (seq_len, seq_len_k, clusters) in enumerate(sizes):
        q, k, v = (x.to(dtype) for x in draw(2, seq_len, seq_len_k, 2, 5, 3))
        options = {"clusters": clusters, "hash_seed": 7 + case, "iterations": 4}
        options |= {"bits": 1 + 11 * case, "hash_bias": case % 2 == 0}
        key_mask = torch.rand(2, seq_len_k) < 0.6
        lengths = torch.tensor([seq_len // 2, seq_len])
        extra = {} if kind == "clustered" else {"topk": 4}
        for masked in (False, True):
            masks = {"key_mask": key_mask, "query_lengths": lengths} if masked else {}
            got = KINDS[kind](q, k, v, **options, **extra, **masks)
            want = reference(
                kind,
                *(x.to(D) for x in (q, k, v)),
                lengths=lengths if masked else None,
                key_mask=key_mask if masked else None,
                **options,
                **extra,
            )
            assert got.dtype == dtype and got.shape == want.shape
            assert largest(got.to(D), want) < bound


def full(q, k, v, allowed=None):
    scores = torch.einsum("bthk,bshk->bhts", q, k) * q.shape[3] ** -0.5
    if allowed is not None:
        scores = scores.masked_fill(~allowed, float("-inf"))
    return torch.einsum("bhts,bshv->bthv", torch.softmax(scores, 3), v)


@pytest.mark.parametrize("clusters", [1, 4])
def test_improved_with_every_key_on_top_is_full_attention(clusters):
    q, k, v = draw(2, 30, 21, 3, 8, 5)
    got = ops.improved_clustered_attention(q, k, v, clusters=clusters, topk=21)
    assert largest(got, full(q, k, v)) < 1e-13
    key_mask = torch.rand(2, 21) < 0.5
    key_mask[:, 0] = True
    got = ops.improved_clustered_attention(q, k, v, clusters=clusters, topk=99, key_mask=key_mask)
    assert largest(got, full(q, k, v, key_mask.view(2, 1, 1, 21))) < 1e-13
    q, k, v = draw(2, 21, 21, 3, 8, 5)
    got = ops.causal_improved_clustered_attention(q, k, v, clusters=clusters, topk=21)
    causal = torch.ones(21, 21).tril() > 0
    assert largest(got, full(q, k, v, causal)) < 1e-13


def test_one_cluster_a_query_is_full_attention():
    """Defect of the original: more clusters than queries fails. Distinct starts
    and distinct hashes give every query its own cluster."""
    q, k, v = draw(1, 12, 9, 1, 16, 4)
    got = ops.clustered_attention(q, k, v, clusters=30, bits=63)
    assert largest(got, full(q, k, v)) < 1e-13


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, D])
def test_padding_and_batch_mates_do_not_matter(kind, dtype):
    """With NaN everywhere in padding, values and gradients of the rest are as if alone.
    Defect of the original: padded values leaked where a sequence has fewer keys
    than topk, and starts were shared by the batch and might be padding."""
    q, k, v = (x.requires_grad_() for x in draw(4, 20, 23, 2, 6, 3, dtype))
    lengths = torch.tensor([20, 7, 0, 11])
    key_lengths = torch.tensor([23, 3, 5, 0])
    with torch.no_grad():
        for row in range(4):
            q[row, lengths[row] :] = float("nan")
            k[row, key_lengths[row] :] = float("nan")
            v[row, key_lengths[row] :] = float("nan")
    extra = {} if kind == "clustered" else {"topk": 5}
    options = {"clusters": 4, "iterations": 3, "hash_seed": 3, **extra}
    out = KINDS[kind](q, k, v, query_lengths=lengths, key_lengths=key_lengths, **options)
    assert torch.isfinite(out).all()
    out.square().sum().backward()
    for row, (n, s) in enumerate(zip(lengths.tolist(), key_lengths.tolist())):
        alone = [q.detach()[row : row + 1, :n], k.detach()[row : row + 1, :s]]
        alone.append(v.detach()[row : row + 1, :s])
        alone = [x.clone().requires_grad_() for x in alone]
        want = KINDS[kind](*alone, **options)
        assert largest(out[row : row + 1, :n], want) < 1e-6
        assert (out[row, n:] == 0).all()
        want.square().sum().backward()
        for x, y, end in zip((q, k, v), alone, (n, s, s)):
            assert largest(x.grad[row : row + 1, :end], y.grad) < 1e-5
            assert (x.grad[row, end:] == 0).all()
    single = KINDS[kind](
        *(x.detach()[1:2] for x in (q, k, v)),
        query_lengths=lengths[1:2],
        key_lengths=key_lengths[1:2],
        **options,
    )
    assert torch.equal(single[0], out[1])


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_later_is_read_by_the_causal_kind_and_seeds_decide(kind):
    q, k, v = draw(1, 50, 50, 2, 8, 4, torch.float32)
    options = {"clusters": 5, "hash_seed": 11}
    one = KINDS[kind](q, k, v, **options)
    assert torch.equal(one, KINDS[kind](q, k, v, **options))
    assert not torch.equal(one, KINDS[kind](q, k, v, clusters=5, hash_seed=12))
    later = v.clone()
    later[:, 30:] += 1.0
    changed = (KINDS[kind](q, k, later, **options) != one).any(-1).any(-1)[0]
    assert changed[:30].any() == (kind != "causal-improved")
    assert changed[30:].any()


@pytest.mark.parametrize("dtype", [torch.float32, D])
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
@pytest.mark.parametrize("topk", [7, 50])
def test_nothing_later_is_read_by_the_causal_kind_not_even_nan(topk, poison, dtype):
    """Entries that only causality hides reach no earlier row and no gradient of one;
    a row that reads them is NaN."""
    inputs = draw(2, 50, 50, 2, 8, 4, dtype)
    weights = torch.randn_like(inputs[2])[:, :30]

    def run(*inputs):
        x = [t.clone().requires_grad_() for t in inputs]
        out = KINDS["causal-improved"](*x, clusters=5, hash_seed=11, topk=topk)
        return out, *torch.autograd.grad((out[:, :30] * weights).sum(), x)

    clean = run(*inputs)
    for which in range(3):
        later = [x.clone() for x in inputs]
        later[which][:, 30:, :, 1] = poison
        spoiled = run(*later)
        for one, other in zip(clean, spoiled):
            assert other[:, :30].isfinite().all()
            # Later values decide nothing; later keys decide only the order of sums,
            # where every key is chosen; later queries decide the clusters.
            if which == 2:
                assert torch.equal(one[:, :30], other[:, :30])
            elif which == 1 and topk == 50:
                torch.testing.assert_close(one[:, :30], other[:, :30], rtol=1e-4, atol=1e-5)
        rows = spoiled[0][:, 30:].isnan().all(-1)
        assert rows.all() if topk == 50 else rows.any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gradcheck(kind, dropout):
    q, k, v = (x.requires_grad_() for x in draw(2, 7, 6, 2, 3, 2))
    key_mask = torch.tensor([[True, True, False, True, True, True], [False] * 6])
    extra = {} if kind == "clustered" else {"topk": 3}
    options = {"clusters": 2, "dropout": dropout, "seed": torch.tensor(5), **extra}
    options["query_lengths"] = torch.tensor([5, 7])
    for masks in ({}, {"key_mask": key_mask}):

        def run(*x, masks=masks):
            return KINDS[kind](*x, **options, **masks)

        assert gradcheck(run, (q, k, v))


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_keeps_the_mean(kind):
    q, k, v = draw(1, 6, 6, 1, 4, 2)
    plain = KINDS[kind](q, k, v, clusters=2)
    total = torch.zeros_like(plain)
    for seed in range(2000):
        total += KINDS[kind](q, k, v, clusters=2, dropout=0.2, seed=torch.tensor(seed))
    assert largest(total / 2000, plain) < 0.1
    assert largest(total / 2000, plain) > 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, D, torch.bfloat16])
def test_opcheck(kind, dtype):
    q, k, v = (x.to(dtype).requires_grad_() for x in draw(2, 7, 6, 2, 3, 2))
    lengths, key_lengths = torch.tensor([7, 4]), torch.tensor([6, 3])
    key_mask = torch.rand(2, 6) < 0.7
    hashing = (2, 3, 9, True, 4)
    opcheck(TARN.clustered_attention.default, (q, k, v, kind, *hashing))
    masks = (lengths, key_mask, key_lengths)
    drop = (0.5, 0.25, torch.tensor(3), 8)
    opcheck(TARN.clustered_attention.default, (q, k, v, kind, *hashing, *masks, *drop))
    plain = [x.detach() for x in (q, k, v)]
    out, cluster = TARN.clustered_attention.default(*plain, kind, *hashing)
    opcheck(
        TARN.clustered_attention_backward.default,
        (*plain, kind, 2, 4, None, None, None, 0.0, None, cluster, torch.randn_like(out)),
    )


def test_half_precision_strides_temperature_and_empty_batch():
    q, k, v = draw(2, 20, 20, 2, 6, 3, torch.bfloat16)
    for function in KINDS.values():
        got = function(q, k, v, clusters=3)
        want = function(*(x.float() for x in (q, k, v)), clusters=3)
        assert torch.equal(got, want.to(torch.bfloat16))
        strided = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
        assert torch.equal(got, function(*strided, clusters=3))
        empty = function(*(x[:0] for x in (q, k, v)), clusters=3)
        assert empty.shape == (0, 20, 2, 3)
    # 0 is honoured: a plain mean of the values.
    flat = ops.clustered_attention(*(x.double() for x in (q, k, v)), clusters=3, softmax_temp=0)
    mean = v.double().mean(1, keepdim=True).expand(flat.shape)
    assert largest(flat, mean) < 1e-12


def test_errors_name_the_argument():
    q, k, v = draw(2, 4, 5, 2, 3, 2)
    run = ops.improved_clustered_attention
    for options, kind, text in (
        ({"clusters": 0}, ValueError, "clusters"),
        ({"clusters": 2.5}, TypeError, "clusters"),
        ({"clusters": 2, "bits": 64}, ValueError, "bits"),
        ({"clusters": 2, "iterations": 0}, ValueError, "iterations"),
        ({"clusters": 2, "topk": 0}, ValueError, "topk"),
        ({"clusters": 2, "dropout": 0.5}, ValueError, "seed"),
        ({"clusters": 2, "dropout": 1.0}, ValueError, "dropout"),
        ({"clusters": 2, "softmax_temp": float("inf")}, ValueError, "softmax_temp"),
        ({"clusters": 2, "query_lengths": torch.tensor([5, 1])}, ValueError, "query_lengths"),
        ({"clusters": 2, "key_lengths": torch.tensor([5])}, ValueError, "key_lengths"),
        ({"clusters": 2, "key_mask": torch.ones(2, 4) > 0}, ValueError, "key_mask"),
        ({"clusters": 2, "attention_mask": None}, TypeError, "attention_mask"),
        ({"clusters": 2, "causal": True}, TypeError, "causal"),
    ):
        with pytest.raises(kind, match=text):
            run(q, k, v, **options)
    with pytest.raises(ValueError, match="kind"):
        TARN.clustered_attention.default(q, k, v, "linear", 2)
    with pytest.raises(TypeError, match="keys"):
        run(q, k.float(), v, clusters=2)
    with pytest.raises(ValueError, match="values"):
        run(q, k, v[:, :4], clusters=2)


@pytest.mark.parametrize("kind", KINDS)
def test_long_batches_go_through_in_parts(kind):
    """6 x 2 x 700 x 700 scores are more than one part holds."""
    q, k, v = (x.requires_grad_() for x in draw(6, 700, 700, 2, 4, 3, torch.float32))
    key_mask = torch.rand(6, 700) < 0.8
    extra = {} if kind == "clustered" else {"topk": 20}
    options = {"clusters": 680, "iterations": 1, **extra}
    out = KINDS[kind](q, k, v, key_mask=key_mask, **options)
    grads = torch.autograd.grad(out.square().sum(), (q, k, v))
    for row in (0, 5):
        part = slice(row, row + 1)
        alone = [x.detach()[part].requires_grad_() for x in (q, k, v)]
        want = KINDS[kind](*alone, key_mask=key_mask[part], **options)
        assert largest(out[part], want) < 1e-6
        for a, b in zip(grads, torch.autograd.grad(want.square().sum(), alone)):
            assert largest(a[part], b) < 1e-5
    same = [x[:1].detach().expand(6, -1, -1, -1) for x in (q, k, v)]
    dropped = KINDS[kind](*same, **options, dropout=0.5, seed=torch.tensor(1))
    for row in range(1, 6):
        assert not torch.equal(dropped[0], dropped[row])


PEAK = """
import resource, sys, torch
from tarn import ops
torch.set_num_threads(1)
run, options = getattr(ops, sys.argv[1]), dict(clusters=64, iterations=3)
def call(n):
    q, k, v = (torch.randn(1, n, 1, 16, requires_grad=True) for _ in range(3))
    run(q, k, v, **options).sum().backward()
call(500)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
call(16384)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.parametrize("function", [f.__name__ for f in KINDS.values()])
def test_no_pairs_are_kept(function):
    """At N = 16,384 all pairs would take 1 GiB in float32, and 256 MiB as bits of
    a mask; clusters x keys take 4 MiB."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK, function], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 128 * 2**20
