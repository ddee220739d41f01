"""Linear attention with any feature map: against the definition in float64,
states, the signed denominator, stabilised favor, functions, errors."""

import math
import re

import feature_map_reference as reference
import pytest
import torch
from torch.autograd import gradcheck
from torch.library import opcheck

from tarn import ops
from tarn.ops import LinearState, mapped_linear_attention, mapped_linear_attention_step

OPS = torch.ops.tarn
D_KEY = 5


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def arguments(name, d_key=D_KEY, n_dims=None, **more):
    """Keyword arguments that name a map, omega included."""
    frequencies = ops.feature_frequencies(name, d_key, n_dims)
    if frequencies:
        more["omega"] = ops.draw_omega(d_key, frequencies, orthogonal=True, seed=3)
    return dict(feature_map=name, **more)


def operands(B=2, T=37, S=None, H=2, HV=4, K=D_KEY, V=3, dtype=torch.float32):
    S = T if S is None else S
    q, k = torch.randn(B, T, H, K), torch.randn(B, S, H, K)
    return [x.to(dtype) for x in (q, k, torch.randn(B, S, HV, V))]


def error(given, wanted):
    """Largest error, relative for outputs above 1: a signed row may be large."""
    return ((given.double() - wanted).abs() / (1 + wanted.abs())).max().item()


CASES = {
    "plain": dict(),
    "not-causal": dict(causal=False),
    "offset": dict(causal_offset=-6),
    "offset-more-keys": dict(causal_offset=9, S=50),
    "mask": dict(mask=True),
    "lengths": dict(lengths=True, causal=False),
    "packed": dict(B=1, cu_seqlens=[0, 3, 3, 20, 37]),
    "one-token": dict(T=1),
    "no-keys": dict(S=0),
}


@pytest.mark.parametrize("case", list(CASES))
@pytest.mark.parametrize("name", reference.NAMED)
def test_matches_the_definition(name, case):
    """Output, state and gradients, in float64 and float32."""
    options = dict(CASES[case])
    sizes = {n: options.pop(n) for n in ("B", "T", "S") if n in options}
    q, k, v = operands(**sizes, dtype=torch.float64)
    keep = None
    if options.pop("mask", False):
        keep = torch.rand(k.shape[:2]) > 0.3
        options["key_mask"] = keep
    if options.pop("lengths", False):
        options["key_lengths"] = torch.tensor([30, 11])
        keep = torch.arange(k.shape[1]) < options["key_lengths"][:, None]
    if "cu_seqlens" in options:
        options["cu_seqlens"] = torch.tensor(options["cu_seqlens"])
    mapped = arguments(name)
    pairs = reference.allowed_pairs(
        q.shape[1],
        k.shape[1],
        options.get("causal", True),
        options.get("causal_offset", 0),
        keep,
        options.get("cu_seqlens"),
    )
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    phi = [reference.features(name, x, mapped.get("omega")) for x in leaves[:2]]
    denominator = "signed" if name in reference.SIGNED else "exact"
    wanted = reference.attend(*phi, leaves[2], pairs, denominator)
    # The row of a signed map may be a small difference of large terms: only those
    # whose denominator is a fair sum are compared.
    fair = torch.ones(wanted.shape[:3], dtype=torch.bool)
    if name in reference.SIGNED:
        fair = fair_rows(*phi, pairs)
    weights = torch.randn(wanted.shape, dtype=torch.float64) * fair[..., None]
    wanted_grads = gradients((wanted * weights).sum(), leaves)
    if keep is not None:
        hidden = ~keep[:, :, None, None]
        k, v = k.masked_fill(hidden, math.nan), v.masked_fill(hidden, math.nan)
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 2e-4)):
        given = [x.to(dtype).requires_grad_() for x in (q, k, v)]
        out = mapped_linear_attention(*given, **mapped, **options)
        assert out.dtype == dtype
        assert error(out[fair], wanted[fair]) < tolerance if fair.any() else True
        for g, w in zip(gradients((out * weights.to(dtype)).sum(), given), wanted_grads):
            assert g.isfinite().all()
            assert g.numel() == 0 or error(g, w) < 10 * tolerance


def gradients(loss, leaves):
    """Zeros for leaves that the loss does not depend on."""
    grads = torch.autograd.grad(loss, leaves, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, grads)]


def fair_rows(phi_q, phi_k, pairs):
    """[B, T, HV] rows whose denominator is at least 0.05 of its largest size."""
    weights = torch.einsum("bthc,bshc->bths", phi_q, phi_k) * pairs[:, :, None]
    sizes = phi_q.norm(dim=-1) * torch.einsum("bts,bsh->bth", pairs.double(), phi_k.norm(dim=-1))
    return (weights.sum(-1).abs() >= 0.05 * sizes).repeat_interleave(2, 2)


@pytest.mark.parametrize("denominator", ["exact", "compat", "none", "signed"])
@pytest.mark.parametrize("name", reference.NAMED)
def test_every_denominator(name, denominator):
    q, k, v = operands(dtype=torch.float64)
    mapped = arguments(name)
    options = dict(denominator=denominator, eps=0.4, scale=0.5)
    phi = [reference.features(name, x, mapped.get("omega")) for x in (q, k)]
    pairs = reference.allowed_pairs(q.shape[1], k.shape[1])
    given = mapped_linear_attention(q, k, v, **mapped, **options)
    assert error(given, reference.attend(*phi, v, pairs, **options)) < 1e-8


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["relu2", "poly2", "favor", "smoothed-rff"])
def test_16_bit_types_are_computed_in_float32(name, dtype):
    q, k, v = operands(dtype=dtype)
    mapped = arguments(name)
    given, state = mapped_linear_attention(q, k, v, **mapped, return_state=True)
    wanted = mapped_linear_attention(q.float(), k.float(), v.float(), **mapped)
    assert given.dtype == dtype and state.S.dtype == state.z.dtype == torch.float32
    torch.testing.assert_close(given, wanted.to(dtype))
    row, state = mapped_linear_attention_step(q[:, 0], k[:, 0], v[:, 0], **mapped)
    assert row.dtype == dtype and state.S.dtype == torch.float32


@pytest.mark.parametrize("sizes", [dict(B=0), dict(T=0), dict(T=0, S=4), dict(B=0, T=0)])
@pytest.mark.parametrize("stabilise", [False, True])
def test_empty_calls(sizes, stabilise):
    for name in ("favor",) if stabilise else ("relu", "poly2", "favor", "rff"):
        q, k, v = operands(**sizes)
        mapped = arguments(name, stabilise=stabilise)
        out, state = mapped_linear_attention(q, k, v, **mapped, return_state=True)
        assert out.shape == (*q.shape[:2], *v.shape[2:])
        assert state.S.isfinite().all() and state.z.isfinite().all()
        assert state.z.any() == (k.numel() > 0)


def test_strided_operands_change_nothing():
    for name in ("poly2", "favor"):
        q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in operands())
        mapped = arguments(name)
        wanted = mapped_linear_attention(*(x.contiguous() for x in (q, k, v)), **mapped)
        torch.testing.assert_close(mapped_linear_attention(q, k, v, **mapped), wanted)


# ---- States.

STATEFUL = [(name, False) for name in reference.NAMED]
STATEFUL += [("favor", True), ("favor-positive", True)]


def assert_same_state(given, wanted, tolerance):
    assert (given.extra is None) == (wanted.extra is None)
    for part, other in zip(given, wanted):
        if part is not None:
            torch.testing.assert_close(part, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-9), (torch.float32, 2e-4)])
@pytest.mark.parametrize("name, stabilise", STATEFUL)
def test_prefill_prefill_and_steps_equal_the_whole(name, stabilise, dtype, tolerance):
    q, k, v = operands(dtype=dtype)
    if name in ("identity", "rff"):  # no denominators that nearly cancel
        q, k = q.abs() / 4 + 0.2, k.abs() / 4 + 0.2
    mapped = arguments(name, stabilise=stabilise)
    whole, last = mapped_linear_attention(q, k, v, **mapped, return_state=True)
    for a, b in ((0, 20), (16, 32), (5, 37), (0, 0)):
        rows, state = [], None
        for begin, end in ((0, a), (a, b)):
            part = (x[:, begin:end] for x in (q, k, v))
            out, state = mapped_linear_attention(
                *part, **mapped, initial_state=state, return_state=True
            )
            rows.append(out)
        for t in range(b, 37):
            out, state = mapped_linear_attention_step(
                q[:, t], k[:, t], v[:, t], state, **mapped
            )
            rows.append(out[:, None])
        assert error(torch.cat(rows, 1), whole.double()) < tolerance
        assert_same_state(state, last, tolerance)


@pytest.mark.parametrize("name, stabilise", STATEFUL)
def test_a_state_is_a_value(name, stabilise):
    """Steps and prefills from one state leave it as it is; zeros are the empty
    state; rows can be reordered."""
    q, k, v = operands(T=6)
    mapped = arguments(name, stabilise=stabilise)
    _, state = mapped_linear_attention(q, k, v, **mapped, return_state=True)
    before = [None if part is None else part.clone() for part in state]
    row = [x[:, 0] for x in (q, k, v)]
    first, _ = mapped_linear_attention_step(*row, state, **mapped)
    mapped_linear_attention(q, k, v, **mapped, initial_state=state)
    again, _ = mapped_linear_attention_step(*row, state, **mapped)
    assert torch.equal(first, again)
    for part, copy in zip(state, before):
        assert part is copy is None or torch.equal(part, copy)
    swapped = LinearState(*(None if part is None else part[[1, 0]] for part in state))
    other, _ = mapped_linear_attention_step(*(x[[1, 0]] for x in row), swapped, **mapped)
    assert torch.equal(other[[1, 0]], first)
    zeros = LinearState(*(None if part is None else torch.zeros_like(part) for part in state))
    for start in (zeros, None):
        given, _ = mapped_linear_attention_step(*row, start, **mapped)
        # A token alone reads itself, if relu leaves it a common feature.
        filled = (given != 0).any(-1)
        assert filled.all() or name in ("relu", "relu2", "grf")
        assert filled.any() and error(given[filled], v[:, 0][filled].double()) < 1e-4


@pytest.mark.parametrize("name, stabilise", STATEFUL)
def test_a_state_can_be_read_by_queries_alone(name, stabilise):
    """As cross attention does: no keys, the memory's state."""
    q, k, v = operands(T=9, S=13)
    mapped = arguments(name, stabilise=stabilise)
    wanted, state = mapped_linear_attention(
        q, k, v, **mapped, causal=False, return_state=True
    )
    given, after = mapped_linear_attention(
        q, k[:, :0], v[:, :0], **mapped, causal=False, initial_state=state, return_state=True
    )
    torch.testing.assert_close(given, wanted, rtol=1e-3, atol=1e-4)
    assert_same_state(after, state, 1e-6)


@pytest.mark.parametrize("name, stabilise", [("poly2", False), ("favor", True)])
def test_gradients_flow_through_the_state(name, stabilise):
    q, k, v = operands(dtype=torch.float64, T=12)
    mapped = arguments(name, stabilise=stabilise)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    whole = mapped_linear_attention(*leaves, **mapped)
    wanted = torch.autograd.grad(whole.sin().sum(), leaves)
    first, state = mapped_linear_attention(
        *(x[:, :7] for x in leaves), **mapped, return_state=True
    )
    rows = [first]
    for t in range(7, 12):
        row, state = mapped_linear_attention_step(*(x[:, t] for x in leaves), state, **mapped)
        rows.append(row[:, None])
    given = torch.autograd.grad(torch.cat(rows, 1).sin().sum(), leaves)
    for a, b in zip(given, wanted):
        torch.testing.assert_close(a, b)


# ---- The denominator: exactness, and the signed rule.


@pytest.mark.parametrize("size", [1.0, 15.0, 30.0])
@pytest.mark.parametrize("name", ["elu1", "relu", "relu2", "favor", "favor-positive", "grf"])
def test_a_constant_value_comes_back(name, size):
    """Where all values are c the output is c, in the sequence and in steps, also
    for elu1 at -15 to -30, where elu(x) + 1 would cancel to nothing."""
    q, k, v = operands(T=70)
    sign = -1 if name == "elu1" else 1
    q, k = sign * size * q.abs(), sign * size * k.abs()
    if name.startswith("favor"):
        q, k = q / 15, k / 15
    v = torch.full_like(v, 0.75)
    mapped = arguments(name)
    out, state = mapped_linear_attention(q, k, v, **mapped, return_state=True)
    filled = out != 0
    assert filled.all() or name in ("relu", "relu2", "grf")  # which have empty rows
    torch.testing.assert_close(out[filled], torch.full_like(out[filled], 0.75), rtol=1e-6, atol=0)
    row, _ = mapped_linear_attention_step(q[:, 0], k[:, 0], v[:, 0], state, **mapped)
    filled = row != 0
    torch.testing.assert_close(row[filled], torch.full_like(row[filled], 0.75), rtol=1e-6, atol=0)


@pytest.mark.parametrize("x", [-5.0, -15.0, -17.5, -30.0, -60.0])
def test_elu1_far_below_zero(x):
    q, k, v = operands(T=40, K=4, dtype=torch.float64)
    q, k = x + 0.5 * q, x + 0.5 * k
    pairs = reference.allowed_pairs(40, 40)
    wanted = reference.attend(q.exp(), k.exp(), v, pairs)
    given = mapped_linear_attention(q.float(), k.float(), v.float(), feature_map="elu1")
    assert error(given, wanted) < 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_signed_denominator_is_kept_away_from_zero(dtype):
    """Two keys that cancel: token 1 has d = 0 exactly, token 2 a tiny one."""
    q = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 0.0], [-1.0, 1e-7]], dtype=dtype)
    k = torch.tensor([[2.0, 0.0], [-2.0, 0.0], [1e-7, 0.0], [0.0, 0.0], [0.0, 1.0]], dtype=dtype)
    v = torch.tensor([[1.0], [3.0], [5.0], [7.0], [9.0]], dtype=dtype)
    call = [x[None, :, None].requires_grad_() for x in (q, k, v)]
    out, state, clamped = mapped_linear_attention(
        *call, feature_map="identity", return_state=True, return_clamped=True
    )
    # Rows: d = 2 exact; 0 -> 1e-6 * 4; 1e-7 -> 1e-6 * 4.0000001; q = 0: nothing;
    # d = -1e-7 + 1e-7 -> + or -, in any case clamped.
    assert clamped.item() == 3
    numerators = torch.tensor([2.0, -4.0, -4 + 5e-7], dtype=dtype)
    wanted = numerators / torch.tensor([2.0, 4e-6, 4e-6], dtype=dtype)
    torch.testing.assert_close(out[0, :3, 0, 0], wanted, rtol=1e-5, atol=0)
    assert out[0, 3, 0, 0] == 0
    assert abs(out[0, 4].item()) > 1e5
    torch.testing.assert_close(state.extra, torch.tensor([[5 + 1e-7]], dtype=dtype))
    # A clamped divisor is a constant: d out_1 / d q_1 = S_1 / 4e-6.
    (grad,) = torch.autograd.grad(out[0, 1].sum(), call[0])
    torch.testing.assert_close(
        grad[0, 1, 0], torch.tensor([-4 / 4e-6, 0.0], dtype=dtype), rtol=1e-5, atol=0
    )
    rows, step_state = [], None
    for t in range(5):
        row, step_state = mapped_linear_attention_step(
            *(x[:, t] for x in call), step_state, feature_map="identity"
        )
        rows.append(row)
    torch.testing.assert_close(torch.stack(rows, 1)[:, :4], out[:, :4], rtol=1e-5, atol=0)
    assert_same_state(step_state, state, 1e-6)


def test_signed_denominator_of_a_negative_sum_keeps_its_sign():
    q, k = torch.tensor([[[[1.0]]]]), torch.tensor([[[[-1.0]]]])
    v = torch.tensor([[[[3.0]]]])
    assert mapped_linear_attention(q, k, v, feature_map="identity").item() == 3.0
    assert mapped_linear_attention(q, k, v, feature_map="identity", denominator="exact") == 0


def test_hits_are_rare_for_random_inputs_and_bound_the_output():
    q, k, v = operands(B=4, T=300, K=16)
    for name in ("rff", "poly2", "smoothed-rff"):
        out, clamped = mapped_linear_attention(
            q, k, v, **arguments(name, d_key=16), return_clamped=True
        )
        assert out.isfinite().all() and 0 <= clamped.item() < out[..., 0].numel() / 1000


def test_linear_attention_takes_the_signed_denominator():
    q, k, v = operands()
    wanted, last = mapped_linear_attention(q, k, v, feature_map="identity", return_state=True)
    given, state = ops.linear_attention(
        q, k, v, feature_map="identity", denominator="signed", return_state=True
    )
    assert torch.equal(given, wanted)
    assert_same_state(state, last, 0)
    options = dict(feature_map="identity", denominator="signed")
    row, _ = ops.linear_attention_step(q[:, 0], k[:, 0], v[:, 0], state, **options)
    other, _ = mapped_linear_attention_step(q[:, 0], k[:, 0], v[:, 0], state, **options)
    assert torch.equal(row, other)


# ---- Stabilised favor.


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("size", [0.1, 1.0, 3.0, 10.0, 30.0])
def test_stabilised_favor_matches_logarithms(size, positive):
    """Where plain favor under- or overflows, to the accuracy of the exponents."""
    name = "favor-positive" if positive else "favor"
    q, k, v = operands(T=41, K=32, dtype=torch.float64)
    q, k = size * q, size * k
    mapped = arguments(name, d_key=32, stabilise=True)
    pairs = reference.allowed_pairs(41, 41)
    wanted = reference.stabilised(q, k, v, mapped["omega"], pairs, positive)
    assert error(mapped_linear_attention(q, k, v, **mapped), wanted) < 1e-9
    given, state = mapped_linear_attention(
        q.float(), k.float(), v.float(), **mapped, return_state=True
    )
    # Exponents reach size^2 E / (2 sqrt(E)): an ulp of that is the error.
    assert error(given, wanted) < 1e-5 + 2e-6 * size * size
    # Nothing underflows: the largest key of each feature counts as 1.
    assert (state.z >= 1).all() and state.S.isfinite().all()
    one = torch.ones_like(v)
    ones = mapped_linear_attention(q.float(), k.float(), one.float(), **mapped)
    torch.testing.assert_close(ones, torch.ones_like(ones), rtol=1e-6, atol=0)


def test_plain_favor_fails_where_the_stabilised_one_does_not():
    q, k, v = operands(T=41, K=32)
    mapped = arguments("favor", d_key=32)
    plain = mapped_linear_attention(10 * q, 10 * k, v, **mapped)
    assert not plain.isfinite().all() or (plain == 0).any()
    given = mapped_linear_attention(10 * q, 10 * k, v, **mapped, stabilise=True)
    assert given.isfinite().all() and (given != 0).all()


@pytest.mark.parametrize("at", [1, 15, 16, 17, 40])
def test_stabilised_favor_ignores_later_keys_bit_for_bit(at):
    q, k, v = operands(T=50, K=16)
    mapped = arguments("favor", d_key=16, stabilise=True)
    before = mapped_linear_attention(3 * q, 3 * k, v, **mapped)
    for factor in (0.0, 1e-3, 50.0):
        changed = k.clone()
        changed[:, at:] *= factor
        after = mapped_linear_attention(3 * q, 3 * changed, v, **mapped)
        assert torch.equal(before[:, :at], after[:, :at])


@pytest.mark.parametrize("case", [c for c in CASES if c != "one-token"])
def test_stabilised_favor_takes_every_mask(case):
    options = dict(CASES[case])
    sizes = {n: options.pop(n) for n in ("B", "T", "S") if n in options}
    q, k, v = operands(**sizes, dtype=torch.float64)
    keep = None
    if options.pop("mask", False):
        options["key_mask"] = keep = torch.rand(k.shape[:2]) > 0.3
    if options.pop("lengths", False):
        options["key_lengths"] = torch.tensor([30, 0])
        keep = torch.arange(k.shape[1]) < options["key_lengths"][:, None]
    if "cu_seqlens" in options:
        options["cu_seqlens"] = torch.tensor(options["cu_seqlens"])
    pairs = reference.allowed_pairs(
        q.shape[1],
        k.shape[1],
        options.get("causal", True),
        options.get("causal_offset", 0),
        keep,
        options.get("cu_seqlens"),
    )
    mapped = arguments("favor", stabilise=True)
    q, k = 8 * q, 8 * k
    wanted = reference.stabilised(q, k, v, mapped["omega"], pairs)
    if keep is not None:
        hidden = ~keep[:, :, None, None]
        k, v = k.masked_fill(hidden, math.nan), v.masked_fill(hidden, math.nan)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    out, state = mapped_linear_attention(*leaves, **mapped, **options, return_state=True)
    assert out.shape == wanted.shape and (out.numel() == 0 or error(out, wanted) < 1e-9)
    assert all(part.isfinite().all() for part in state)
    for grad in gradients(out.sum(), leaves):
        assert grad.isfinite().all()


def test_stabilised_favor_needs_the_exact_denominator():
    q, k, v = operands()
    for denominator in ("compat", "none", "signed"):
        with pytest.raises(ValueError, match="denominator .with stabilise.: want exact"):
            mapped_linear_attention(
                q, k, v, **arguments("favor", stabilise=True), denominator=denominator
            )


# ---- The caller's own functions.


class Squared(torch.nn.Module):
    """A map with a parameter and a width of its own."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(D_KEY, 9)

    def forward(self, x):
        return self.linear(x).square()


def test_functions_and_modules():
    q, k, v = operands()
    module = Squared()
    out, state = mapped_linear_attention(q, k, v, feature_map=module, return_state=True)
    phi = [module(x).double() for x in (q, k)]
    pairs = reference.allowed_pairs(37, 37)
    assert error(out, reference.attend(*phi, v.double(), pairs, "signed")) < 1e-4
    assert state.S.shape == (2, 4, 9, 3) and state.extra.shape == (2, 2)
    out.sum().backward()
    assert module.linear.weight.grad.abs().sum() > 0
    first, state = mapped_linear_attention(
        *(x[:, :30] for x in (q, k, v)), feature_map=module, return_state=True
    )
    rows = [first]
    for t in range(30, 37):
        row, state = mapped_linear_attention_step(
            q[:, t], k[:, t], v[:, t], state, feature_map=module
        )
        rows.append(row[:, None])
    assert error(torch.cat(rows, 1), out.detach().double()) < 1e-4


def test_separate_functions_for_queries_and_keys():
    q, k, v = operands(dtype=torch.float64)
    pair = (torch.sigmoid, torch.exp)
    given = mapped_linear_attention(q, k, v, feature_map=pair, denominator="exact")
    pairs = reference.allowed_pairs(37, 37)
    assert error(given, reference.attend(q.sigmoid(), k.exp(), v, pairs)) < 1e-10


@pytest.mark.parametrize("name", ["elu1", "relu2", "poly2", "favor"])
def test_a_function_equals_the_named_map(name):
    q, k, v = operands()
    mapped = arguments(name)
    phi = {
        "elu1": lambda x: torch.nn.functional.elu(x) + 1,
        "relu2": lambda x: x.relu().square(),
        "poly2": ops.poly2,
        "favor": lambda x: ops.favor(x, mapped["omega"]),
    }[name]
    wanted = mapped_linear_attention(q, k, v, **mapped, denominator="exact")
    given = mapped_linear_attention(q, k, v, feature_map=phi, denominator="exact")
    torch.testing.assert_close(given, wanted, rtol=1e-4, atol=1e-5)


def test_grf_with_a_function():
    q, k, v = operands(dtype=torch.float64)
    mapped = arguments("grf", kernel_fn=torch.cos)
    out, clamped = mapped_linear_attention(q, k, v, **mapped, return_clamped=True)
    phi = [reference.project(x, mapped["omega"]).cos() for x in (q, k)]
    wanted = reference.attend(*phi, v, reference.allowed_pairs(37, 37), "signed")
    assert error(out, wanted) < 1e-8 and clamped.item() == 0


def test_functions_see_no_nan_of_masked_keys():
    q, k, v = operands()
    keep = torch.rand(2, 37) > 0.4
    k = k.masked_fill(~keep[:, :, None, None], math.nan).requires_grad_()
    out = mapped_linear_attention(q, k, v, feature_map=torch.exp, key_mask=keep)
    out.sum().backward()
    assert out.isfinite().all() and k.grad.isfinite().all()
    assert not k.grad[~keep].any()


# ---- The numerator alone.


@pytest.mark.parametrize("L, S", [(40, 40), (7, 40), (40, 7), (0, 3), (3, 0)])
def test_causal_dot_product(L, S):
    q, k = torch.randn(2, 3, L, 5), torch.randn(2, 3, S, 5)
    v = torch.randn(2, 3, S, 9)
    pairs = reference.allowed_pairs(L, S)[0]
    weights = torch.einsum("nhle,nhse->nhls", q.double(), k.double()) * pairs
    wanted = weights @ v.double()
    given = ops.causal_dot_product(q, k, v)
    torch.testing.assert_close(given.double(), wanted, rtol=1e-4, atol=1e-4)
    wide = ops.causal_dot_product(q.double(), k.double(), v.double())
    torch.testing.assert_close(wide, wanted)


def test_causal_dot_product_in_torch():
    shapes = [(1, 2, 5, 3), (1, 2, 5, 3), (1, 2, 5, 4)]
    leaves = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes]
    assert gradcheck(ops.causal_dot_product, leaves)
    single = [x.detach().float().requires_grad_() for x in leaves]
    opcheck(OPS.causal_dot_product.default, single)
    grads = torch.autograd.grad(ops.causal_dot_product(*single).sin().sum(), single)
    wanted = torch.autograd.grad(ops.causal_dot_product(*leaves).sin().sum(), leaves)
    for a, b in zip(grads, wanted):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-5)


# ---- Inside torch.


@pytest.mark.parametrize(
    "name, options",
    [
        ("relu", {}),
        ("relu2", dict(denominator="compat", eps=0.1)),
        ("poly2", {}),
        ("favor", dict(causal=False)),
        ("favor", dict(stabilise=True)),
        ("smoothed-rff", dict(causal_offset=-2)),
        ("identity", dict(key_lengths=torch.tensor([3, 1]))),
    ],
)
def test_gradcheck(name, options):
    q, k, v = (x.requires_grad_() for x in operands(T=5, K=3, V=2, dtype=torch.float64))
    mapped = arguments(name, d_key=3, **options)
    if name == "identity":
        q, k = (x.detach().abs().requires_grad_() for x in (q, k))
    assert gradcheck(lambda q, k, v: mapped_linear_attention(q, k, v, **mapped), (q, k, v))


@pytest.mark.parametrize(
    "name, options",
    [
        ("relu", {}),
        ("poly2", dict(return_state=True, causal_offset=2)),
        ("favor", dict(return_state=True, causal=False)),
        ("favor", dict(stabilise=True, return_state=True)),
        ("smoothed-rff", {}),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_opcheck(name, options, dtype):
    q, k, v = (x.requires_grad_() for x in operands(T=7, dtype=dtype))
    mapped = arguments(name, **options)
    opcheck(OPS.mapped_linear_attention.default, (q, k, v), mapped)
    row = [x.detach()[:, 0].requires_grad_() for x in (q, k, v)]
    for option in ("causal", "causal_offset", "return_state"):
        mapped.pop(option, None)
    opcheck(OPS.mapped_linear_attention_step.default, row, mapped)


@pytest.mark.parametrize("name, stabilise", [("relu2", False), ("poly2", False), ("favor", True)])
def test_compiles_without_graph_breaks(name, stabilise):
    mapped = arguments(name, stabilise=stabilise)

    def layer(q, k, v):
        out, state = mapped_linear_attention(q, k, v, **mapped, return_state=True)
        row, _ = mapped_linear_attention_step(q[:, 0], k[:, 0], v[:, 0], state, **mapped)
        return out, row

    call = operands(T=9)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for given, wanted in zip(compiled(*call), layer(*call)):
        torch.testing.assert_close(given, wanted)


# ---- Errors.

Q, K, V = torch.zeros(2, 4, 2, 5), torch.zeros(2, 4, 2, 5), torch.zeros(2, 4, 2, 3)
W = torch.zeros(5, 3)


def call(**options):
    return mapped_linear_attention(
        options.pop("queries", Q), options.pop("keys", K), options.pop("values", V), **options
    )


S_OF = lambda C: (torch.zeros(2, 2, C, 3), torch.zeros(2, 2, C))  # noqa: E731
ERRORS = [
    (ValueError, lambda: call(feature_map="elu"), "feature_map: want one of elu1, identity, relu"),
    (ValueError, lambda: call(feature_map="favor"), "omega: want [d_key, n_freq], got none"),
    (ValueError, lambda: call(feature_map="rff", omega=W.T), "rff: omega: want [5, n_freq]"),
    (ValueError, lambda: call(omega=W), "omega: want none, as the map draws no directions"),
    (ValueError, lambda: call(softmax_temp=1.0), "elu1: softmax_temp: want none, as the map has"),
    (
        ValueError,
        lambda: call(feature_map="rff", omega=W, stabilise=True),
        "stabilise: want favor or favor-positive, whose features are exponentials, got rff",
    ),
    (ValueError, lambda: call(feature_map=torch.exp, omega=W), "omega: want None with a function"),
    (
        ValueError,
        lambda: call(feature_map=torch.exp, stabilise=True),
        "stabilise: want False with a function, got True",
    ),
    (
        ValueError,
        lambda: call(feature_map=lambda x: x.sum(-1)),
        "feature_map: want phi(queries) of shape [2, 4, 2, C], got [2, 4, 2]",
    ),
    (TypeError, lambda: call(feature_map=3), "feature_map: want a name, a function or a pair"),
    (TypeError, lambda: call(feature_map=(torch.exp, 1)), "feature_map: want a name, a function"),
    (ValueError, lambda: call(denominator="plain"), "denominator: want one of 'exact', 'compat',"),
    (ValueError, lambda: call(keys=K[:, :, :1]), "keys: want [2, 4, 2, 5]"),
    (ValueError, lambda: call(key_mask=torch.ones(2, 3).bool()), "key_mask: want [2, 4], got"),
    (
        ValueError,
        lambda: call(feature_map="poly2", initial_state=S_OF(21)),
        "state.extra: want [2, 2], got none",
    ),
    (
        ValueError,
        lambda: call(initial_state=(*S_OF(5), torch.zeros(2, 2))),
        "state.extra: want none, got a tensor",
    ),
    (
        ValueError,
        lambda: call(feature_map="poly2", initial_state=(*S_OF(5), torch.zeros(2, 2))),
        "initial_S: want [2, 2, 21, 4], got [2, 2, 5, 4]",
    ),
    (
        ValueError,
        lambda: call(
            feature_map="favor",
            omega=W,
            stabilise=True,
            initial_state=(*S_OF(6), torch.zeros(2, 2)),
        ),
        "state.extra: want [2, 2, 6], got [2, 2]",
    ),
    (
        TypeError,
        lambda: call(initial_state=torch.zeros(3)),
        "initial_state: want None, a LinearState or a pair",
    ),
    (
        ValueError,
        lambda: ops.causal_dot_product(*(x.transpose(1, 2) for x in (Q, K[:, :, :1], V))),
        "causal_dot_product: keys: want [2, 2, 4, 5], got [2, 1, 4, 5]",
    ),
]


@pytest.mark.parametrize("kind, action, text", ERRORS, ids=[t for _, _, t in ERRORS])
def test_errors(kind, action, text):
    with pytest.raises(kind, match=re.escape(text)):
        action()
