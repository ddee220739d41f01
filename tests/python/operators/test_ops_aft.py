"""aft-full and aft-simple against their definitions in float64, written as
loops: o_i = sigmoid(q_i) sum exp(k_j + w_ij) v_j / sum exp(k_j + w_ij)."""

import subprocess
import sys

import pytest
import torch
from torch.autograd import gradcheck
from torch.library import opcheck

from tarn import ops

D = torch.float64
TARN = torch.ops.tarn


def reference(q, k, v, allowed, w=None):
    """The result by definition, one query and head at a time; allowed [B, H, T, S] bool."""
    batch, seq_len, heads, _ = q.shape
    rows = []
    for b in range(batch):
        for i in range(seq_len):
            for h in range(heads):
                read = allowed[b, h, i].nonzero().flatten()
                if len(read) == 0:
                    rows.append(torch.zeros_like(q[b, i, h]))
                    continue
                logits = k[b, read, h]
                if w is not None:
                    logits = logits + w[i, read].unsqueeze(1)
                weights = torch.softmax(logits, dim=0)
                rows.append(torch.sigmoid(q[b, i, h]) * (weights * v[b, read, h]).sum(0))
    if not rows:
        return q * 0
    return torch.stack(rows).view(q.shape)


def allowed_pairs(shape, causal=False, offset=0, attention_mask=None, key_mask=None):
    batch, heads, seq_len, seq_len_k = shape
    allowed = torch.ones(shape, dtype=torch.bool)
    if causal:
        i, j = torch.arange(seq_len).view(-1, 1), torch.arange(seq_len_k)
        allowed = allowed & (j <= i + offset)
    if attention_mask is not None:
        allowed = allowed & attention_mask
    if key_mask is not None:
        allowed = allowed & key_mask.view(batch, 1, 1, seq_len_k)
    return allowed


def draw(batch, seq_len, seq_len_k, heads, width, scale=1.0, dtype=D):
    q = torch.randn(batch, seq_len, heads, width, dtype=dtype)
    k = scale * torch.randn(batch, seq_len_k, heads, width, dtype=dtype)
    return q, k, torch.randn(batch, seq_len_k, heads, width, dtype=dtype)


def largest(a, b):
    return (a - b).abs().max().item() if a.numel() else 0.0


MASKS = ["none", "causal", "offset", "key", "both", "ahead"]


def masks_of(kind, batch, seq_len, seq_len_k):
    key_mask = torch.rand(batch, seq_len_k) < 0.6
    key_mask[0] = False  # a whole row of empty queries
    return {
        "none": {},
        "causal": {"causal": True},
        "offset": {"causal": True, "causal_offset": seq_len_k - seq_len},
        "key": {"key_mask": key_mask},
        "both": {"causal": True, "key_mask": key_mask},
        "ahead": {"causal": True, "causal_offset": -2},
    }[kind]


def pairs_of(masks, batch, heads, seq_len, seq_len_k):
    return allowed_pairs(
        (batch, heads, seq_len, seq_len_k),
        masks.get("causal", False),
        masks.get("causal_offset", 0),
        masks.get("attention_mask"),
        masks.get("key_mask"),
    )


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("dtype, bound", [(D, 1e-13), (torch.float32, 2e-6)])
def test_simple_is_its_definition(kind, dtype, bound):
    for seq_len, seq_len_k in ((7, 7), (5, 9), (9, 4), (1, 1), (0, 3), (3, 0)):
        q, k, v = draw(2, seq_len, seq_len_k, 3, 5)
        masks = masks_of(kind, 2, seq_len, seq_len_k)
        want = reference(q, k, v, pairs_of(masks, 2, 3, seq_len, seq_len_k))
        got = ops.aft_simple_attention(*(x.to(dtype) for x in (q, k, v)), **masks)
        assert got.dtype == dtype and got.shape == want.shape
        assert largest(got.to(D), want) < bound


@pytest.mark.parametrize("kind", [*MASKS, "dense", "per head"])
@pytest.mark.parametrize("dtype, bound", [(D, 1e-13), (torch.float32, 2e-6)])
def test_full_is_its_definition(kind, dtype, bound):
    for seq_len, seq_len_k in ((7, 7), (5, 9), (9, 4), (1, 1), (0, 3), (3, 0)):
        q, k, v = draw(2, seq_len, seq_len_k, 3, 5)
        w = torch.randn(seq_len + 2, seq_len_k + 1, dtype=D)
        if kind == "dense":
            masks = {"attention_mask": torch.rand(seq_len, seq_len_k) < 0.5}
        elif kind == "per head":
            masks = {"attention_mask": torch.rand(2, 3, seq_len, seq_len_k) < 0.5}
            masks |= {"causal": True}
        else:
            masks = masks_of(kind, 2, seq_len, seq_len_k)
        want = reference(q, k, v, pairs_of(masks, 2, 3, seq_len, seq_len_k), w)
        got = ops.aft_full_attention(*(x.to(dtype) for x in (q, k, v, w)), **masks)
        assert got.dtype == dtype and got.shape == want.shape
        assert largest(got.to(D), want) < bound


def vectorised(q, k, v, w, allowed):
    """The definition on whole tensors, for sizes of several blocks."""
    logits = k.permute(0, 2, 1, 3).unsqueeze(2) + w.unsqueeze(-1)
    logits = logits.masked_fill(~allowed.unsqueeze(-1), float("-inf"))
    weights = torch.softmax(logits, dim=3).nan_to_num(0.0)
    average = (weights * v.permute(0, 2, 1, 3).unsqueeze(2)).sum(3)
    return torch.sigmoid(q) * average.permute(0, 2, 1, 3)


@pytest.mark.parametrize("scale", [1.0, 100.0])
@pytest.mark.parametrize("causal", [False, True])
def test_full_over_several_blocks_and_both_forms(scale, causal):
    """Scale 1 takes matrix products, scale 100 goes pair by pair; one sequence of
    each in a batch mixes them. Values and gradients, float32 against float64."""
    q, k, v = draw(2, 300, 530, 2, 3)
    k[1] *= scale
    w = torch.randn(300, 530, dtype=D)
    key_mask = torch.rand(2, 530) < 0.9
    masks = {"causal": causal, "causal_offset": 100, "key_mask": key_mask}
    allowed = pairs_of(masks, 2, 2, 300, 530)
    wide = [x.clone().requires_grad_() for x in (q, k, v, w)]
    want = vectorised(*wide, allowed)
    grad = torch.randn_like(want)
    want_grads = torch.autograd.grad(want, wide, grad)
    # A logit of 300 in float32 carries an error of 1.5e-5, its weight the same.
    for dtype, bound in ((D, 1e-11), (torch.float32, max(2e-5, 1e-6 * scale))):
        narrow = [x.to(dtype).requires_grad_() for x in (q, k, v, w)]
        got = ops.aft_full_attention(*narrow, **masks)
        same = [x.detach().to(D).requires_grad_() for x in narrow]
        want = vectorised(*same, allowed)
        want_grads = torch.autograd.grad(want, same, grad)
        assert largest(got.to(D), want) < bound
        for a, b in zip(torch.autograd.grad(got, narrow, grad.to(dtype)), want_grads):
            assert largest(a.to(D), b) < bound * max(1.0, b.abs().max().item())


@pytest.mark.parametrize("pattern", ["rising", "falling", "mixed", "constant"])
@pytest.mark.parametrize("causal", [False, True])
def test_keys_up_to_300_neither_overflow_nor_underflow(pattern, causal):
    """exp(300) overflows float32 and exp(-300) underflows: the running maximum
    (simple) and the blocks' ranges (full) must hold both."""
    seq_len = 40
    q, k, v = draw(1, seq_len, seq_len, 1, 4)
    ramp = torch.linspace(-300, 300, seq_len, dtype=D).view(1, -1, 1, 1)
    k = (
        {
            "rising": ramp + 0 * k,
            "falling": -ramp + 0 * k,
            "mixed": 300 * torch.sign(k),
            "constant": -300 + 0 * k,
        }[pattern]
        .float()
        .double()
    )
    allowed = pairs_of({"causal": causal}, 1, 1, seq_len, seq_len)
    for w in (torch.zeros(seq_len, seq_len, dtype=D), -0.7 * ramp.view(-1, 1) + ramp.view(-1)):
        w = w.float().double()
        narrow = [x.float().requires_grad_() for x in (q, k, v, w)]
        wide = [x.detach().to(D).requires_grad_() for x in narrow]
        want = reference(*wide[:3], allowed, wide[3])
        got = ops.aft_full_attention(*narrow, causal=causal)
        assert largest(got.to(D), want) < 1e-4
        grads = torch.autograd.grad(got.sum(), narrow)
        for a, b in zip(grads, torch.autograd.grad(want.sum(), wide)):
            assert torch.isfinite(a).all() and largest(a.to(D), b) < 1e-3
        if w.abs().max() > 0:
            continue
        got = ops.aft_simple_attention(*narrow[:3], causal=causal)
        want = reference(*wide[:3], allowed)
        assert largest(got.to(D), want) < 1e-5
        grads = torch.autograd.grad(got.sum(), narrow[:3])
        for a, b in zip(grads, torch.autograd.grad(want.sum(), wide[:3])):
            assert torch.isfinite(a).all() and largest(a.to(D), b) < 1e-4


def test_weights_add_to_one():
    """Defect of the original: the causal sum of constant values gave 4.28 = H_40
    (its weights are divided at the key's step), and a causal mask with signed keys
    gave NaN. A constant value must be reproduced."""
    q = torch.full((1, 40, 1, 2), 200.0)
    ones = torch.ones(1, 40, 1, 2)
    for k in (torch.zeros_like(ones), torch.randn_like(ones)):
        assert largest(ops.aft_simple_attention(q, k, ones, causal=True), ones) < 1e-6
        w = torch.randn(40, 40)
        assert largest(ops.aft_full_attention(q, k, ones, w, causal=True), ones) < 1e-6


@pytest.mark.parametrize("op", ["simple", "full"])
def test_strictly_causal(op):
    """No bit of an output may change with a later key, value or query."""
    q, k, v = draw(1, 50, 50, 2, 3, dtype=torch.float32)
    w = torch.randn(50, 50)

    def run(q, k, v):
        if op == "simple":
            return ops.aft_simple_attention(q, k, v, causal=True)
        return ops.aft_full_attention(q, k, v, w, causal=True)

    before = run(q, k, v)
    for start in (1, 17, 49):
        for poison in (float("nan"), 1e4):
            changed = [x.clone() for x in (q, k, v)]
            for x in changed:
                x[:, start:] = poison
            after = run(*changed)[:, :start]
            assert torch.isfinite(after).all()
            assert largest(after, before[:, :start]) < 2e-6
            if op == "simple":
                assert torch.equal(after, before[:, :start])


@pytest.mark.parametrize("op", ["simple", "full"])
@pytest.mark.parametrize("causal", [False, True])
def test_padding_and_batch_mates_do_not_matter(op, causal):
    """With NaN everywhere in padding, values and gradients of the rest are as if alone."""
    lengths = torch.tensor([5, 0, 9])
    q, k, v = draw(3, 9, 9, 2, 3, dtype=torch.float32)
    w = torch.randn(9, 9)

    def run(q, k, v, w, **masks):
        if op == "simple":
            return ops.aft_simple_attention(q, k, v, causal=causal, **masks)
        return ops.aft_full_attention(q, k, v, w, causal=causal, **masks)

    for row, n in enumerate(lengths):
        for x in (q, k, v):
            x[row, n:] = float("nan")
    leaves = [x.requires_grad_() for x in (q, k, v, w)]
    out = run(*leaves, key_lengths=lengths)
    valid = torch.arange(9) < lengths.view(-1, 1)
    out[valid].sum().backward()
    w_grad = torch.zeros_like(w)
    for row, n in enumerate(lengths.tolist()):
        alone = [x.detach()[row : row + 1, :n].clone().requires_grad_() for x in (q, k, v)]
        alone_w = w.detach().clone().requires_grad_()
        want = run(*alone, alone_w)
        assert largest(out[row : row + 1, :n], want) < 1e-6
        want.sum().backward()
        for x, y in zip((q, k, v), alone):
            assert largest(x.grad[row : row + 1, :n], y.grad) < 1e-6
            assert (x.grad[row, n:] == 0).all()
        if op == "full":
            w_grad += alone_w.grad
    if op == "full":
        assert largest(w.grad, w_grad) < 1e-6
    again = run(*(x[2:].detach() for x in (q, k, v)), w.detach(), key_lengths=lengths[2:])
    assert torch.equal(again[0], out[2].detach())


def test_prefill_in_parts_and_steps_are_the_whole():
    q, k, v = draw(2, 23, 23, 2, 3, scale=5.0, dtype=torch.float32)
    key_mask = torch.rand(2, 23) < 0.8
    whole, end = ops.aft_simple_attention(
        q, k, v, causal=True, key_mask=key_mask, return_state=True
    )
    for sizes in ((23,), (10, 13), (0, 1, 22), (1,) * 23):
        state, outs, at = None, [], 0
        for n in sizes:
            part = slice(at, at + n)
            out, state = ops.aft_simple_attention(
                q[:, part],
                k[:, part],
                v[:, part],
                causal=True,
                key_mask=key_mask[:, part],
                initial_state=state,
                return_state=True,
            )
            outs.append(out)
            at += n
        assert torch.equal(torch.cat(outs, 1), whole)
        for a, b in zip(state, end):
            assert torch.equal(a, b)


def test_state_is_a_value_and_ragged_lengths_end_it():
    q, k, v = draw(2, 6, 6, 2, 3, dtype=torch.float32)
    _, state = ops.aft_simple_attention(q, k, v, return_state=True)
    kept = [part.clone() for part in state]
    ops.aft_simple_attention(q, k, v, initial_state=state)
    assert all(torch.equal(a, b) for a, b in zip(kept, state))
    lengths = torch.tensor([4, 0])
    _, ragged = ops.aft_simple_attention(q, k, v, key_lengths=lengths, return_state=True)
    _, short = ops.aft_simple_attention(q[:1, :4], k[:1, :4], v[:1, :4], return_state=True)
    assert all(torch.equal(a[:1], b) for a, b in zip(ragged, short))
    assert (ragged.m[1] == float("-inf")).all() and (ragged.b[1] == 0).all()


@pytest.mark.parametrize("causal, offset", [(False, 0), (True, 0), (True, 2), (True, -2)])
def test_gradcheck_simple(causal, offset):
    q, k, v = draw(2, 4, 5, 2, 2, scale=2.0)
    _, state = ops.aft_simple_attention(*draw(2, 3, 3, 2, 2), return_state=True)
    key_mask = torch.rand(2, 5) < 0.7
    leaves = [x.detach().requires_grad_() for x in (q, k, v, *state)]

    def run(q, k, v, *state):
        out, end = ops.aft_simple_attention(
            q,
            k,
            v,
            causal=causal,
            causal_offset=offset,
            key_mask=key_mask,
            initial_state=state or None,
            return_state=True,
        )
        return out, *end

    assert gradcheck(run, leaves)
    masked = gradcheck(lambda *x: run(*x)[0], leaves[:3])
    assert masked


@pytest.mark.parametrize("causal, offset", [(False, 0), (True, 0), (True, 2), (True, -2)])
def test_the_kernel_has_the_gradients_of_the_scan(causal, offset):
    """float32 against float64, which share no code: results, the final state and
    all gradients, of strided input as well."""
    wide = list(draw(2, 70, 75, 3, 40, scale=3.0))
    _, state = ops.aft_simple_attention(*draw(2, 3, 3, 3, 40), return_state=True)
    key_mask = torch.rand(2, 75) < 0.7
    # The running maximum is exact, so both must hold the same keys.
    wide = [x.float().double().requires_grad_() for x in (*wide, *state)]
    narrow = [x.detach().float().requires_grad_() for x in wide]
    heads_first = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in narrow[:3]]
    masks = {"causal": causal, "causal_offset": offset, "key_mask": key_mask}

    def run(inputs, leaves, grads=None):
        out, end = ops.aft_simple_attention(
            *inputs[:3], **masks, initial_state=tuple(inputs[3:]), return_state=True
        )
        results = (out, *end)
        grads = grads or [torch.randn_like(x) for x in results]
        given = [g.to(out.dtype) for g in grads]
        return results, torch.autograd.grad(results, leaves, given), grads

    wanted, wanted_grads, grads = run(wide, wide)
    for inputs in (narrow, [*heads_first, *narrow[3:]]):
        got, got_grads, _ = run(inputs, narrow, grads)
        for a, b in zip((*got, *got_grads), (*wanted, *wanted_grads)):
            assert largest(a.to(D), b) < 1e-5 * max(1.0, b.abs().max().item())


@pytest.mark.parametrize("scale", [1.0, 400.0])
def test_gradcheck_full(scale):
    """Scale 400 takes the form that goes pair by pair."""
    q, k, v = draw(2, 4, 5, 2, 2)
    w = torch.randn(5, 6, dtype=D)
    w[:, 1] *= scale
    leaves = [x.requires_grad_() for x in (q, k, v, w)]
    key_mask = torch.rand(2, 5) < 0.7
    key_mask[1] = False
    for masks in ({}, {"causal": True, "key_mask": key_mask}):
        assert gradcheck(lambda *x, m=masks: ops.aft_full_attention(*x, **m), leaves)


@pytest.mark.parametrize("dtype", [torch.float32, D, torch.bfloat16])
def test_opcheck(dtype):
    q, k, v = (x.to(dtype).requires_grad_() for x in draw(2, 4, 5, 2, 3))
    w = torch.randn(4, 5).to(dtype).requires_grad_()
    key_mask = torch.rand(2, 5) < 0.7
    lengths = torch.tensor([5, 2])
    m, a, b = (x.detach() for x in TARN.aft_simple.default(q, k, v)[1:])
    opcheck(TARN.aft_simple.default, (q, k, v))
    opcheck(TARN.aft_simple.default, (q, k, v, key_mask, lengths, m, a, b, True, 1))
    opcheck(TARN.aft_full.default, (q, k, v, w))
    mask = torch.rand(1, 2, 4, 5) < 0.5
    opcheck(TARN.aft_full.default, (q, k, v, w, True, 1, mask, key_mask, lengths))
    plain = [x.detach() for x in (q, k, v, w)]
    out, average, normaliser = TARN.aft_full.default(*plain)
    opcheck(
        TARN.aft_full_backward.default,
        (*plain, False, 0, None, None, None, average, normaliser, torch.randn_like(out)),
    )
    none = (None,) * 5
    grads = (torch.randn_like(out), torch.randn_like(m), None, None)
    opcheck(TARN.aft_simple_backward.default, (*plain[:3], *none, *grads, True, 0))


def test_half_precision_is_computed_in_float32():
    q, k, v = draw(1, 300, 300, 2, 4, dtype=torch.bfloat16)
    w = torch.randn(300, 300, dtype=torch.bfloat16)
    wide = [x.float() for x in (q, k, v, w)]
    for got, want in (
        (
            ops.aft_simple_attention(q, k, v, causal=True),
            ops.aft_simple_attention(*wide[:3], causal=True),
        ),
        (ops.aft_full_attention(q, k, v, w), ops.aft_full_attention(*wide)),
    ):
        assert torch.equal(got, want.to(torch.bfloat16))


def test_strided_input_and_threads():
    q, k, v = (x.transpose(1, 2) for x in draw(2, 3, 3, 70, 80, dtype=torch.float32))
    dense = [x.contiguous() for x in (q, k, v)]
    w = torch.randn(71, 70)[:70].t()
    one = ops.aft_simple_attention(q, k, v, causal=True)
    assert torch.equal(one, ops.aft_simple_attention(*dense, causal=True))
    full = ops.aft_full_attention(q, k, v, w, causal=True)
    assert largest(full, ops.aft_full_attention(*dense, w.contiguous(), causal=True)) < 1e-6
    torch.set_num_threads(3)
    assert torch.equal(one, ops.aft_simple_attention(q, k, v, causal=True))


def test_empty_batch():
    q, k, v = draw(0, 4, 5, 2, 3)
    assert ops.aft_simple_attention(q, k, v, causal=True).shape == q.shape
    assert ops.aft_full_attention(q, k, v, torch.zeros(4, 5, dtype=D)).shape == q.shape


def test_errors_name_the_argument():
    q, k, v = draw(2, 4, 5, 2, 3)
    w = torch.zeros(4, 5, dtype=D)
    for call, kind, text in (
        (lambda: ops.aft_simple_attention(q, k, v[..., :2]), ValueError, "values"),
        (lambda: ops.aft_simple_attention(q, k.float(), v), TypeError, "keys"),
        (lambda: ops.aft_simple_attention(q[0], k, v), ValueError, "queries"),
        (lambda: ops.aft_simple_attention(q.int(), k, v), TypeError, "queries"),
        (lambda: ops.aft_simple_attention(q, k, None), TypeError, "values"),
        (lambda: ops.aft_simple_attention(q, k, v, causal_offset=0.5), TypeError, "offset"),
        (lambda: ops.aft_simple_attention(q, k, v, key_mask=w), TypeError, "key_mask"),
        (lambda: ops.aft_simple_attention(q, k, v, initial_state=(w,)), TypeError, "state"),
        (
            lambda: ops.aft_simple_attention(q, k, v, initial_state=(w, w, w)),
            ValueError,
            "initial_m",
        ),
        (
            lambda: ops.aft_simple_attention(q, k, v, key_lengths=torch.tensor([9, 1])),
            ValueError,
            "key_lengths",
        ),
        (
            lambda: TARN.aft_simple_backward(
                q, k, v, *(None,) * 5, q[:, :2], None, None, None, True, 0
            ),
            ValueError,
            "grad_out",
        ),
        (
            lambda: TARN.aft_simple_backward(
                q, k, v, *(None,) * 5, None, None, q[0], None, True, 0
            ),
            ValueError,
            "grad_a",
        ),
        (lambda: ops.aft_full_attention(q, k, v, w[:3]), ValueError, "position_bias"),
        (lambda: ops.aft_full_attention(q, k, v, w.float()), TypeError, "position_bias"),
        (
            lambda: ops.aft_full_attention(q, k, v, w, attention_mask=torch.ones(3, 5) > 0),
            ValueError,
            "attention_mask",
        ),
    ):
        with pytest.raises(kind, match=text):
            call()


PEAK = """
import resource, torch
import tarn
from tarn import ops
torch.set_num_threads(1)
n = 4096
q, k, v = (torch.randn(1, n, 2, 16, requires_grad=True) for _ in range(3))
w = torch.randn(n, n, requires_grad=True)
w.grad = torch.zeros_like(w)
ops.aft_full_attention(*(x[:, :300] for x in (q, k, v)), w, causal=True).sum().backward()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
ops.aft_full_attention(q, k, v, w, causal=True).sum().backward()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def test_full_needs_no_pairs_besides_the_bias_and_its_gradient():
    """A tensor of all pairs and channels would take 2 GiB, one of all pairs 64
    MiB; the bias' gradient is one, and the rest is blocks."""
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)
    pairs = 4 * 4096 * 4096
    assert int(done.stdout) < 1.75 * pairs
