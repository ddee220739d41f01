"""LightNet's functions against their recurrence in float64: values, states, gradients,
packed sequences, dtypes, refusals."""

import math

import pytest
import torch

from tarn import fla

HEADS, K, V = 2, 5, 3
BOUND = {torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float64: 1e-12}
FUNCTIONS = ("chunk_lightnet", "fused_recurrent_lightnet")


def loop(q, k, v, S=None, z=None, scale=K**-0.5):
    """Sums over the tokens so far and their quotient: T = exp(z) S. Returns o, S, z."""
    weights = k.new_zeros(q.shape[0], HEADS, K) if z is None else z.squeeze(1).exp()
    if S is None:
        S = v.new_zeros(q.shape[0], HEADS, K, V)
    # Before the first weight a state stays as it is.
    T = S * torch.where(weights > 0, weights, 1.0).unsqueeze(3)
    rows, total = [], weights
    for t in range(q.shape[1]):
        first = total == 0
        total = total + k[:, t].exp()
        T = torch.where(first.unsqueeze(3), T * total.unsqueeze(3), T)
        T = T + k[:, t].exp().unsqueeze(3) * v[:, t].unsqueeze(2)
        S = T / total.unsqueeze(3)
        rows.append(scale * torch.einsum("bhkv,bhk->bhv", S, q[:, t]))
    o = torch.stack(rows, 1) if rows else v
    return o, S, total.log().unsqueeze(1)


def draw(tokens, batch=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(*sizes, generator=generator, dtype=torch.float64)
        for sizes in (
            (batch, tokens, HEADS, K),
            (batch, tokens, HEADS, K),
            (batch, tokens, HEADS, V),
            (batch, HEADS, K, V),
            (batch, 1, HEADS, K),
        )
    ]


def error(ours, theirs):
    ours, theirs = ours.detach().double(), theirs.detach().double()
    assert ours.shape == theirs.shape
    return float((ours - theirs).norm() / max(float(theirs.norm()), 1e-30))


@pytest.mark.parametrize("given", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("tokens", [0, 1, 70])
@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_states(name, dtype, tokens, given):
    q, k, v, S, z = draw(tokens)
    q, k, v = (one.to(dtype) for one in (q, k, v))
    S, z = (
        one.to(torch.float64 if dtype == torch.float64 else torch.float32) if use else None
        for one, use in zip((S, z), given, strict=True)
    )
    function = getattr(fla, name)
    out, (last, sums) = function(q, k, v, initial_state=(S, z), output_final_state=True)
    o, *wanted = loop(*(None if one is None else one.double() for one in (q, k, v, S, z)))
    bound = 1e-12 if dtype == torch.float64 else 2e-6
    assert out.dtype == dtype and error(out, o) <= BOUND[dtype]
    assert error(last, wanted[0]) <= bound
    if tokens or given[1]:
        assert error(sums, wanted[1]) <= bound
    else:
        assert (sums == -math.inf).all()
    out, (nothing, _) = function(q, k, v, 0.3, (S, z))
    assert nothing is None
    assert (
        error(
            out,
            loop(*(None if one is None else one.double() for one in (q, k, v, S, z)), scale=0.3)[0],
        )
        <= BOUND[dtype]
    )
    turned, (values_first, _) = function(
        q,
        k,
        v,
        initial_state=(None if S is None else S.mT.contiguous(), z),
        output_final_state=True,
        state_v_first=True,
    )
    assert torch.equal(values_first, last.mT) and error(turned, o) <= BOUND[dtype]


def test_sequences_in_pieces():
    q, k, v, *_ = (one.float() for one in draw(50))
    whole, (S, z) = fla.chunk_lightnet(q, k, v, output_final_state=True)
    pieces, state = [], None
    for begin, end in ((0, 1), (1, 33), (33, 33), (33, 50)):
        out, state = fla.fused_recurrent_lightnet(
            q[:, begin:end],
            k[:, begin:end],
            v[:, begin:end],
            initial_state=state,
            output_final_state=True,
        )
        pieces.append(out)
    assert error(torch.cat(pieces, 1), whole) <= 2e-6
    assert error(state[0], S) <= 2e-6 and error(state[1], z) <= 2e-6


def test_packed_sequences():
    q, k, v, *_ = draw(26, batch=1)
    *_, S, z = draw(0, batch=3)
    bounds = [0, 7, 7, 26]
    out, last = fla.chunk_lightnet(
        q.float(),
        k.float(),
        v.float(),
        initial_state=(S.float(), z.float()),
        output_final_state=True,
        cu_seqlens=torch.tensor(bounds),
    )
    for i, (begin, end) in enumerate(zip(bounds[:-1], bounds[1:], strict=True)):
        o, *wanted = loop(*(one[:, begin:end] for one in (q, k, v)), S[i : i + 1], z[i : i + 1])
        assert all(
            error(one[i : i + 1], other) <= 2e-6 for one, other in zip(last, wanted, strict=True)
        )
        assert begin == end or error(out[:, begin:end], o) <= 2e-6


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_reach_every_tensor(name):
    theirs = [one.requires_grad_() for one in draw(70)]
    ours = [one.detach().float().requires_grad_() for one in theirs]
    out, last = getattr(fla, name)(*ours[:3], initial_state=ours[3:], output_final_state=True)
    o, *wanted = loop(*theirs)

    def gradients(out, last, of):
        loss = out.double().square().sum() + sum(one.double().sin().sum() for one in last)
        return torch.autograd.grad(loss, of)

    for one, other in zip(gradients(out, last, ours), gradients(o, wanted, theirs), strict=True):
        assert error(one, other) <= 1e-5


def test_gradients_of_gradients():
    tensors = [one.requires_grad_() for one in draw(4, batch=1)]
    assert torch.autograd.gradgradcheck(
        lambda q, k, v, S, z: fla.chunk_lightnet(q, k, v, initial_state=(S, z))[0], tensors
    )


def test_refusals():
    q, k, v, S, z = draw(6)
    for arguments, error_type, message in (
        ((q, k[:, 1:], v), ValueError, r"chunk_lightnet: k: want \[2, 6, 2, 5\]"),
        ((q[0], k, v), ValueError, "chunk_lightnet: q: want "),
        ((q, k, v[:, 1:]), ValueError, r"chunk_lightnet: v: want \[2, 6, 2, 3\]"),
        ((q, k, v, None, S), TypeError, "chunk_lightnet: initial_state: want a pair"),
        (
            (q, k, v, None, (z, None)),
            ValueError,
            r"chunk_lightnet: initial_state: want \[2, 2, 5, 3\]",
        ),
        ((q, k, v, None, (S, S)), ValueError, r"initial_state: want \[2, 1, 2, 5\]"),
    ):
        with pytest.raises(error_type, match=message):
            fla.chunk_lightnet(*arguments)
