"""Gradients of gradients: which operators have them; the other one raises an error that
names it, and says so in its docstring."""

import pytest
import torch
from operator_cases import CASES, ONCE, first

from tarn import causal_product, ops


def second_order(call, x):
    (slope,) = torch.autograd.grad(first(call(x)).square().sum(), x, create_graph=True)
    return torch.autograd.grad(slope.square().sum(), x)[0]


def random_x(dtype):
    torch.manual_seed(0)
    return torch.randn(2, 6, 2, 4, dtype=dtype, requires_grad=True)


@pytest.mark.parametrize("name", sorted(CASES.keys() - ONCE))
def test_float64_has_it(name):
    _, call = CASES[name]
    assert torch.autograd.gradgradcheck(lambda x: first(call(x)), (random_x(torch.float64),))


@pytest.mark.parametrize("name", sorted(CASES.keys() - ONCE))
def test_float32_has_it_near_float64s(name):
    _, call = CASES[name]
    given = random_x(torch.float32)
    wanted = second_order(call, given.detach().double().requires_grad_())
    # float32 through two derivatives: quotients and exponentials lose some digits.
    near = 1e-4 * (1 + wanted.abs().max())
    assert torch.allclose(second_order(call, given).double(), wanted, rtol=1e-3, atol=near)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", sorted(ONCE))
def test_the_other_says_which_operator_it_is(name, dtype):
    operator, call = CASES[name]
    with pytest.raises(RuntimeError, match=name.replace(" ", "_") + "_backward"):
        second_order(call, random_x(dtype))
    text = " ".join(operator.__doc__.split())
    assert "ifferentiable once" in text and "RuntimeError" in text


def test_docstrings_say_any_order():
    for name in CASES.keys() - ONCE:
        operator, _ = CASES[name]
        assert "to any order" in " ".join(operator.__doc__.split()), operator


def test_others_have_any_order():
    x = torch.randn(2, 6, 2, 4, requires_grad=True)
    omega = ops.draw_omega(4, 3, orthogonal=True, seed=1)
    for call in (
        lambda x: ops.mapped_linear_attention(
            x, x, x, feature_map="favor", omega=omega, stabilise=True
        ),
        lambda x: ops.favor(x, omega),
        lambda x: ops.rff(x, omega),
        lambda x: ops.smoothed_rff(x, omega),
        lambda x: ops.grf(x, omega),
        lambda x: ops.poly2(x),
    ):
        assert second_order(call, x).isfinite().all()


def test_every_operator_has_a_case():
    named = {ops.favor, ops.rff, ops.smoothed_rff, ops.grf, ops.poly2}
    without = {"AftState", "LinearState", "composed_forms", "draw_omega", "draw_seed"}
    without |= {"draw_seeds", "dropout_scales", "feature_frequencies", "feature_width"}
    without |= {"lightning_gates", "retention_gates"}
    everything = {operator for operator, _ in CASES.values()}
    everything -= {causal_product.causal_dot_product}
    assert {getattr(ops, name) for name in {*ops.__all__} - without} == everything | named
