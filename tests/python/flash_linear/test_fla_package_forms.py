"""The CPU forms that tarn.install_as_fla() gives to fla.modules, against their equations in
float64 in plain torch: values, and gradients of every input."""

import pytest
import torch
import torch.nn.functional as F

from tarn import fla
from tarn._fla_package import activations, losses, norms, residuals, rotary, sequences


def draw(*shapes, seed=0):
    torch.manual_seed(seed)
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


def agree(ours, theirs, inputs, bound=2e-5):
    """Both of the same inputs, in float32 and float64; results are tensors or tuples."""
    single = [x.float().requires_grad_() for x in inputs]
    double = [x.clone().requires_grad_() for x in inputs]
    got, wanted = ours(*single), theirs(*double)
    got, wanted = ((x,) if isinstance(x, torch.Tensor) else x for x in (got, wanted))
    flows = [torch.randn_like(x) for x in wanted]
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=bound, atol=bound)
    gradients = [
        torch.autograd.grad(
            sum((x.double() * flow).sum() for x, flow in zip(xs, flows, strict=True)),
            leaves,
            allow_unused=True,
        )
        for xs, leaves in ((got, single), (wanted, double))
    ]
    for one, other in zip(*gradients, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one.double(), other, rtol=10 * bound, atol=10 * bound)


def normed(x, groups=1, centred=False, eps=1e-5):
    rows = x.unflatten(-1, (groups, -1))
    if centred:
        rows = rows - rows.mean(-1, keepdim=True)
    return (rows / (rows.square().mean(-1, keepdim=True) + eps).sqrt()).flatten(-2)


@pytest.mark.parametrize("prenorm", [False, True])
@pytest.mark.parametrize("centred", [False, True])
def test_norms_with_residuals(centred, prenorm):
    def theirs(x, weight, bias, residual):
        y = normed(x + residual, 3, centred, 1e-3) * weight + bias
        return (y, x + residual) if prenorm else y

    def ours(x, weight, bias, residual):
        return norms.group_norm(
            x, weight, bias, residual, 1e-3, prenorm, is_rms_norm=not centred, num_groups=3
        )

    agree(ours, theirs, draw((2, 5, 24), (24,), (24,), (2, 5, 24)))


def test_norms_without():
    x, weight, matrix, shift = draw((2, 5, 24), (24,), (7, 24), (7,))
    agree(lambda x, w: norms.rms_norm(x, w, None), lambda x, w: normed(x) * w, (x, weight))
    agree(lambda x: norms.layer_norm(x, None, None), lambda x: normed(x, centred=True), (x,))
    agree(
        lambda x, w, m, b: norms.layer_norm_linear(x, w, None, m, b, is_rms_norm=True),
        lambda x, w, m, b: F.linear(normed(x) * w, m, b),
        (x, weight, matrix, shift),
    )
    agree(norms.l2norm, lambda x: x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt(), (x,))
    with pytest.raises(ValueError, match="num_channels"):
        norms.group_norm(x, None, None, num_groups=5)


@pytest.mark.parametrize("activation", ["swish", "sigmoid"])
def test_gated_norms(activation):
    def gate(g):
        return F.silu(g) if activation == "swish" else torch.sigmoid(g)

    x, g, weight, bias, matrix = draw((2, 5, 3, 8), (2, 5, 3, 8), (8,), (8,), (4, 8))
    agree(
        lambda x, g, w: norms.rms_norm_gated(x, g, w, None, activation),
        lambda x, g, w: normed(x, eps=1e-6) * w * gate(g),
        (x, g, weight),
    )
    agree(
        lambda x, g, w, b: norms.layer_norm_gated(x, g, w, b, activation),
        lambda x, g, w, b: (normed(x, centred=True, eps=1e-6) * w + b) * gate(g),
        (x, g, weight, bias),
    )
    agree(
        lambda x, g, w, m: norms.rms_norm_swish_gate_linear(x, g, w, None, m, None),
        lambda x, g, w, m: F.linear(normed(x, eps=1e-6) * w * F.silu(g), m),
        (x, g, weight, matrix),
    )


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("size", [None, 4])
def test_norms_of_mamba2(size, before):
    def theirs(x, weight, bias, z, centred):
        gate = z * torch.sigmoid(z)
        groups = 1 if size is None else 12 // size
        y = normed(x if before else x * gate, groups, centred, 1e-6) * weight + bias
        return y * gate if before else y

    given = draw((2, 5, 12), (12,), (12,), (2, 5, 12))
    options = dict(group_size=size, norm_before_gate=before)
    agree(
        lambda x, w, b, z: norms.rmsnorm_fn(x, w, b, z, **options),
        lambda *one: theirs(*one, False),
        given,
    )
    agree(
        lambda x, w, b, z: norms.layernorm_fn(x, w, b, z, **options),
        lambda *one: theirs(*one, True),
        given,
    )
    agree(
        lambda x, w: norms.rmsnorm_fn(x, w, None, group_size=size),
        lambda x, w: normed(x, 1 if size is None else 12 // size, eps=1e-6) * w,
        given[:2],
    )
    halves = norms.rmsnorm_fn(given[0].bfloat16(), given[1].float(), None, given[3].float())
    assert halves.dtype == torch.bfloat16
    with pytest.raises(ValueError, match="layernorm_fn: group_size: want a divisor of 12, got 5"):
        norms.rmsnorm_fn(given[0], given[1], None, group_size=5)
    with pytest.raises(ValueError, match="layernorm_fn: z: want"):
        norms.rmsnorm_fn(given[0], given[1], None, given[3][:1])


def test_norms_of_halves_are_rounded_once():
    x, weight = draw((3, 64), (64,))
    x = x.bfloat16()
    out = norms.rms_norm(x, weight.bfloat16(), None)
    assert out.dtype == torch.bfloat16
    wanted = normed(x.double()) * weight.bfloat16().double()
    torch.testing.assert_close(out, wanted.bfloat16(), rtol=0.008, atol=0.008)


def test_activations():
    x, y, matrix, shift = draw((3, 20), (3, 20), (4, 20), (4,))
    agree(activations.elu_p1, lambda x: F.elu(x) + 1, (x,))
    agree(activations.sqrelu, lambda x: F.relu(x) ** 2, (x,))
    agree(lambda x: activations.logsigmoid(x, 16.0), lambda x: torch.sigmoid(x).log() / 16, (x,))
    agree(activations.swiglu, lambda x, y: x * torch.sigmoid(x) * y, (x, y))
    agree(activations.sigmoidglu, lambda x, y: torch.sigmoid(x) * y, (x, y))
    agree(
        activations.swiglu_linear,
        lambda x, y, m, b: F.linear(F.silu(x) * y, m, b),
        (x, y, matrix, shift),
    )
    agree(
        activations.sigmoidglu_linear,
        lambda x, y, m, b: F.linear(torch.sigmoid(x) * y, m, b),
        (x, y, matrix, shift),
    )


@pytest.mark.parametrize("power", [3.0, 1.5])
def test_powlu(power):
    def gate(x):
        rows = [
            v ** (power / (v.sqrt() + 1)) / (1 + (-v).exp()) if v > 0 else v / (1 + (-v).exp())
            for v in x.flatten()
        ]
        return torch.stack(rows).view(x.shape)

    x, y, matrix, shift = draw((3, 20), (3, 20), (4, 20), (4,))
    agree(lambda x, y: activations.powglu(x, y, power), lambda x, y: gate(x) * y, (x, y))
    agree(
        lambda x, y, m, b: activations.powglu_linear(x, y, m, b, power),
        lambda x, y, m, b: F.linear(gate(x) * y, m, b),
        (x, y, matrix, shift),
    )
    edge = torch.tensor([0.0, -0.0, 1e-40, 1e-30, -1e-40, 88.0, -200.0, 1e20], requires_grad=True)
    out = activations.powglu(edge, torch.ones(8), power)
    (slopes,) = torch.autograd.grad(out.sum(), edge)
    assert out.isfinite().all() and slopes.isfinite().all()


def test_gelu():
    def gelu(x):
        return x / 2 * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))

    x, shift = draw((3, 20), (20,))
    agree(activations.fast_gelu_impl, gelu, (x,))
    agree(activations.bias_gelu_impl, lambda x, b: gelu(x + b), (x, shift))


@pytest.mark.parametrize("normed_after", [False, True])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_attention_over_residuals(count, normed_after):
    def theirs(query, weight, norm_weight, *sources):
        rows, shares = [], []
        for place in zip(*(one.reshape(-1, 8) for one in sources), strict=True):
            scores = [
                0.7 * (query.flatten() * weight * v).sum() / (v.square().mean() + 1e-3).sqrt()
                for v in place
            ]
            total = sum(score.exp() for score in scores)
            share = [score.exp() / total for score in scores]
            row = sum(p * v for p, v in zip(share, place, strict=True))
            if normed_after:
                row = row / (row.square().mean() + 1e-3).sqrt() * norm_weight
            rows.append(row)
            shares.append(torch.stack(share))
        return (
            torch.stack(rows).view(sources[0].shape) + 0 * norm_weight.sum(),
            torch.stack(shares, 1).view(count, 2, 3).detach() + 0 * query.sum(),
        )

    def ours(query, weight, norm_weight, *sources):
        out, shares = residuals.fused_attnres(
            query, sources, weight, norm_weight if normed_after else None, 1e-3, 0.7, True
        )
        assert not shares.requires_grad
        return out + 0 * norm_weight.sum(), shares + 0 * query.sum()

    given = draw((1, 8), (8,), (8,), *[(2, 3, 8)] * count)
    agree(ours, theirs, given)
    with pytest.raises(ValueError, match="fused_attnres: residuals: want at least one tensor"):
        residuals.fused_attnres(given[0], [], given[1])
    with pytest.raises(ValueError, match="fused_attnres: query: want 8 numbers"):
        residuals.fused_attnres(given[0][:, 1:], given[3:], given[1])


def convolved(x, weight, bias, residual, state, silu):
    """One sequence [T, D] after state [D, W]: outputs, and the new state."""
    width = weight.shape[1]
    seen = torch.cat([state.t(), x])
    rows = [bias + (seen[t + 1 : t + 1 + width].t() * weight).sum(-1) for t in range(len(x))]
    y = torch.stack(rows) if rows else x
    return (F.silu(y) if silu else y) + residual, seen[len(seen) - width :].t()


@pytest.mark.parametrize("silu", [False, True])
@pytest.mark.parametrize("bounds", [None, [0, 1, 1, 6, 14]])
def test_causal_conv1d(bounds, silu):
    rows = 2 if bounds is None else 1
    states = rows if bounds is None else len(bounds) - 1

    def theirs(x, weight, bias, residual, state):
        pieces = (
            [(x[n], residual[n]) for n in range(rows)]
            if bounds is None
            else [
                (x[0, a:b], residual[0, a:b]) for a, b in zip(bounds[:-1], bounds[1:], strict=True)
            ]
        )
        found = [
            convolved(piece, weight, bias, more, state[n], silu)
            for n, (piece, more) in enumerate(pieces)
        ]
        join = torch.stack if bounds is None else torch.cat
        return join([y for y, _ in found]).view(x.shape), torch.stack([s for _, s in found])

    def ours(x, weight, bias, residual, state):
        return sequences.causal_conv1d(
            x,
            weight,
            bias,
            residual,
            state,
            True,
            "swish" if silu else None,
            cu_seqlens=None if bounds is None else torch.tensor(bounds),
        )

    agree(ours, theirs, draw((rows, 14, 6), (6, 4), (6,), (rows, 14, 6), (states, 6, 4)))


@pytest.mark.parametrize("shape", [(3, 5), (3, 1, 5), (1, 3, 5)])
def test_causal_conv1d_update_changes_its_cache(shape):
    x, weight, bias, cache = (one.float() for one in draw(shape, (5, 4), (5,), (3, 5, 4)))
    wanted = [
        convolved(
            x.view(3, 1, 5)[n].double(), weight.double(), bias.double(), 0, cache[n].double(), True
        )
        for n in range(3)
    ]
    y, same = sequences.causal_conv1d_update(x, cache, x, weight, bias, "silu")
    assert same is cache and y.shape == shape
    given = torch.stack([row for row, _ in wanted]).float().view(shape) + x
    torch.testing.assert_close(y, given)
    torch.testing.assert_close(cache, torch.stack([state for _, state in wanted]).float())


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("bounds", [None, [0, 1, 1, 6, 14]])
def test_token_shift(bounds, cached):
    rows = 2 if bounds is None else 1
    pieces = (
        [(n, 0, 14) for n in range(rows)]
        if bounds is None
        else [(0, a, b) for a, b in zip(bounds[:-1], bounds[1:], strict=True)]
    )

    def theirs(x, cache):
        shifts, last = [], []
        for n, (row, a, b) in enumerate(pieces):
            before = cache[n : n + 1] if cached else torch.zeros_like(cache[:1])
            seen = torch.cat([before, x[row, a:b]])
            shifts.append(seen[:-1] - seen[1:])
            last.append(seen[-1])
        return (torch.stack if bounds is None else torch.cat)(shifts).view(x.shape), torch.stack(
            last
        )

    def ours(x, cache):
        found = sequences.token_shift(
            x,
            None if bounds is None else torch.tensor(bounds),
            cache if cached else None,
            output_cache=True,
        )
        return found[0], found[1] + 0 * cache.sum()

    agree(
        ours,
        lambda x, cache: (theirs(x, cache)[0], theirs(x, cache)[1] + 0 * cache.sum()),
        draw((rows, 14, 6), (len(pieces), 6)),
    )


def test_token_shift_alone():
    x = torch.randn(2, 5, 3)
    torch.testing.assert_close(sequences.token_shift(x)[:, 1:], x[:, :-1] - x[:, 1:])
    assert sequences.token_shift(x[:, :0]).shape == (2, 0, 3)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("offsets", [0, 3, "of rows"])
def test_rotary_embedding(interleaved, packed, offsets):
    """Each pair of channels is rotated by an angle: complex numbers in the oracle."""
    bounds = [0, 2, 9] if packed else None
    angles = torch.arange(20.0, dtype=torch.float64)[:, None] * torch.tensor([1.0, 0.1])
    given = torch.tensor([-2, 4]) if offsets == "of rows" else offsets
    (x,) = draw((1 if packed else 2, 9, 3, 6))

    def theirs(x):
        out = x.clone()
        for row in range(x.shape[0]):
            for t in range(9):
                n = row if bounds is None else (0 if t < 2 else 1)
                at = t - (0 if bounds is None else bounds[n])
                at += int(given[n]) if offsets == "of rows" else offsets
                head = x[row, t, :, :4]
                pairs = (
                    head.unflatten(-1, (2, 2))
                    if interleaved
                    else head.unflatten(-1, (2, 2)).transpose(-1, -2)
                )
                turned = torch.view_as_complex(pairs.contiguous())
                turned = (
                    turned * torch.polar(torch.ones(2, dtype=torch.float64), angles[at])
                    if at >= 0
                    else turned * 0
                )
                pairs = torch.view_as_real(turned)
                out[row, t, :, :4] = (pairs if interleaved else pairs.transpose(-1, -2)).flatten(-2)
        return out

    def ours(x):
        return rotary.rotary_embedding(
            x,
            angles.cos().to(x.dtype),
            angles.sin().to(x.dtype),
            interleaved,
            seqlen_offsets=given,
            cu_seqlens=None if bounds is None else torch.tensor(bounds),
        )

    agree(ours, theirs, (x,))
    y = x.clone()
    assert rotary.rotary_embedding(y, angles.cos(), angles.sin(), inplace=True) is y


def test_parts_of_rwkv7():
    hidden, delta, *mixes = draw((2, 5, 8), (2, 5, 8), *[(1, 1, 8)] * 6)
    agree(
        sequences.fused_addcmul_rwkv7,
        lambda x, d, *w: tuple(x + d * one for one in w),
        (hidden, delta, *mixes),
    )
    assert sequences.fused_addcmul_rwkv7(hidden, delta, *mixes[:5])[5] is None
    agree(
        sequences.fused_k_rwkv7,
        lambda k, a, ka: k * (1 + (a - 1) * ka),
        draw((2, 5, 8), (2, 5, 8), (8,)),
    )

    def corrected(o, r, k, r_k, v, g):
        seen = torch.einsum("bthd,bthd,hd->bth", r, k, r_k)[..., None] * v
        return (o + seen.flatten(2)) * g

    agree(
        sequences.gate_output_correction,
        corrected,
        draw((2, 5, 8), (2, 5, 2, 4), (2, 5, 2, 4), (2, 4), (2, 5, 2, 4), (2, 5, 8)),
    )


@pytest.mark.parametrize("shape", [(2, 5, 3, 8), (3, 8), (2, 0, 3, 8)])
def test_gates(shape):
    def softplus(x):
        return (1 + x.exp()).log()

    g, rate, bias, heads, shift = draw(shape, (1, 1, 3, 1), (24,), shape[:-1], (3,))
    agree(
        fla.fused_kda_gate,
        lambda g, a, b: -a.flatten().exp()[:, None] * softplus(g + b.view(3, 8)),
        (g, rate, bias),
    )
    agree(
        lambda g, a: fla.fused_kda_gate(g, a, lower_bound=-5.0),
        lambda g, a: -5 / (1 + (-a.flatten().exp()[:, None] * g).exp()),
        (g, rate),
    )
    agree(
        lambda g, b: fla.fused_kda_gate(g, None, b, -2.0),
        lambda g, b: -2 / (1 + (-g - b.view(3, 8)).exp()),
        (g, bias),
    )
    agree(
        fla.fused_gdn_gate,
        lambda g, a, b: -a.flatten().exp() * softplus(g + b),
        (heads, rate, shift),
    )
    assert fla.fused_kda_gate(g, rate).dtype == torch.float32
    assert fla.fused_gdn_gate(heads, rate, output_dtype=torch.bfloat16).dtype == torch.bfloat16
    with pytest.raises(ValueError, match="fused_kda_gate: A_log: want a tensor, or a lower_bound"):
        fla.fused_kda_gate(g)
    with pytest.raises(ValueError, match="fused_gdn_gate: dt_bias"):
        fla.fused_gdn_gate(heads, rate, shift[:2])


def test_channel_mixing_of_rwkv7():
    def theirs(x, first, mix, keys, values):
        rows = []
        for t in range(x.shape[1]):
            before = first if t == 0 else x[:, t - 1]
            mixed = x[:, t] + (before - x[:, t]) * mix.flatten()
            rows.append((mixed @ keys).clamp(min=0) ** 2 @ values)
        return torch.stack(rows, 1), x[-1]

    given = draw((2, 5, 8), (2, 8), (1, 1, 8), (8, 12), (12, 8))
    agree(sequences.channel_mixing_rwkv7, theirs, given)
    one = [x.float() for x in given]
    torch.testing.assert_close(
        sequences.channel_mixing_rwkv7(one[0], one[1][:, None], *one[2:])[0],
        sequences.channel_mixing_rwkv7(*one)[0],
        rtol=0,
        atol=0,
    )
    with pytest.raises(ValueError, match="channel_mixing_rwkv7: x_prev"):
        sequences.channel_mixing_rwkv7(one[0], one[1][:1], *one[2:])


def test_logits_are_there_for_a_chunk_alone(monkeypatch):
    x, weight = (one.float().requires_grad_() for one in draw((7, 5), (6, 5)))
    rows, linear = [], F.linear
    monkeypatch.setattr(losses, "_LEAST_TOKENS", 2)
    monkeypatch.setattr(
        losses.F, "linear", lambda x, *more: rows.append(len(x)) or linear(x, *more)
    )
    found = [
        losses.fused_linear_cross_entropy_loss(x, torch.arange(7) % 6, weight, num_chunks=count)
        for count in (3, 1, 20)
    ]
    assert rows == [3, 3, 1, 7, 2, 2, 2, 1]
    rows.clear()
    found[0].backward()
    assert not rows  # nothing is computed twice
    with torch.no_grad():
        assert not losses.fused_linear_cross_entropy_loss(
            x, torch.arange(7) % 6, weight
        ).requires_grad


def test_losses(monkeypatch):
    monkeypatch.setattr(losses, "_LEAST_TOKENS", 1)
    target = torch.tensor([3, -100, 0, 6])
    kept = target != -100

    def plain(logits, smoothing=0.0, scale=1.0, squares=0.0, cap=None):
        logits = logits * scale
        logits = logits if cap is None else cap * torch.tanh(logits / cap)
        ln = logits.log_softmax(-1)
        own = -ln[torch.arange(4), target.clamp(min=0)]
        loss = (1 - smoothing) * own - smoothing * ln.mean(-1)
        return (loss + squares * logits.logsumexp(-1) ** 2) * kept

    x, weight, bias = draw((4, 5), (7, 5), (7,))
    options = dict(
        label_smoothing=0.1, logit_scale=2.0, lse_square_scale=0.3, logit_softcapping=4.0
    )
    agree(
        lambda z: losses.cross_entropy_loss(z, target, **options)[0],
        lambda z: plain(z, 0.1, 2.0, 0.3, 4.0),
        draw((4, 7)),
    )
    agree(
        lambda x, w, b: losses.fused_linear_cross_entropy_loss(x, target, w, b),
        lambda x, w, b: plain(F.linear(x, w, b)).sum() / 3,
        (x, weight, bias),
    )
    agree(
        lambda x, w, b: losses.fused_linear_cross_entropy_loss(
            x, target, w, b, reduction="sum", use_l2warp=True, l2_penalty_factor=0.0
        ),
        lambda x, w, b: plain(F.linear(x, w, b)).sum(),
        (x, weight, bias),
    )
    for count in (1, 2, 3, 4, 9):
        agree(
            lambda x, w, b: losses.fused_linear_cross_entropy_loss(
                x, target, w, b, -100, 0.1, 2.0, 4.0, count
            ),
            lambda x, w, b: plain(F.linear(x, w, b), 0.1, 2.0, 0.0, 4.0).sum() / 3,
            (x, weight, bias),
        )
    agree(
        lambda x: losses.fused_linear_cross_entropy_loss(x, target, weight.to(x.dtype)),
        lambda x: plain(F.linear(x, weight)).sum() / 3,
        (x,),
    )
    for given, match in (
        (dict(num_chunks=0), "num_chunks: want at least 1, got 0"),
        (dict(reduction="none"), "reduction: want"),
    ):
        with pytest.raises(ValueError, match="fused_linear_cross_entropy_loss: " + match):
            losses.fused_linear_cross_entropy_loss(x, target, weight, **given)
    # A penalty of weight 0 is not computed: here the logsumexp's square is infinite.
    far = torch.full((4, 7), 1e30)
    loss, squares = losses.cross_entropy_loss(far, target)
    assert not squares.any() and loss.isfinite().all() and not squares.requires_grad
    # The pull on the largest logit of a row: factor / rows times that logit.
    leaf = x.float().requires_grad_()
    eye = torch.eye(5)
    pulled, free = (
        torch.autograd.grad(
            losses.fused_linear_cross_entropy_loss(
                leaf, target.clamp(max=4), eye, use_l2warp=pull, l2_penalty_factor=0.5
            ),
            leaf,
        )[0]
        for pull in (True, False)
    )
    largest = F.one_hot(x.argmax(-1), 5) * x.float()
    torch.testing.assert_close(pulled - free, 0.5 / 4 * largest)
