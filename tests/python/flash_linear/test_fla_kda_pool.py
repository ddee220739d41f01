"""fused_recurrent_kda_fwd, whose states are in place or in a pool, against a loop over tokens
and slots in float64: outputs, every slot of the pool, and gradients of the outputs."""

import pytest
import torch

from tarn import fla

K, V, HEADS, VALUE_HEADS, SLOTS = 5, 3, 2, 4, 9


def unit(x):
    return x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()


def problem(lengths, seed=0, v_first=False):
    draws = torch.Generator().manual_seed(seed)

    def normal(*sizes):
        return torch.randn(*sizes, generator=draws, dtype=torch.float64)

    row = (1, sum(lengths))
    inputs = dict(
        q=normal(*row, HEADS, K),
        k=normal(*row, HEADS, K),
        v=normal(*row, VALUE_HEADS, V),
        g=normal(*row, VALUE_HEADS, K),
        beta=normal(*row, VALUE_HEADS),
        A_log=normal(VALUE_HEADS),
        dt_bias=normal(VALUE_HEADS * K),
    )
    widths = (V, K) if v_first else (K, V)
    return inputs, normal(SLOTS, VALUE_HEADS, *widths)


def loop(lengths, q, k, v, g, beta, A_log, dt_bias, pool, indices, accepted, v_first):
    """Reads from `pool` alone: what is written is in the second result, slot by slot."""
    at, rows, written = 0, [], {}
    for n, length in enumerate(lengths):
        if length == 0:
            continue
        first = indices[n][0 if accepted is None else accepted[n] - 1]
        S = pool[first].transpose(-1, -2) if v_first else pool[first]
        for t in range(length):
            q_t = unit(q[0, at]).repeat_interleave(VALUE_HEADS // HEADS, 0) * K**-0.5
            k_t = unit(k[0, at]).repeat_interleave(VALUE_HEADS // HEADS, 0)
            rate = torch.log1p((g[0, at] + dt_bias.view(VALUE_HEADS, K)).exp())
            S = (-A_log.exp()[:, None] * rate).exp().unsqueeze(-1) * S
            change = torch.sigmoid(beta[0, at])[:, None] * (
                v[0, at] - torch.einsum("hkv,hk->hv", S, k_t)
            )
            S = S + torch.einsum("hk,hv->hkv", k_t, change)
            rows.append(torch.einsum("hkv,hk->hv", S, q_t))
            written[indices[n][t]] = S.transpose(-1, -2) if v_first else S
            at += 1
    return torch.stack(rows)[None], written


RAW = dict(use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True)
CALLS = {
    "one token each": ([1, 1, 1], [[4], [0], [7]], None),
    "some without": ([1, 0, 1], [[4], [-1], [7]], None),
    "drafts": ([3, 2, 3], [[4, 1, 2], [0, 8, -1], [7, 5, 6]], None),
    "accepted drafts": ([3, 2, 1], [[4, 1, 2], [0, 8, 3], [7, 5, 6]], [2, 3, 1]),
}


@pytest.mark.parametrize("v_first", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_pool(name, v_first):
    lengths, indices, accepted = CALLS[name]
    inputs, states = problem(lengths, v_first=v_first)
    double = {n: one.clone().requires_grad_() for n, one in inputs.items()}
    double_states = states.clone().requires_grad_()
    single = {n: one.float().requires_grad_() for n, one in inputs.items()}
    pool = states.float()
    before = pool.clone().requires_grad_()
    bounds = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()])
    wanted, written = loop(
        lengths, **double, pool=double_states, indices=indices, accepted=accepted, v_first=v_first
    )
    options = dict(
        cu_seqlens=bounds,
        state_v_first=v_first,
        ssm_state_indices=torch.tensor(indices),
        num_accepted_tokens=None if accepted is None else torch.tensor(accepted),
        **RAW,
    )
    out, same = fla.fused_recurrent_kda_fwd(**single, initial_state=pool, **options)
    assert same is pool
    torch.testing.assert_close(out.double(), wanted, rtol=1e-5, atol=1e-5)
    for slot in range(SLOTS):
        given = written[slot] if slot in written else states[slot]
        torch.testing.assert_close(pool[slot].double(), given, rtol=1e-5, atol=1e-5)
    # Not in place: a state for each token, and gradients of all that is read.
    out, after = fla.fused_recurrent_kda_fwd(
        **single,
        initial_state=before,
        inplace_final_state=False,
        output_final_state=True,
        **options,
    )
    slots = [indices[n][t] for n, length in enumerate(lengths) for t in range(length)]
    torch.testing.assert_close(
        after.double(), torch.stack([written[slot] for slot in slots]), rtol=1e-5, atol=1e-5
    )
    flow = torch.randn_like(wanted)
    ours = torch.autograd.grad(out, [*single.values(), before], flow.float())
    theirs = torch.autograd.grad(wanted, [*double.values(), double_states], flow)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_states_in_place(dtype):
    """Without slots sequence n has state n; the states keep their dtype."""
    lengths = [4, 0, 3]
    inputs, states = problem(lengths)
    pool = states[:3].to(dtype)
    wanted, written = loop(
        lengths,
        **inputs,
        pool=pool.double(),
        accepted=None,
        v_first=False,
        indices=[[n] * 4 for n in range(3)],
    )
    given = {n: one.float() for n, one in inputs.items()}
    out, same = fla.fused_recurrent_kda_fwd(
        **given, initial_state=pool, cu_seqlens=torch.tensor([0, 4, 4, 7]), **RAW
    )
    assert same is pool and pool.dtype == dtype
    torch.testing.assert_close(out.double(), wanted, rtol=1e-5, atol=1e-5)
    room = dict(rtol=1e-5, atol=1e-5) if dtype == torch.float32 else dict(rtol=0.005, atol=0.005)
    for n in (0, 2):
        torch.testing.assert_close(pool[n].double(), written[n], **room)


def test_rows_and_a_tensor_for_the_outputs():
    inputs, states = problem([1] * 3)
    wanted, written = loop(
        [1] * 3, **inputs, pool=states, indices=[[8], [2], [3]], accepted=None, v_first=False
    )
    rows = {
        n: one.float() if n in ("A_log", "dt_bias") else one.float().transpose(0, 1)
        for n, one in inputs.items()
    }
    out, pool = torch.full_like(rows["v"], torch.nan), states.float()
    found, _ = fla.fused_recurrent_kda_fwd(
        **rows, initial_state=pool, ssm_state_indices=torch.tensor([8, 2, 3]), out=out, **RAW
    )
    assert found is out
    torch.testing.assert_close(out.double().transpose(0, 1), wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(pool[8].double(), written[8], rtol=1e-5, atol=1e-5)
    found, nothing = fla.fused_recurrent_kda_fwd(**rows, inplace_final_state=False, **RAW)
    assert nothing is None and found.shape == out.shape


def test_wrong_slots_are_refused_before_the_pool_changes():
    inputs, states = problem([2, 1])
    given = {n: one.float() for n, one in inputs.items()}
    pool = states.float()
    before = pool.clone()

    def refused(match, **options):
        options = (
            dict(
                initial_state=pool,
                cu_seqlens=torch.tensor([0, 2, 3]),
                ssm_state_indices=torch.tensor([[4, 1], [0, 2]]),
            )
            | options
        )
        with pytest.raises(ValueError, match=match):
            fla.fused_recurrent_kda_fwd(**given, **options)

    op = "fused_recurrent_kda_fwd: "
    refused(op + "initial_state: want a tensor, or inplace_final_state=False", initial_state=None)
    refused(
        op + "ssm_state_indices: want slots 0 to 8, got 9",
        ssm_state_indices=torch.tensor([[4, 9], [0, 2]]),
    )
    refused(
        op + "ssm_state_indices: want slots 0 to 8, got -1",
        ssm_state_indices=torch.tensor([[4, -1], [0, 2]]),
    )
    refused(r"ssm_state_indices: want \[2, 2\], got \[2\]", ssm_state_indices=torch.tensor([4, 1]))
    refused(r"ssm_state_indices: want \[2, 2 or more\]", ssm_state_indices=torch.tensor([[4], [1]]))
    refused("num_accepted_tokens: want 1 to 2", num_accepted_tokens=torch.tensor([1, 3]))
    refused(
        "ssm_state_indices: want a tensor with num_accepted_tokens",
        ssm_state_indices=None,
        num_accepted_tokens=torch.tensor([1, 1]),
        initial_state=pool[:2],
    )
    refused("initial_state", initial_state=pool[..., :2])
    refused("out", out=torch.zeros(1, 3, 4, 2))
    assert torch.equal(pool, before)
