"""Denominators of linear attention: whether a constant value is reproduced, sums
near zero, the signed form."""

import feature_map_reference as reference
import pytest
import torch
from mapped_attention_cases import arguments, assert_same_state, error, operands

from tarn import ops
from tarn.ops import mapped_linear_attention, mapped_linear_attention_step


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


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
    # d = -1e-7 + 1e-7 -> + or -, clamped in either case.
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
