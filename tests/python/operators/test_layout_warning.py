"""One warning where operands look like [B, H, T, K], and none for calls that are right."""

import warnings

import pytest
import torch

import tarn
from tarn import _warnings, ops

HEADS_FIRST = (1, 4, 70, 8)  # of 4 heads and 70 tokens


@pytest.fixture(autouse=True)
def _nothing_said_yet(monkeypatch):
    monkeypatch.setattr(_warnings, "_warned", False)


def operands(*shape, count=3):
    return [torch.rand(*shape) + 0.1 for _ in range(count)]


def gates(shape):
    return -torch.rand(shape[:3])


CALLS = {
    "linear_attention": lambda *s: ops.linear_attention(*operands(*s)),
    "mapped": lambda *s: ops.mapped_linear_attention(*operands(*s), feature_map="poly2"),
    "full": lambda *s: ops.full_attention(*operands(*s)),
    "local": lambda *s: ops.local_attention(*operands(*s), local_context=4),
    "exact_topk": lambda *s: ops.exact_topk_attention(*operands(*s), topk=2),
    "clustered": lambda *s: ops.clustered_attention(*operands(*s), clusters=2),
    "reformer": lambda *s: ops.reformer_attention(*operands(*s, count=2)),
    "aft_simple": lambda *s: ops.aft_simple_attention(*operands(*s)),
    "decay": lambda *s: ops.decay_attention(*operands(*s), gates=gates(s)),
    "delta": lambda *s: ops.delta_attention(*operands(*s), betas=torch.rand(s[:3])),
    "masked": lambda *s: ops.linear_attention(
        *operands(*s), key_mask=torch.ones(s[:2], dtype=torch.bool)
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_heads_before_time_warn_once(name):
    with pytest.warns(
        tarn.LayoutWarning, match=r"want \[B, T, H, K\], got T = 4 .* H = 70"
    ) as said:
        CALLS[name](*HEADS_FIRST)
    assert len(said) == 1 and said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CALLS[name](*HEADS_FIRST)


# Any T for up to 64 heads, one token of any number of heads, as many tokens as heads, none.
RIGHT = ((1, 3, 64, 4), (1, 1, 80, 4), (1, 70, 70, 4), (1, 100, 4, 4), (1, 0, 80, 4))


@pytest.mark.parametrize("shape", RIGHT, ids=str)
@pytest.mark.parametrize("name", ("linear_attention", "mapped", "full", "decay"))
def test_what_may_be_right_does_not_warn(name, shape):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CALLS[name](*shape)


def test_steps_and_heads_first_functions_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ops.linear_attention_step(*operands(2, 80, 4))
        ops.causal_dot_product(*operands(1, 4, 80, 8))


def test_traces_are_left_alone():
    """No warning, and the number of tokens stays free."""
    compiled = torch.compile(
        ops.linear_attention, fullgraph=True, backend="aot_eager", dynamic=True
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", tarn.LayoutWarning)
        for length in (4, 5, 90):
            given = operands(1, length, 80, 8)
            twice = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in given]
            torch.testing.assert_close(compiled(*given), compiled(*twice))
