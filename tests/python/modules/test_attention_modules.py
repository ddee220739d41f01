"""The attention modules: masks, empty rows, padding, events, and the defects of
fast-transformers that must not come back (docs/migration.md)."""

import math

import pytest
import torch

from tarn import attention as att
from tarn.attention import AttentionLayer
from tarn.events import AttentionEvent, EventDispatcher, QKVEvent
from tarn.masking import FullMask, LengthMask, MaskError, TriangularCausalMask

N, L, S, H, E, M = 2, 7, 9, 2, 5, 3
NO_DROPOUT = {"attention_dropout": 0.0}
ANY_MASK = {
    "full": lambda: att.FullAttention(**NO_DROPOUT),
    "local": lambda: att.LocalAttention(4, **NO_DROPOUT),
    "exact-topk": lambda: att.ExactTopKAttention(3, **NO_DROPOUT),
    "reformer": lambda: att.ReformerAttention(4, 3, 2, **NO_DROPOUT),
    "aft-full": lambda: att.AFTFullAttention(16, 4),
}
CONDITIONAL = {
    # L = 7 and S = 9 are within the limit of one and beyond that of the other.
    "conditional-full-below": lambda: att.ConditionalFullAttention(
        att.LinearAttention(E), length_limit=S, **NO_DROPOUT
    ),
    "conditional-full-above": lambda: att.ConditionalFullAttention(
        att.LinearAttention(E), length_limit=S - 1, **NO_DROPOUT
    ),
}
KEY_MASK = {
    **CONDITIONAL,
    "linear": lambda: att.LinearAttention(E),
    "clustered": lambda: att.ClusteredAttention(3, **NO_DROPOUT),
    "improved-clustered": lambda: att.ImprovedClusteredAttention(3, topk=2, **NO_DROPOUT),
    "aft-simple": lambda: att.AFTSimpleAttention(),
}
CAUSAL = {
    "causal-linear": lambda: att.CausalLinearAttention(E),
    "causal-improved-clustered": lambda: att.ImprovedClusteredCausalAttention(
        3, topk=2, **NO_DROPOUT
    ),
}
ALL = {**ANY_MASK, **KEY_MASK, **CAUSAL}
BELOW = "conditional-full-below"
SAME_LENGTH = ("reformer", "causal-improved-clustered")


def make(kind):
    return ALL[kind]().eval()


def inputs(kind, seq_len=L, keys=S, batch=N, dtype=torch.float32):
    keys = seq_len if kind in SAME_LENGTH else keys
    width = E if kind.startswith("aft") else M
    shapes = (seq_len, E), (keys, E), (keys, width)
    return [torch.randn(batch, length, H, w, dtype=dtype) for length, w in shapes]


def mask_for(kind, seq_len=L):
    return TriangularCausalMask(seq_len) if kind in CAUSAL else None


@pytest.mark.parametrize("kind", ALL)
def test_shapes_and_defaults(kind):
    module = make(kind)
    q, k, v = inputs(kind)
    out = module(q, k, v, mask_for(kind))
    assert out.shape == (N, L, H, v.shape[3]) and out.isfinite().all()
    # No mask, a mask of ones and lengths that keep everything mean the same.
    masks = (
        mask_for(kind) or FullMask(L, k.shape[1]),
        LengthMask.full(N, L),
        FullMask(torch.ones(N, k.shape[1]) == 1),
    )
    torch.testing.assert_close(module(q, k, v, *masks), out, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", [k for k in ALL if k not in CAUSAL])
def test_padding_never_leaks(kind):
    """Defects 6, 7, 8 of docs/migration.md: NaN in padded keys and values reaches nothing, in
    the output or in gradients."""
    module = make(kind)
    q, k, v = inputs(kind)
    keys = k.shape[1]
    mask = LengthMask(torch.tensor([keys, 4]), max_len=keys)
    results = []
    for padding in (0.0, math.nan, math.inf):
        dirty = [t.clone() for t in (k, v)]
        for t in dirty:
            t[1, 4:] = padding
        leaves = [t.requires_grad_() for t in (q.clone(), *dirty)]
        if kind == "reformer":  # queries are keys there
            with torch.no_grad():
                leaves[0][1, 4:] = padding
        out = module(*leaves, None, mask if kind == "reformer" else None, mask)
        out = torch.cat([out[0], out[1, :4]])
        assert out.isfinite().all()
        grads = torch.autograd.grad(out.square().sum(), leaves, allow_unused=True)
        kept = [g[1, :4] for g in grads if g is not None]
        assert all(g.isfinite().all() for g in kept)
        results.append((out, *kept))
    for result in results[1:]:
        for given, wanted in zip(result, results[0]):
            torch.testing.assert_close(given, wanted, atol=0, rtol=0)


@pytest.mark.parametrize("kind", [*ANY_MASK, *CONDITIONAL, "linear", "aft-simple", "causal-linear"])
def test_empty_rows_are_zero(kind):
    """Defect 6 of docs/migration.md: a sequence without keys gives 0 and sends no gradient."""
    module = make(kind)
    leaves = [t.requires_grad_() for t in inputs(kind)]
    keys = leaves[1].shape[1]
    mask = LengthMask(torch.tensor([keys, 0]), max_len=keys)
    out = module(*leaves, mask_for(kind), None, mask)
    assert out[1].eq(0).all() and out[0].ne(0).any()
    grads = torch.autograd.grad(out.sum(), leaves, allow_unused=True)
    for grad in grads:
        assert grad is None or (grad.isfinite().all() and grad[1].eq(0).all())


@pytest.mark.parametrize("kind", ["full", "exact-topk", "local", "aft-full", BELOW])
def test_empty_rows_of_a_dense_mask_are_zero(kind):
    kept = torch.rand(L, S) > 0.3
    kept[2] = False
    out = make(kind)(*inputs(kind), FullMask(kept))
    assert out[:, 2].eq(0).all() and out.isfinite().all()


@pytest.mark.parametrize("kind", [k for k in ALL if "clustered" not in k])
def test_a_sequence_stands_for_itself(kind):
    """Neither batch mates nor padding change a row."""
    module = make(kind)
    q, k, v = inputs(kind, keys=L)
    lengths = LengthMask(torch.tensor([7, 4]), max_len=7)
    whole = module(q, k, v, mask_for(kind), lengths, lengths)
    if kind in ("local", "aft-full", "aft-simple", "full", "linear", "causal-linear", "exact-topk"):
        cut = [t[1:, :4] for t in (q, k, v)]
        alone = module(*cut, mask_for(kind, 4))
        torch.testing.assert_close(whole[1:, :4], alone, atol=1e-6, rtol=1e-5)
    alone = module(q[:1], k[:1], v[:1], mask_for(kind))
    torch.testing.assert_close(whole[:1], alone, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", [k for k in (*KEY_MASK, *CAUSAL) if k != BELOW])
def test_masks_a_kind_cannot_apply_are_errors(kind):
    q, k, v = inputs(kind)
    odd = FullMask(torch.rand(L, k.shape[1]) > 0.5)
    with pytest.raises(MaskError):
        make(kind)(q, k, v, odd)
    with pytest.raises(MaskError, match=r"want a mask \[7"):
        make(kind)(q, k, v, TriangularCausalMask(L + 1))
    if kind in CAUSAL:
        with pytest.raises(MaskError, match="lower triangular"):
            make(kind)(q, k, v, None)


@pytest.mark.parametrize("kind", ALL)
def test_key_masks_of_a_wrong_size_are_errors(kind):
    q, k, v = inputs(kind)
    short = LengthMask(torch.tensor([3, 2]))
    with pytest.raises(MaskError, match="max_len"):
        make(kind)(q, k, v, mask_for(kind), None, short)


@pytest.mark.parametrize("kind", ["full", "exact-topk", "local", "aft-full", "reformer", BELOW])
def test_masks_per_sample_and_head(kind):
    """One mask per sequence equals each sequence alone under its own."""
    module = make(kind)
    q, k, v = inputs(kind)
    kept = torch.rand(N, L, k.shape[1]) > 0.4
    whole = module(q, k, v, FullMask(kept))
    for n in range(N):
        row = [t[n : n + 1] for t in (q, k, v)]
        if kind == "reformer" and n:
            continue  # its hashes count sequences from the first
        torch.testing.assert_close(
            module(*row, FullMask(kept[n])), whole[n : n + 1], atol=1e-6, rtol=1e-5
        )


def formula(q, k, v, kept, weigh):
    """sum_j w_ij v_j / sum_j w_ij over kept [L, S], in float64, 0 for empty rows."""
    weights = weigh(q.double(), k.double()) * kept
    total = weights.sum(-1, keepdim=True)
    weights = torch.where(total > 0, weights / total.clamp_min(1e-300), 0.0)
    return torch.einsum("nhls,nshm->nlhm", weights, v.double())


def phi(x):
    return torch.where(x > 0, x + 1, x.clamp(max=0).exp())


def linear_weights(q, k):
    return torch.einsum("nlhe,nshe->nhls", phi(q), phi(k))


@pytest.mark.parametrize("sizes", [(7, 4), (4, 7), (1, 3), (3, 1), (5, 5)])
@pytest.mark.parametrize("offset", [0, 2, -1])
def test_causal_linear_of_unequal_lengths(sizes, offset):
    """Defect 1 of docs/migration.md: queries beyond the keys see all of them; no missing
    keys are read."""
    rows, columns = sizes
    q, k, v = inputs("causal-linear", rows, columns)
    mask = TriangularCausalMask(rows, keys=columns, offset=offset)
    out = make("causal-linear")(q, k, v, mask)
    wanted = formula(q, k, v, mask.bool_matrix, linear_weights)
    torch.testing.assert_close(out, wanted.float(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", CONDITIONAL)
def test_conditional_full_is_one_or_the_other(kind):
    """Full attention within the limit, the other kind where either length is
    beyond it, both by their definitions in float64."""
    q, k, v = inputs(kind)
    kept = LengthMask(torch.tensor([S, 4]), max_len=S)

    def softmax_weights(q, k):
        scores = torch.einsum("nlhe,nshe->nhls", q, k) / math.sqrt(E)
        return scores.exp()

    weigh = softmax_weights if kind == BELOW else linear_weights
    wanted = formula(q, k, v, kept.bool_matrix[:, None, None, :], weigh).float()
    out = make(kind)(q, k, v, None, None, kept)
    torch.testing.assert_close(out, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", CONDITIONAL)
def test_conditional_full_gradcheck(kind):
    """Both branches in float64, with padding and a sequence without keys."""
    module = make(kind)
    leaves = [t.requires_grad_() for t in inputs(kind, batch=3, dtype=torch.float64)]
    mask = LengthMask(torch.tensor([S, 4, 0]), max_len=S)
    assert torch.autograd.gradcheck(lambda *qkv: module(*qkv, None, None, mask), leaves)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("entry", [-5.0, -16.0, -30.0, -80.0])
def test_a_constant_value_is_reproduced(causal, entry):
    """Defect 3 of docs/migration.md: no eps shrinks the output, and phi does not cancel."""
    kind = "causal-linear" if causal else "linear"
    q = torch.full((1, L, H, 4), entry)
    v = torch.full((1, L, H, M), 3.0)
    module = (att.CausalLinearAttention if causal else att.LinearAttention)(4)
    torch.testing.assert_close(module(q, q, v, mask_for(kind)), v, atol=0, rtol=1e-6)
    compat = type(module)(4, compat=True)
    assert (compat(q, q, v, mask_for(kind)) < 3.0).all()


def test_temperature_of_zero_is_the_mean():
    """Defect 12 of docs/migration.md."""
    q, k, v = inputs("full")
    out = att.FullAttention(softmax_temp=0.0, **NO_DROPOUT)(q, k, v)
    torch.testing.assert_close(out, v.mean(1, keepdim=True).expand_as(out))


def test_aft_is_as_published():
    """Defect 5 of docs/migration.md."""
    q, k, v = inputs("aft-full")
    module = att.AFTFullAttention(12, 3)
    bias = (module.u[:L] @ module.v[:S].t()).double()
    kept = torch.rand(L, S) > 0.3
    for mask, keep in ((None, torch.ones(L, S) == 1), (FullMask(kept), kept)):
        weights = torch.exp(k.double()[:, None] + bias[None, :, :, None, None])
        weights = weights * keep[None, :, :, None, None]
        mean = (weights * v.double()[:, None]).sum(2) / weights.sum(2)
        wanted = torch.sigmoid(q.double()) * mean
        torch.testing.assert_close(module(q, k, v, mask), wanted.float(), atol=1e-5, rtol=1e-5)
    ones = torch.zeros(1, 40, 1, 1)
    out = att.AFTSimpleAttention()(ones, ones, ones + 1, TriangularCausalMask(40))
    torch.testing.assert_close(out, torch.full_like(out, 0.5))
    with pytest.raises(ValueError, match="max_sequence_length"):
        module(*inputs("aft-full", 13))


@pytest.mark.parametrize("kind", ALL)
def test_tensors_of_two_devices_are_named(kind):
    """The error comes before any work. (Defect 14 of docs/migration.md: no back end is
    missing, as composed forms run on every device.)"""
    q, k, v = inputs(kind)
    away = "keys" if kind != "reformer" else "values"
    with pytest.raises(ValueError, match=f"{away}: want .*cpu.*, got .*meta"):
        make(kind)(q, k.to("meta"), v.to("meta"), mask_for(kind))


def test_reformer_takes_any_length_and_width():
    """Defect 9 of docs/migration.md."""
    module = att.ReformerAttention(4, 3, 2, **NO_DROPOUT).eval()
    q, k, v = inputs("reformer", 11)
    q[0, 3] = 0
    out = module(q, k, v)
    assert out.shape == (N, 11, H, M) and out.isfinite().all()
    with pytest.raises(MaskError, match="keys"):
        module(q, k[:, :5], v[:, :5])


def test_reformer_of_one_chunk_is_full_attention_of_normalised_queries():
    q, k, v = inputs("reformer")
    module = att.ReformerAttention(16, 3, 3, **NO_DROPOUT).eval()
    keys = q / q.norm(dim=-1, keepdim=True)
    wanted = att.FullAttention(**NO_DROPOUT)(q, keys, v)
    torch.testing.assert_close(module(q, k, v), wanted, atol=1e-5, rtol=1e-5)


def test_clustered_takes_few_queries_and_any_mask_as_lengths():
    """Defect 10 of docs/migration.md: more clusters than queries; a full mask as lengths."""
    module = att.ClusteredAttention(20, **NO_DROPOUT).eval()
    q, k, v = inputs("clustered")
    out = module(q, k, v, None, FullMask(N, L), FullMask(N, S))
    assert out.isfinite().all()
    lengths = LengthMask(torch.tensor([5, 0]), max_len=L)
    out = module(q, k, v, None, lengths, None)
    assert out[0, 5:].eq(0).all() and out[1].eq(0).all() and out[0, :5].ne(0).any()


@pytest.mark.parametrize("kind", ["clustered", "improved-clustered", "reformer"])
def test_hashing_is_fixed_in_evaluation_and_drawn_in_training(kind):
    torch.manual_seed(1)
    q, k, v = inputs(kind, 64, 64)
    module = make(kind)
    assert torch.equal(module(q, k, v), module(q, k, v))
    module.train()
    first, second = module(q, k, v), module(q, k, v)
    assert not torch.equal(first, second)
    again = ALL[kind]().train()
    assert torch.equal(again(q, k, v), first) and torch.equal(again(q, k, v), second)


@pytest.mark.parametrize("kind", ["full", "local", "exact-topk"])
def test_dropout_is_of_training_only(kind):
    module = make(kind)
    module.dropout.p = 0.5
    call = inputs(kind)
    assert torch.equal(module(*call), module(*call))
    module.train()
    torch.manual_seed(3)
    first = module(*call)
    torch.manual_seed(3)
    assert torch.equal(module(*call), first) and not torch.equal(module(*call), first)


@pytest.mark.parametrize("kind", ["full", "exact-topk"])
def test_attention_event(kind):
    """It has the matrix [N, H, L, S] that made the output, before dropout, and is only
    sent if a listener is attached."""
    module = make(kind)
    module.event_dispatcher = dispatcher = EventDispatcher()
    q, k, v = inputs(kind)
    mask = TriangularCausalMask(L)
    silent, heard = module(q, k, v, mask), []
    dispatcher.listen(AttentionEvent, heard.append)
    out = module(q, k, v, mask)
    torch.testing.assert_close(out, silent, atol=1e-6, rtol=1e-5)
    (event,) = heard
    assert event.source is module and event.attention_matrix.shape == (N, H, L, S)
    product = torch.einsum("nhls,nshm->nlhm", event.attention_matrix, v)
    torch.testing.assert_close(product, out, atol=1e-6, rtol=1e-5)
    module.train()
    module.dropout.p = 0.5
    module(q, k, v, mask)
    torch.testing.assert_close(heard[1].attention_matrix, event.attention_matrix)


def test_no_listener_no_matrix(monkeypatch):
    from tarn import ops

    wanted = []
    run = ops.full_attention

    def spy(*args, **kwargs):
        wanted.append(kwargs.get("need_weights", False))
        return run(*args, **kwargs)

    monkeypatch.setattr(ops, "full_attention", spy)
    dispatcher = EventDispatcher()
    layer = AttentionLayer(
        att.FullAttention(event_dispatcher=dispatcher), 6, 2, event_dispatcher=dispatcher
    )
    x = torch.randn(2, 5, 6)
    layer(x, x, x)
    dispatcher.listen(QKVEvent, lambda event: None)
    layer(x, x, x)
    dispatcher.listen(AttentionEvent, lambda event: None)
    layer(x, x, x)
    assert wanted == [False, False, True]


def test_layer_tells_of_queries_keys_and_values():
    dispatcher, heard = EventDispatcher(), []
    layer = AttentionLayer(
        att.LinearAttention(4), 6, 2, 4, 3, event_dispatcher=dispatcher, d_memory=5
    )
    dispatcher.listen(QKVEvent, heard.append)
    x, memory = torch.randn(2, 7, 6), torch.randn(2, 9, 5)
    assert layer(x, memory, memory).shape == (2, 7, 6)
    (event,) = heard
    assert event.source is layer
    shapes = [tuple(t.shape) for t in (event.queries, event.keys, event.values)]
    assert shapes == [(2, 7, 2, 4), (2, 9, 2, 4), (2, 9, 2, 3)]
    # Head h is the h-th block of the projection. The layer's kernel of few rows adds up in
    # another order than torch.nn.Linear, so the bits differ.
    whole = layer.query_projection(x)
    torch.testing.assert_close(event.queries[:, :, 1], whole[..., 4:], rtol=0, atol=1e-6)


def test_zero_padded_queries():
    layer = AttentionLayer(att.LinearAttention(3), 6, 2, zero_padded_queries=True)
    x = torch.randn(2, 7, 6, requires_grad=True)
    mask = LengthMask(torch.tensor([7, 4]), max_len=7)
    out = layer(x, x, x, None, mask, mask)
    assert out[1, 4:].eq(0).all() and out[1, :4].ne(0).any()
    (grad,) = torch.autograd.grad(out.sum(), x)
    assert grad[1, 4:].eq(0).all()
    layer.zero_padded_queries = False
    plain = layer(x, x, x, None, mask, mask)
    assert torch.equal(plain[0], out[0]) and plain[1, 4:].ne(0).any()


@pytest.mark.parametrize("shape", [(0, 7), (2, 0)])
@pytest.mark.parametrize("kind", ALL)
def test_empty_batches_and_sequences(kind, shape):
    batch, seq_len = shape
    q, k, v = inputs(kind, seq_len, seq_len, batch)
    out = make(kind)(q, k, v, mask_for(kind, seq_len))
    assert out.shape == (batch, seq_len, H, v.shape[3])
