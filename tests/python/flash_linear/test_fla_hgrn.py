"""tarn.fla's functions of HGRN against their recurrence in float64."""

import pytest
import torch
from test_fla_functions import BOUND, GRADIENT, error

from tarn import fla

STARTS = torch.tensor([0, 7, 7, 40])


def draw(batch, tokens, dtype=torch.float32, states=None):
    torch.manual_seed(tokens)
    x = torch.randn(batch, tokens, 11).to(dtype)
    g = torch.nn.functional.logsigmoid(torch.randn(batch, tokens, 11)).to(dtype)
    return x, g, torch.randn(states or batch, 11)


def reference(x, g, state):
    rows = []
    for t in range(x.shape[1]):
        state = g[:, t].exp() * state + x[:, t]
        rows.append(state)
    return (torch.stack(rows, 1) if rows else torch.zeros_like(x)), state


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("tokens", [0, 1, 17, 70])
@pytest.mark.parametrize("name", ["chunk_hgrn", "fused_recurrent_hgrn"])
def test_values_and_states(name, tokens, dtype):
    x, g, state = draw(2, tokens, dtype)
    out, last = getattr(fla, name)(x, g, state, True)
    o, h = reference(x.double(), g.double(), state.double())
    assert out.dtype == dtype and error(out, o) <= BOUND[dtype]
    assert last.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert error(last, h) <= min(BOUND[dtype], 2e-6)
    out, nothing = getattr(fla, name)(x, g)
    assert nothing is None
    assert error(out, reference(x.double(), g.double(), torch.zeros(2, 11))[0]) <= BOUND[dtype]


@pytest.mark.parametrize("name", ["chunk_hgrn", "fused_recurrent_hgrn"])
def test_gradients_reach_every_tensor(name):
    ours = [one.requires_grad_() for one in draw(2, 40)]
    theirs = [one.detach().double().requires_grad_() for one in ours]

    def gradients(pair, of):
        loss = pair[0].double().square().sum() + pair[1].double().sin().sum()
        return torch.autograd.grad(loss, of)

    for one, other in zip(
        gradients(getattr(fla, name)(*ours, True), ours),
        gradients(reference(*theirs), theirs),
        strict=True,
    ):
        assert error(one, other) <= GRADIENT


def test_packed_sequences():
    x, g, state = draw(1, 40, states=3)
    out, last = fla.fused_recurrent_hgrn(x, g, state, True, STARTS)
    for n, (begin, end) in enumerate(zip(STARTS[:-1], STARTS[1:], strict=True)):
        o, h = reference(*(one[:, begin:end].double() for one in (x, g)), state[n : n + 1].double())
        assert error(last[n : n + 1], h) <= 2e-6
        assert begin == end or error(out[:, begin:end], o) <= 2e-6


def test_a_prefill_and_its_steps_have_the_same_bits():
    x, g, _ = draw(2, 40)
    whole, last = fla.chunk_hgrn(x, g, output_final_state=True)
    out, state = fla.chunk_hgrn(x[:, :30], g[:, :30], output_final_state=True)
    rows = [out]
    for t in range(30, 40):
        out, state = fla.fused_recurrent_hgrn(x[:, t : t + 1], g[:, t : t + 1], state, True)
        rows.append(out)
    assert torch.equal(torch.cat(rows, 1), whole) and torch.equal(state, last)


def test_refusals():
    x, g, state = draw(2, 9)
    with pytest.raises(ValueError, match=r"chunk_hgrn: g: want \[2, 9, 11\]"):
        fla.chunk_hgrn(x, g[:, 1:])
    with pytest.raises(ValueError, match="x: want .batch, seq_len, channels"):
        fla.chunk_hgrn(x[0], g[0])
    with pytest.raises(ValueError, match=r"initial_state: want \[2, 11\]"):
        fla.fused_recurrent_hgrn(x, g, state[:1])
    with pytest.raises(ValueError, match="want a batch of 1, got 2"):
        fla.fused_recurrent_hgrn(x, g, cu_seqlens=STARTS)
