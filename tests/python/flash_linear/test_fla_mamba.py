"""mamba_ssm's functions in tarn.fla against their recurrence in float64."""

import math

import pytest
import torch

from tarn import fla, ops


def error(ours, theirs):
    ours, theirs = ours.detach().double(), theirs.detach().double()
    assert ours.shape == theirs.shape
    return float((ours - theirs).norm() / max(float(theirs.norm()), 1e-30))


def floats(x):
    return {name: one.float() for name, one in x.items()}


def mamba_problem(tokens=11, groups=2):
    draws = torch.Generator().manual_seed(3)

    def normal(*sizes):
        return torch.randn(*sizes, generator=draws, dtype=torch.float64)

    return dict(
        x=normal(2, tokens, 4, 3),
        dt=normal(2, tokens, 4),
        A=-normal(4).exp(),
        B=normal(2, tokens, groups, 5),
        C=normal(2, tokens, groups, 5),
        D=normal(4),
        z=normal(2, tokens, 4, 3),
        dt_bias=normal(4),
        initial_states=normal(2, 4, 3, 5),
    )


def scan(x, dt, A, B, C, D, z, dt_bias, initial_states, limit=(0.0, math.inf), seq_idx=None):
    steps = torch.log1p((dt + dt_bias).exp()).clamp(*limit)
    S, rows = initial_states, []
    for t in range(x.shape[1]):
        b, c = (one[:, t].repeat_interleave(x.shape[2] // B.shape[2], 1) for one in (B, C))
        before = 0 if seq_idx is None or t == 0 else seq_idx[:, t - 1]
        if seq_idx is not None:
            S = S * (seq_idx[:, t] == before).double().view(-1, 1, 1, 1)
        S = (steps[:, t] * A).exp()[..., None, None] * S + torch.einsum(
            "bhp,bhn->bhpn", steps[:, t].unsqueeze(-1) * x[:, t], b
        )
        D_ = D if D.dim() == 2 else D.unsqueeze(-1)
        out = torch.einsum("bhpn,bhn->bhp", S, c) + D_ * x[:, t]
        rows.append(out * z[:, t] * torch.sigmoid(z[:, t]))
    return torch.stack(rows, 1), S


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"limit": (0.2, 0.9)},
        {"seq_idx": torch.tensor([[0] * 4 + [1] * 2 + [2] * 5, [3] * 11])},
    ],
    ids=["plain", "limit", "numbered"],
)
def test_mamba_scan(options):
    y = mamba_problem()
    given = dict(dt_softplus=True, return_final_states=True)
    given |= {"dt_limit" if n == "limit" else n: one for n, one in options.items()}
    x = {n: one.float().requires_grad_() for n, one in y.items()}
    y = {n: one.requires_grad_() for n, one in y.items()}
    out, last = fla.mamba_chunk_scan_combined(**x, chunk_size=64, **given)
    o, S = scan(**y, **options)
    assert error(out, o) <= 2e-6 and error(last, S) <= 2e-6
    ours = torch.autograd.grad(out.double().square().sum() + last.double().sum(), list(x.values()))
    theirs = torch.autograd.grad(o.square().sum() + S.sum(), list(y.values()))
    for name, one, other in zip(x, ours, theirs, strict=True):
        assert error(one, other) <= 1e-5, name
    alone = fla.mamba_chunk_scan_combined(
        **x, chunk_size=64, **given | {"return_final_states": False}
    )
    assert torch.equal(alone, out)


def test_mamba_scan_of_a_wide_d_and_of_16_bits():
    y = mamba_problem() | {"D": torch.randn(4, 3, dtype=torch.float64)}
    x = {n: one.bfloat16() if n in "xBCz" else one.float() for n, one in y.items()}
    out = fla.mamba_chunk_scan_combined(**x, chunk_size=16, dt_softplus=True)
    o, _ = scan(**{n: one.double() for n, one in x.items()})
    assert out.dtype == torch.bfloat16 and error(out, o) <= 2e-2


def test_mamba_states_at_the_ends_of_sequences():
    y = {n: one[:1] if one.dim() > 2 else one for n, one in mamba_problem().items()}
    y["initial_states"] = torch.zeros_like(y["initial_states"])
    numbers = torch.tensor([[0] * 4 + [1] * 7])
    out, last, ends = fla.mamba_chunk_scan_combined(
        **floats(y),
        chunk_size=64,
        dt_softplus=True,
        seq_idx=numbers,
        cu_seqlens=torch.tensor([0, 4, 11]),
        return_final_states=True,
        return_varlen_states=True,
    )
    o, S = scan(**y, seq_idx=numbers)
    assert error(out, o) <= 2e-6 and error(last, S) <= 2e-6 and error(ends[1:], S) <= 2e-6
    first = {n: one[:, :4] if n in ("x", "dt", "B", "C", "z") else one for n, one in y.items()}
    assert error(ends[:1], scan(**first)[1]) <= 2e-6
    with pytest.raises(ValueError, match="cu_seqlens: want a tensor and a batch of 1"):
        fla.mamba_chunk_scan_combined(**floats(y), chunk_size=64, return_varlen_states=True)


@pytest.mark.parametrize("heads", [True, False])
def test_state_updates_are_the_scan_token_by_token(heads):
    y = mamba_problem(tokens=4, groups=1)
    if not heads:  # Mamba-1's shapes: what the first head has is all there is
        y = {n: one[..., :1] if n in ("A", "D", "dt_bias", "dt") else one for n, one in y.items()}
        y |= {n: y[n][:, :, :1] for n in ("x", "z")} | {
            "initial_states": y["initial_states"][:, :1]
        }
    n_heads = y["x"].shape[2]
    x = floats(y)
    state = x["initial_states"].clone()
    state = state if heads else state.squeeze(1)
    wide = {n: x[n].unsqueeze(-1).expand(n_heads, 3) for n in ("D", "dt_bias")}
    rows = []
    for t in range(4):
        token = {n: x[n][:, t] for n in ("x", "B", "C", "z")}
        token["dt"] = x["dt"][:, t].unsqueeze(-1).expand_as(token["x"])
        token |= {"A": x["A"].view(-1, 1, 1).expand(n_heads, 3, 5)} | wide
        if not heads:
            token = {
                n: one.squeeze(0) if n in ("A", "D", "dt_bias") else one.squeeze(1)
                for n, one in token.items()
            }
        rows.append(fla.selective_state_update(state, dt_softplus=True, **token))
    o, S = scan(**y)
    assert error(torch.stack(rows, 1).view_as(o), o) <= 2e-6 and error(state.view_as(S), S) <= 2e-6


def test_a_state_update_of_chosen_rows():
    pool = torch.randn(5, 2, 3, 4)
    before = pool.clone()
    x, dt, B = torch.randn(2, 2, 3), torch.rand(2, 2, 3), torch.randn(2, 1, 4)
    A = -torch.rand(2, 3, 4)
    rows = torch.tensor([3, 1])
    alone = pool[rows]
    wanted = fla.selective_state_update(alone, x, dt, A, B, B)
    out = fla.selective_state_update(pool, x, dt, A, B, B, state_batch_indices=rows)
    assert torch.equal(out, wanted) and torch.equal(pool[rows], alone)
    rest = [0, 2, 4]
    assert torch.equal(pool[rest], before[rest])


def expanded(heads, width, states, rows, dtype=torch.float32):
    """Arguments whose A, dt, D and dt_bias are one number a head, as Mamba-2 has them."""
    torch.manual_seed(heads + rows)
    head = {
        "A": (-torch.rand(heads))[:, None, None].expand(heads, width, states),
        "D": torch.randn(heads)[:, None].expand(heads, width),
        "dt_bias": torch.randn(heads)[:, None].expand(heads, width),
    }
    row = {
        "x": torch.randn(rows, heads, width).to(dtype),
        "dt": torch.randn(rows, heads)[..., None].expand(rows, heads, width),
        "B": torch.randn(rows, 2, states).to(dtype),
        "C": torch.randn(rows, 2, states).to(dtype),
        "z": torch.randn(rows, heads, width).to(dtype),
    }
    return head | row


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "width", "states"), [(1, 1, 1), (3, 5, 7), (2, 64, 128)])
def test_one_number_a_head_takes_the_step(rows, width, states, dtype, autocast, monkeypatch):
    """The same as with numbers that are written out, and as float64."""
    x = expanded(4, width, states, rows, dtype)
    before = torch.randn(rows, 4, width, states)
    steps = []
    step = ops.decay_attention
    monkeypatch.setattr(ops, "decay_attention", lambda *a, **k: steps.append(1) or step(*a, **k))
    found = []
    for kind in ("expanded", "written out", "float64"):
        state = before.double() if kind == "float64" else before.clone()
        given = {
            name: one.double()
            if kind == "float64"
            else one
            if kind == "expanded"
            else one.contiguous()
            for name, one in x.items()
        }
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            out = fla.selective_state_update(state, dt_softplus=True, **given)
        found.append((out, state))
    assert len(steps) == (3 if width == states == 1 else 1)
    (out, state), *others = found
    assert out.dtype == dtype
    for other, other_state in others:
        assert error(out, other) <= (1e-2 if dtype == torch.bfloat16 else 2e-6)
        assert error(state, other_state) <= 2e-6


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_steps_of_chosen_rows_and_narrow_states(dtype, grad):
    """Outside of autograd states of float32 take one operator, others several."""
    x = expanded(4, 5, 7, 2)
    pool = torch.randn(5, 4, 5, 7).to(dtype)
    before, rows = pool.clone(), torch.tensor([3, 1])
    alone = pool[rows].float()
    with torch.set_grad_enabled(grad or dtype != torch.float32):
        wanted = fla.selective_state_update(alone, **x)
    with torch.set_grad_enabled(grad):
        out = fla.selective_state_update(pool, state_batch_indices=rows, **x)
    assert torch.equal(out, wanted) and torch.equal(pool[rows], alone.to(dtype))
    assert torch.equal(pool[[0, 2, 4]], before[[0, 2, 4]])
