"""Gradients of gradients: which operators have them, in which dtypes, and that the
others say so by an error which names the operator, and in their docstrings."""

import pytest
import torch

from tarn import causal_product, ops
from tarn.ops import (
    affine,
    aft_full_attention,
    aft_simple_attention,
    causal_improved_clustered_attention,
    clustered_attention,
    exact_topk_attention,
    feed_forward,
    full_attention,
    improved_clustered_attention,
    linear_attention,
    linear_attention_packed,
    linear_attention_step,
    local_attention,
    logistic_mixture_loss,
    mapped_linear_attention,
    mapped_linear_attention_step,
    reformer_attention,
    residual_norm,
    rms_norm,
    swiglu_feed_forward,
)

# What an error calls the operator whose gradient has no gradient.
LINEAR, SOFTMAX = "linear_attention", "softmax_attention_backward"
CLUSTERED = "clustered_attention_backward"


def first(result):
    return result[0] if isinstance(result, tuple) else result


# operator -> (its name in errors, whether float64 has second order, call).
# The call gets x [2, 6, 2, 4].
CASES = {
    linear_attention: (LINEAR, True, lambda x: linear_attention(x, x, x)),
    linear_attention_step: (LINEAR, True, lambda x: linear_attention_step(*[x[:, 0]] * 3)),
    mapped_linear_attention: (
        LINEAR,
        True,
        lambda x: mapped_linear_attention(x, x, x, feature_map="poly2"),
    ),
    mapped_linear_attention_step: (
        LINEAR,
        True,
        lambda x: mapped_linear_attention_step(*[x[:, 0]] * 3, feature_map="poly2"),
    ),
    linear_attention_packed: (
        "linear_attention_packed_backward",
        True,
        lambda x: linear_attention_packed(x.repeat(1, 1, 1, 3).flatten(2), 2, 4),
    ),
    ops.causal_dot_product: (LINEAR, True, lambda x: ops.causal_dot_product(x, x, x)),
    causal_product.causal_dot_product: (
        LINEAR,
        True,
        lambda x: causal_product.causal_dot_product(x, x, x),
    ),
    full_attention: (SOFTMAX, True, lambda x: full_attention(x, x, x)),
    local_attention: (SOFTMAX, True, lambda x: local_attention(x, x, x, local_context=3)),
    affine: ("affine_backward", True, lambda x: affine(x, x[0, :4, 0], x[0, :4, 1, 0])),
    feed_forward: (
        "feed_forward_backward",
        True,
        lambda x: feed_forward(x, x[0, :4, 0], x[0, :4, 1, 0], x[1, :4, 0], activation="gelu"),
    ),
    residual_norm: (
        "residual_norm_backward",
        True,
        lambda x: residual_norm(x, 2 * x, None, x[0, :4, 0, 0], x[0, :4, 1, 0]),
    ),
    rms_norm: ("residual_norm_backward", True, lambda x: rms_norm(x, x[0, :4, 0, 0])),
    swiglu_feed_forward: (
        "swiglu_feed_forward_backward",
        True,
        lambda x: swiglu_feed_forward(x, x[0, :4, 0], x[1, :4, 0], x[0, :4, 1]),
    ),
    logistic_mixture_loss: (
        "logistic_mixture_loss_backward",
        True,
        lambda x: logistic_mixture_loss(x[..., :3], torch.arange(24).view(2, 6, 2)),
    ),
    clustered_attention: (
        CLUSTERED,
        False,
        lambda x: clustered_attention(x, x, x, clusters=2),
    ),
    improved_clustered_attention: (
        CLUSTERED,
        False,
        lambda x: improved_clustered_attention(x, x, x, clusters=2, topk=2),
    ),
    causal_improved_clustered_attention: (
        CLUSTERED,
        False,
        lambda x: causal_improved_clustered_attention(x, x, x, clusters=2, topk=2),
    ),
    reformer_attention: (
        "reformer_attention_backward",
        False,
        lambda x: reformer_attention(x, x, chunk_size=2, bits=3, rounds=2),
    ),
    aft_simple_attention: ("aft_simple_backward", False, lambda x: aft_simple_attention(x, x, x)),
    aft_full_attention: (
        "aft_full_backward",
        False,
        lambda x: aft_full_attention(x, x, x, x[0, :, 0, :1] * x[1, :, 0, 0]),
    ),
}
IDS = [f"{operator.__module__.split('.')[1]}.{operator.__name__}" for operator in CASES]


def second_order(call, dtype):
    x = torch.randn(2, 6, 2, 4, dtype=dtype, requires_grad=True)
    (slope,) = torch.autograd.grad(first(call(x)).square().sum(), x, create_graph=True)
    return torch.autograd.grad(slope.square().sum(), x)[0]


@pytest.mark.parametrize("operator", CASES, ids=IDS)
def test_float32_says_which_operator_it_is(operator):
    name, _, call = CASES[operator]
    with pytest.raises(RuntimeError, match=name):
        second_order(call, torch.float32)


@pytest.mark.parametrize("operator", CASES, ids=IDS)
def test_float64_has_it_where_there_is_a_composed_form(operator):
    name, composed, call = CASES[operator]
    if not composed:
        with pytest.raises(RuntimeError, match=name):
            second_order(call, torch.float64)
        return
    x = torch.randn(2, 6, 2, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: first(call(x)), (x,))


@pytest.mark.parametrize("operator", CASES, ids=IDS)
def test_the_docstring_says_so(operator):
    text = " ".join(operator.__doc__.split())
    _, composed, _ = CASES[operator]
    if composed:
        assert "second" in text and "RuntimeError" in text and "float64" in text
    else:
        assert "ifferentiable once" in text


def test_others_have_any_order():
    x = torch.randn(2, 6, 2, 4, requires_grad=True)
    omega = ops.draw_omega(4, 3, orthogonal=True, seed=1)
    for call in (
        lambda x: exact_topk_attention(x, x, x, topk=2),
        lambda x: mapped_linear_attention(
            x, x, x, feature_map="favor", omega=omega, stabilise=True
        ),
        lambda x: ops.favor(x, omega),
        lambda x: ops.rff(x, omega),
        lambda x: ops.smoothed_rff(x, omega),
        lambda x: ops.grf(x, omega),
        lambda x: ops.poly2(x),
    ):
        assert second_order(call, torch.float32).isfinite().all()
    everything = {*CASES} - {causal_product.causal_dot_product}
    named = {exact_topk_attention, ops.favor, ops.rff, ops.smoothed_rff, ops.grf, ops.poly2}
    without = {"AftState", "LinearState", "draw_omega", "draw_seed", "dropout_scales"}
    without |= {"feature_frequencies", "feature_width"}
    assert {getattr(ops, name) for name in {*ops.__all__} - without} == everything | named
