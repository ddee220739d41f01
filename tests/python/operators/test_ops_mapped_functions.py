"""Feature maps that are the caller's own functions or modules, and the causal
product of mapped features."""

import math

import feature_map_reference as reference
import pytest
import torch
from mapped_attention_cases import D_KEY, arguments, error, operands
from torch.autograd import gradcheck
from torch.library import opcheck

from tarn import ops
from tarn.ops import mapped_linear_attention, mapped_linear_attention_step

OPS = torch.ops.tarn


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


class Squared(torch.nn.Module):
    """A map with its own parameter and width."""

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
