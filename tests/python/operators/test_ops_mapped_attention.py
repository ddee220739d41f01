"""Linear attention with any feature map: against the definition in float64,
states, gradients, inside torch."""

import math

import feature_map_reference as reference
import pytest
import torch
from mapped_attention_cases import CASES, arguments, assert_same_state, error, gradients, operands
from torch.autograd import gradcheck
from torch.library import opcheck

from tarn.ops import LinearState, mapped_linear_attention, mapped_linear_attention_step

OPS = torch.ops.tarn


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


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
    # The row of a signed map may be a small difference of large terms: only rows
    # whose denominator is large enough are compared.
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
            out, state = mapped_linear_attention_step(q[:, t], k[:, t], v[:, t], state, **mapped)
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
    """This is what cross attention does: no keys, the memory's state."""
    q, k, v = operands(T=9, S=13)
    mapped = arguments(name, stabilise=stabilise)
    wanted, state = mapped_linear_attention(q, k, v, **mapped, causal=False, return_state=True)
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
    first, state = mapped_linear_attention(*(x[:, :7] for x in leaves), **mapped, return_state=True)
    rows = [first]
    for t in range(7, 12):
        row, state = mapped_linear_attention_step(*(x[:, t] for x in leaves), state, **mapped)
        rows.append(row[:, None])
    given = torch.autograd.grad(torch.cat(rows, 1).sin().sum(), leaves)
    for a, b in zip(given, wanted):
        torch.testing.assert_close(a, b)


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
