"""torch.ops.tarn.linear_layers_step: one call against the operators that it replaces,
in float64, and what it refuses."""

import contextlib

import pytest
import torch
from torch.library import opcheck

from tarn import ops

steps = torch.ops.tarn.linear_layers_step.default
HEADS, WIDTH, D_KEY, D_VALUE, HIDDEN = 3, 12, 5, 4, 17


def step(x, S, z, weights, *arguments, **options):
    """The results of one layer: (out, S, z)."""
    given = [[] if t is None else [t] for t in (S, z)]
    out, S, z = steps(x, *given, weights, None, None, *arguments, **options)
    return out, S[0], z[0]


def make(batch, dtype=torch.float32, gated=False, norm="layer", state=True, biases=True):
    """Arguments of a call up to the weights, random."""
    generator = torch.Generator().manual_seed(batch + 7 * gated)

    def random(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    def bias(width):
        return random(width) if biases else None

    keys, values = HEADS * D_KEY, HEADS * D_VALUE
    weights = [random(keys, WIDTH), bias(keys), random(keys, WIDTH), bias(keys)]
    weights += [random(values, WIDTH), bias(values), random(WIDTH, values), bias(WIDTH)]
    beta = norm == "layer"
    weights += [random(WIDTH), random(WIDTH) if beta else None]
    weights += [random(HIDDEN, WIDTH), None if gated else random(HIDDEN)]
    weights += [random(WIDTH, HIDDEN), None if gated else random(WIDTH)]
    weights += [random(HIDDEN, WIDTH) if gated else None]
    weights += [random(WIDTH), random(WIDTH) if beta else None]
    S = random(batch, HEADS, D_KEY, D_VALUE) if state else None
    z = random(batch, HEADS, D_KEY).square() + 1 if state else None
    return random(batch, WIDTH), S, z, weights


def widened(*tensors):
    return [None if t is None else t.double() for t in tensors]


OPTIONS = [
    dict(),
    dict(pre_norm=True, activation="gelu"),
    dict(norm_kind="rms", norm_eps=1e-3),
    dict(pre_norm=True, norm_kind="rms", feature_map="relu", denominator="compat", eps=0.5),
    dict(feature_map="softplus", denominator="none"),
]


@pytest.mark.parametrize("batch", (0, 1, 3, 8, 9, 33))
@pytest.mark.parametrize("gated", (False, True))
@pytest.mark.parametrize("options", OPTIONS)
def test_equals_the_operators_in_float64(batch, gated, options):
    x, S, z, weights = make(batch, gated=gated, norm=options.get("norm_kind", "layer"))
    before = S.clone(), z.clone()
    got = step(x, S, z, weights, HEADS, **options)
    wide = widened(x, S, z)
    want = step(*wide, widened(*weights), HEADS, **options)
    for a, b in zip(got, want, strict=True):
        assert a.dtype == torch.float32
        torch.testing.assert_close(a.double(), b, atol=2e-5, rtol=2e-5)
    assert torch.equal(S, before[0]) and torch.equal(z, before[1])  # states are values


@pytest.mark.parametrize("state", (False, True))
@pytest.mark.parametrize("biases", (False, True))
def test_equals_its_composed_form(state, biases):
    x, S, z, weights = make(4, state=state, biases=biases)
    got = step(x, S, z, weights, HEADS)
    with ops.composed_forms():
        want = step(x, S, z, weights, HEADS)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_rows_have_the_bits_they_have_alone():
    x, S, z, weights = make(6)
    whole = step(x, S, z, weights, HEADS)
    for row in range(6):
        part = slice(row, row + 1)
        alone = step(x[part], S[part], z[part], weights, HEADS)
        for a, b in zip(alone, whole, strict=True):
            assert torch.equal(a, b[part])


def test_strided_tensors():
    x, S, z, weights = make(4)
    strided = [None if w is None else w.t().contiguous().t() for w in weights]
    got = step(x.repeat(1, 2)[:, :WIDTH], S, z, strided, HEADS)
    for a, b in zip(got, step(x, S, z, weights, HEADS), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("gated", (False, True))
def test_gradients(gated):
    """They are those of the composed form, whose operators have gradients."""
    x, S, z, weights = make(2, torch.float64, gated=gated)
    for tensor in (x, S, z, weights[0], weights[6], weights[10]):
        tensor.requires_grad_()

    def call(x, S, z, wq, wo, w1):
        given = list(weights)
        given[0], given[6], given[10] = wq, wo, w1
        return step(x, S, z, given, HEADS, activation="gelu", pre_norm=True)

    assert torch.autograd.gradcheck(call, (x, S, z, weights[0], weights[6], weights[10]))
    narrow = [t.detach().float().requires_grad_() for t in (x, S, z)]
    out = step(*narrow, [None if w is None else w.detach().float() for w in weights], HEADS)
    out[0].sum().backward()
    assert all(t.grad is not None for t in narrow)


@pytest.mark.parametrize("composed", (False, True))
@pytest.mark.parametrize(
    "gated, place, tensor, named",
    [
        (False, 11, None, r"weights\[11\]: want a tensor"),
        (True, 11, torch.zeros(HIDDEN), r"weights\[11\]: want none"),
        (False, 9, None, r"weights\[9\]: want a tensor"),
        (False, 16, None, r"weights\[16\]: want a tensor"),
    ],
)
def test_biases_belong_to_the_kind(composed, gated, place, tensor, named):
    x, S, z, weights = make(2, gated=gated)
    weights[place] = tensor
    with contextlib.ExitStack() as stack:
        if composed:
            stack.enter_context(ops.composed_forms())
        with pytest.raises(ValueError, match=named):
            step(x, S, z, weights, HEADS)


def test_an_rms_norm_has_no_beta():
    x, S, z, weights = make(2)
    with pytest.raises(ValueError, match=r"weights\[9\]: want none"):
        step(x, S, z, weights, HEADS, norm_kind="rms")


@torch.no_grad()
def test_forward_mode_derivatives_of_weights():
    x, S, z, weights = make(2)
    tangent = torch.randn(weights[0].shape)

    def call(w):
        return step(x, S, z, [w, *weights[1:]], HEADS)[0]

    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(weights[0], tangent)
        found = torch.autograd.forward_ad.unpack_dual(call(dual)).tangent
    assert found is not None
    with ops.composed_forms(), torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(weights[0], tangent)
        want = torch.autograd.forward_ad.unpack_dual(call(dual)).tangent
    torch.testing.assert_close(found, want)


def test_opcheck():
    x, S, z, weights = make(2)
    call = (x, [S, S], [z, z], weights + weights, weights[8], weights[9], HEADS)
    opcheck(steps, call, test_utils=("test_schema", "test_faketensor"))
    heads = torch.ops.tarn.layer_step_heads.default
    opcheck(heads, (x, weights, HEADS), test_utils=("test_schema", "test_faketensor"))
    rest = torch.ops.tarn.layer_step_rest.default
    attended = torch.randn(2, HEADS, D_VALUE)
    opcheck(rest, (x, attended, weights, HEADS), test_utils=("test_schema", "test_faketensor"))


@pytest.mark.parametrize("gated", (False, True))
@pytest.mark.parametrize("batch", (1, 9))
def test_heads_and_rest_are_its_two_ends(gated, batch):
    x, S, z, weights = make(batch, gated=gated)
    queries, keys, values = torch.ops.tarn.layer_step_heads.default(x, weights, HEADS)
    attended, state = ops.linear_attention_step(
        queries, keys, values, ops.LinearState(S, z), feature_map="elu1"
    )
    out = torch.ops.tarn.layer_step_rest.default(x, attended, weights, HEADS)
    near = 0.0 if batch <= 8 else 1e-5  # more rows: products add in another order
    for a, b in zip((out, state.S, state.z), step(x, S, z, weights, HEADS), strict=True):
        torch.testing.assert_close(a, b, atol=near, rtol=near)
    with pytest.raises(ValueError, match="attended: want"):
        torch.ops.tarn.layer_step_rest.default(x, attended[:, :2], weights, HEADS)


def test_meta():
    x, S, z, weights = make(2)
    to = [None if t is None else t.to("meta") for t in (x, S, z)]
    out = step(*to, [None if w is None else w.to("meta") for w in weights], HEADS)
    assert [o.shape for o in out] == [x.shape, S.shape, z.shape]


@pytest.mark.parametrize(
    "place, wrong, named",
    [
        (0, None, r"weights\[0\]"),
        (2, torch.zeros(2, WIDTH), r"weights\[2\]"),
        (6, torch.zeros(WIDTH, 5), r"weights\[6\]"),
        (8, torch.zeros(WIDTH + 1), r"weights\[8\]"),
        (12, torch.zeros(WIDTH), r"weights\[12\]"),
    ],
)
def test_weights_are_checked(place, wrong, named):
    x, S, z, weights = make(2)
    weights[place] = wrong
    with pytest.raises(ValueError, match=named):
        step(x, S, z, weights, HEADS)


def test_arguments_are_checked():
    x, S, z, weights = make(2)
    with pytest.raises(ValueError, match="n_heads: want a divisor of 15 and 12, got 2"):
        step(x, S, z, weights, 2)
    with pytest.raises(ValueError, match="S, z: want none, or 1 of each, got 1 and 0"):
        step(x, S, None, weights, HEADS)
    with pytest.raises(ValueError, match="S: want"):
        step(x, S[:1], z, weights, HEADS)
    with pytest.raises(ValueError, match="a multiple of 17 of them, got 16"):
        step(x, S, z, weights[:-1], HEADS)
    with pytest.raises(ValueError, match=r"x: want \[B, D\], got 3 axes"):
        step(x[None], S, z, weights, HEADS)
    with pytest.raises(ValueError, match="activation"):
        step(x, S, z, weights, HEADS, activation="tanh")
    with pytest.raises(TypeError, match=r"weights\[4\]"):
        step(x, S, z, [w.double() if i == 4 else w for i, w in enumerate(weights)], HEADS)


@pytest.mark.parametrize("state", (False, True))
@pytest.mark.parametrize("composed", (False, True))
@pytest.mark.parametrize("batch", (1, 9))
@pytest.mark.parametrize("options", OPTIONS[:2])
def test_layers_after_each_other(state, composed, batch, options):
    calls = [make(batch + 7 * layer, state=state) for layer in range(3)]
    x = calls[0][0]
    given = [[call[i][:batch] for call in calls] if state else [] for i in (1, 2)]
    gamma, beta = torch.randn(2, WIDTH)
    every = [weight for call in calls for weight in call[3]]
    with contextlib.ExitStack() as stack:
        if composed:
            stack.enter_context(ops.composed_forms())
        out, S, z = steps(x, *given, every, gamma, beta, HEADS, **options)
        for i, (_, _, _, weights) in enumerate(calls):
            first = (given[0][i], given[1][i]) if state else (None, None)
            x, one_S, one_z = step(x, *first, weights, HEADS, **options)
            assert torch.equal(S[i], one_S) and torch.equal(z[i], one_z)
        x, _ = ops.residual_norm(x, gamma=gamma, beta=beta)
    assert torch.equal(out, x) and len(S) == len(z) == 3


def test_no_layers():
    x = torch.randn(2, WIDTH)
    out, S, z = steps(x, [], [], [], None, None, HEADS)
    assert torch.equal(out, x) and S == [] and z == [] and out.data_ptr() != x.data_ptr()


def test_the_last_norm_is_checked():
    x, S, z, weights = make(2)
    for gamma, beta, wrong in (
        (torch.zeros(WIDTH + 1), None, "gamma: want"),
        (torch.zeros(WIDTH), torch.zeros(1), "beta: want"),
        (None, torch.zeros(WIDTH), "beta: want none without a gamma"),
    ):
        with pytest.raises(ValueError, match=wrong):
            steps(x, [S], [z], weights, gamma, beta, HEADS)


def test_errors_name_the_place_among_all_layers():
    x, S, z, weights = make(2)
    wrong = [*weights, *weights]
    wrong[17 + 2] = torch.zeros(2, WIDTH)
    with pytest.raises(ValueError, match=r"weights\[19\]: want"):
        steps(x, [S, S], [z, z], wrong, None, None, HEADS)
    with pytest.raises(ValueError, match="want none, or 2 of each, got 1 and 1"):
        steps(x, [S], [z], weights + weights, None, None, HEADS)
