"""pieces: one tensor cut along its last axis. Values and gradients are those of
torch's split; where the gradients are side by side nothing is copied."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.library import opcheck

from tarn import ops

PIECES = torch.ops.tarn.pieces.default
WIDTHS = [8, 8, 12]


def packed(batch=2, tokens=5, dtype=torch.float32):
    torch.manual_seed(1)
    return torch.randn(batch, tokens, sum(WIDTHS), dtype=dtype, requires_grad=True)


def heads(piece, count=4):
    return piece.unflatten(2, (count, -1))


@pytest.mark.parametrize("batch, tokens", [(2, 5), (1, 5), (3, 1), (1, 1), (0, 4), (2, 0)])
def test_equals_split(batch, tokens):
    x = packed(batch, tokens)
    weights = [torch.randn(batch, tokens, w) for w in WIDTHS]
    found = []
    for parts in (PIECES(x, WIDTHS), x.split(WIDTHS, dim=-1)):
        total = sum((part * weight).sum() for part, weight in zip(parts, weights))
        found.append(([part.detach() for part in parts], torch.autograd.grad(total, x)))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)


@pytest.mark.parametrize("used", [(0,), (1, 2), ()])
def test_pieces_without_a_gradient(used):
    x = packed()
    parts = PIECES(x, WIDTHS)
    if not used:
        assert torch.autograd.grad(parts[0].sum() * 0 + x.sum(), x)[0].eq(1).all()
        return
    (grad,) = torch.autograd.grad(sum(parts[i].sum() for i in used), x)
    for i, part in enumerate(grad.split(WIDTHS, dim=-1)):
        assert part.eq(float(i in used)).all()


def test_a_piece_changed_in_place():
    x = packed()
    parts = PIECES(x, WIDTHS)
    doubled = parts[1].mul_(2)
    (grad,) = torch.autograd.grad(doubled.sum() + parts[0].sum(), x)
    wanted = torch.tensor([1.0] * 8 + [2.0] * 8 + [0.0] * 12).expand(2, 5, 28)
    torch.testing.assert_close(grad, wanted)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_attention_on_pieces_gives_one_gradient(causal, masked):
    """The results are as on separate tensors, and the gradient is never joined by a copy."""
    x = packed(2, 37)
    mask = torch.rand(2, 37) < 0.8 if masked else None
    grads = []
    for parts in (PIECES(x, WIDTHS), [part.clone() for part in x.split(WIDTHS, dim=-1)]):
        q, k, v = map(heads, parts)
        out = ops.linear_attention(q, k, v, causal=causal, key_mask=mask)
        with torch.profiler.profile() as profile:
            grads.append(torch.autograd.grad(out.square().sum(), x)[0])
        grads.append({event.key for event in profile.key_averages()})
    torch.testing.assert_close(grads[0], grads[2], rtol=1e-6, atol=1e-6)
    assert "tarn::linear_attention_packed_backward" in grads[1]
    assert "aten::cat" not in grads[1]
    assert "aten::cat" in grads[3]


@pytest.mark.parametrize(
    "change",
    [
        lambda q, k, v: (k, q, v),  # another order
        lambda q, k, v: (q, k, v[:, :, :, :2]),  # not the whole tensor
        lambda q, k, v: (q[:, 1:], k[:, 1:], v[:, 1:]),
        lambda q, k, v: (q, q, v),
    ],
)
def test_pieces_that_lie_otherwise(change):
    x = packed(2, 9)
    found = []
    for parts in (PIECES(x, WIDTHS), [part.clone() for part in x.split(WIDTHS, dim=-1)]):
        out = ops.linear_attention(*change(*map(heads, parts)))
        found.append(torch.autograd.grad(out.square().sum(), x)[0])
    torch.testing.assert_close(found[0], found[1], rtol=1e-6, atol=1e-6)


def test_states_take_the_long_way():
    x = packed(2, 9)
    found = []
    for parts in (PIECES(x, WIDTHS), [part.clone() for part in x.split(WIDTHS, dim=-1)]):
        out, state = ops.linear_attention(*map(heads, parts), return_state=True)
        total = out.square().sum() + state.S.sum()
        found.append(torch.autograd.grad(total, x)[0])
    torch.testing.assert_close(found[0], found[1], rtol=1e-6, atol=1e-6)


def test_gradients_by_differences_and_of_gradients():
    x = packed(2, 2, torch.float64)
    assert gradcheck(lambda x: PIECES(x, WIDTHS), x)
    assert gradgradcheck(lambda x: [p.square() for p in PIECES(x, WIDTHS)], x)
    x = packed(1, 3)
    (first,) = torch.autograd.grad(
        sum(p.pow(3).sum() for p in PIECES(x, WIDTHS)), x, create_graph=True
    )
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second, 6 * x.detach())


def test_gradients_of_gradients_that_lie_side_by_side():
    """The gradients of torch.cat are pieces of one tensor; each has its own graph."""
    x = packed(1, 3)
    whole = torch.cat(PIECES(x, WIDTHS), dim=-1)
    (first,) = torch.autograd.grad(whole.pow(3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second, 6 * x.detach())


@pytest.mark.filterwarnings("ignore")
def test_inside_torch():
    opcheck(PIECES, (packed().detach(), WIDTHS), test_utils=("test_schema", "test_faketensor"))

    def total(x):
        return sum((part * (i + 1)).square().sum() for i, part in enumerate(PIECES(x, WIDTHS)))

    x = packed()
    compiled = torch.compile(total, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(
        torch.autograd.grad(compiled(x), x), torch.autograd.grad(total(x), x)
    )
    (wanted,) = torch.autograd.grad(total(x), x)
    torch.testing.assert_close(torch.func.grad(total)(x.detach()), wanted)


def test_refuses():
    with pytest.raises(ValueError, match="pieces: packed: want"):
        PIECES(packed(), [8, 8])
