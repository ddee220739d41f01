"""Stabilised favor: exponents of any size, every mask, no look ahead."""

import math

import feature_map_reference as reference
import pytest
import torch
from mapped_attention_cases import CASES, arguments, error, gradients, operands

from tarn.ops import mapped_linear_attention


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("size", [0.1, 1.0, 3.0, 10.0, 30.0])
def test_stabilised_favor_matches_logarithms(size, positive):
    """They agree to the accuracy of the exponents where plain favor under- or overflows."""
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
