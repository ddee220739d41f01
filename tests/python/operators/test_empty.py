"""Every operator on no rows: an empty batch, no tokens, and packed rows of no
sequence or of empty ones. Results and gradients have the shapes of full calls,
weights get zeros, and a state that no token follows passes through with a
gradient of ones."""

import pytest
import torch

from tarn import ops

H, K, V, D = 2, 4, 3, 8
SIZES = [(0, 0), (0, 1), (0, 5), (2, 0)]
# Batch, tokens and starts: no sequence at all, then two empty ones.
PACKED = [(1, 0, [0]), (1, 0, [0, 0, 0])]


def leaf(*sizes, positive=False):
    x = torch.rand(*sizes) + 0.5 if positive else torch.randn(*sizes)
    return x.requires_grad_()


def heads(batch, tokens):
    return {
        "queries": leaf(batch, tokens, H, K),
        "keys": leaf(batch, tokens, H, K),
        "values": leaf(batch, tokens, H, V),
    }


def gates(batch, tokens):
    """name -> gates of a gated operator, by how many axes they have."""
    return {
        "none": None,
        "head": leaf(H),
        "token": leaf(batch, tokens, H),
        "channel": leaf(batch, tokens, H, K),
    }


# name -> (batch, tokens) -> (operator, arguments, shape of the state without its batch)
def _decay(batch, tokens, kind):
    return ops.decay_attention, {**heads(batch, tokens), "gates": gates(batch, tokens)[kind]}


def _bonus(batch, tokens, kind):
    function, call = _decay(batch, tokens, kind)
    return function, {**call, "bonus": leaf(H, K)}


def _delta(batch, tokens, kind):
    betas = leaf(batch, tokens, H, positive=True)
    return ops.delta_attention, {**_decay(batch, tokens, kind)[1], "betas": betas}


def _dplr(batch, tokens, kind):
    pair = {name: leaf(batch, tokens, H, K) for name in ("reads", "writes")}
    return ops.dplr_attention, {**_decay(batch, tokens, kind)[1], **pair}


GATED = {"decay": _decay, "bonus": _bonus, "delta": _delta, "dplr": _dplr}
GATES = ["none", "head", "token", "channel"]
STATES = {
    **{
        f"{name} {kind}": (lambda b, t, f=make, kind=kind: f(b, t, kind), (H, K, V))
        for name, make in GATED.items()
        for kind in GATES
        if name != "bonus" or kind == "channel"
    },
    "elementwise": (
        lambda b, t: (
            ops.elementwise_recurrence,
            {"inputs": leaf(b, t, D), "gates": leaf(b, t, D)},
        ),
        (D,),
    ),
    "selective scan": (
        lambda b, t: (
            ops.selective_scan,
            {
                "inputs": leaf(b, t, D),
                "steps": leaf(b, t, D),
                "rates": leaf(D, 3),
                "keys": leaf(b, t, 3),
                "queries": leaf(b, t, 3),
            },
        ),
        (D, 3),
    ),
    "convolution": (
        lambda b, t: (
            ops.short_convolution,
            {"inputs": leaf(b, t, D), "weights": leaf(D, 4), "bias": leaf(D)},
        ),
        (3, D),
    ),
}


def check(results, leaves, scale, may_miss=False):
    """Backpropagates the sum of `results`; every leaf must get a gradient of its
    shape: `scale` in the state's, zeros in those of weights. `may_miss`: a leaf that
    the results do not depend on may have none, which means zeros to autograd."""
    loss = sum(x.sum() for x in results)
    loss.backward()
    for name, x in leaves.items():
        if x.grad is None and may_miss and (name != "initial_state" or x.numel() == 0):
            continue
        assert x.grad is not None, name
        assert x.grad.shape == x.shape, name
        wanted = scale if name == "initial_state" else 0.0
        assert torch.equal(x.grad, torch.full_like(x, wanted)), name


@pytest.mark.parametrize("composed", [False, True], ids=["kernel", "composed"])
@pytest.mark.parametrize(
    ("batch", "tokens", "starts"), [(*sizes, None) for sizes in SIZES] + PACKED, ids=str
)
@pytest.mark.parametrize("case", STATES)
def test_states(case, batch, tokens, starts, composed):
    make, shape = STATES[case]
    function, call = make(batch, tokens)
    sequences = batch if starts is None else len(starts) - 1
    state = leaf(sequences, *shape)
    call["initial_state"] = state
    if starts is not None:
        call["cu_seqlens"] = torch.tensor(starts)

    def run():
        out, final = function(**call, return_state=True)
        assert out.shape[:2] == (batch, tokens)
        assert final.shape == state.shape
        assert torch.equal(final, state)  # no token changes it
        leaves = {n: x for n, x in call.items() if x is not None and x.requires_grad}
        check([out, final], leaves, 1.0, may_miss=composed and tokens == 0)

    if composed:
        with ops.composed_forms():
            run()
    else:
        run()


def _linear_state(batch):
    return leaf(batch, H, K, V), leaf(batch, H, K, positive=True)


@pytest.mark.parametrize(("batch", "tokens"), SIZES)
@pytest.mark.parametrize("function", [ops.linear_attention, ops.mapped_linear_attention])
def test_linear_states(function, batch, tokens):
    call = heads(batch, tokens)
    first = _linear_state(batch)
    out, (S, z, *_) = function(**call, initial_state=first, return_state=True)
    assert (S.shape, z.shape) == (first[0].shape, first[1].shape)
    assert torch.equal(S, first[0])  # no token changes it
    assert torch.equal(z, first[1])
    check([out, S], call, 0.0)
    assert torch.equal(first[0].grad, torch.ones_like(first[0]))


# name -> (x [B, T, D] -> result, weights)
def _rows():
    W, F, b = leaf(D, D), leaf(D, D), leaf(D)
    g, c = leaf(D), leaf(D)
    return {
        "affine": (lambda x: ops.affine(x, W, b), [W, b]),
        "feed-forward": (lambda x: ops.feed_forward(x, W, b, F), [W, b, F]),
        "swiglu": (lambda x: ops.swiglu_feed_forward(x, W, F, W), [W, F]),
        "residual norm": (lambda x: ops.residual_norm(x, 2 * x, b, g, c)[0], [b, g, c]),
        "rms norm": (lambda x: ops.rms_norm(x, g), [g]),
        "layer heads": (lambda x: ops.layer_heads(x, [W], [b], g, c), [W, b, g, c]),
        "layer rest": (
            lambda x: ops.layer_rest(x, x, W, b, g, c, F, b, W, b),
            [W, F, b, g, c],
        ),
        "gated norm": (lambda x: ops.gated_norm(x[:, :, None], g, c, x[:, :, None]), [g, c]),
        "logistic mixture": (
            lambda x: ops.logistic_mixture_loss(x[..., :6], x[..., 0].long() * 0),
            [],
        ),
        "packed": (lambda x: ops.linear_attention_packed(x.repeat(1, 1, 3), H, D // H), []),
    }


@pytest.mark.parametrize(("batch", "tokens"), SIZES)
@pytest.mark.parametrize("case", sorted(_rows()))
def test_rows(case, batch, tokens):
    function, weights = _rows()[case]
    x = leaf(batch, tokens, D)
    out = function(x)
    assert out.shape[:2] == (batch, tokens)
    check([out], {"x": x, **{str(i): w for i, w in enumerate(weights)}}, 0.0)


ATTENTION = {
    "linear": lambda q, k, v: ops.linear_attention(q, k, v),
    "linear both ways": lambda q, k, v: ops.linear_attention(q, k, v, causal=False),
    "causal product": lambda q, k, v: ops.causal_dot_product(
        *[x.transpose(1, 2) for x in (q, k, v)]
    ).transpose(1, 2),
    "mapped": lambda q, k, v: ops.mapped_linear_attention(q, k, v, feature_map="poly2"),
    "full": lambda q, k, v: ops.full_attention(q, k, v, causal=True),
    "local": lambda q, k, v: ops.local_attention(q, k, v, local_context=3),
    "top-k": lambda q, k, v: ops.exact_topk_attention(q, k, v, topk=2),
    "clustered": lambda q, k, v: ops.clustered_attention(q, k, v, clusters=2),
    "improved clustered": lambda q, k, v: ops.improved_clustered_attention(
        q, k, v, clusters=2, topk=2
    ),
    "causal clustered": lambda q, k, v: ops.causal_improved_clustered_attention(
        q, k, v, clusters=2, topk=2
    ),
    "reformer": lambda q, k, v: ops.reformer_attention(q, v, chunk_size=2, rounds=2) + k.sum(),
    "aft simple": lambda q, k, v: ops.aft_simple_attention(q, k, q) + v.sum(),
    "aft full": lambda q, k, v: (
        ops.aft_full_attention(q, k, q, torch.zeros(q.shape[1], q.shape[1])) + v.sum()
    ),
}


@pytest.mark.parametrize(("batch", "tokens"), SIZES)
@pytest.mark.parametrize("case", ATTENTION)
def test_attention(case, batch, tokens):
    call = heads(batch, tokens)
    out = ATTENTION[case](*call.values())
    assert out.shape[:2] == (batch, tokens)
    check([out], call, 0.0)
