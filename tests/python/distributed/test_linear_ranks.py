"""tarn.distributed.linear_attention over 2 to 4 ranks against one call over the
whole sequence: results, states, gradients of all inputs."""

import pytest
import ranks
import torch
import torch.distributed as dist

import tarn
import tarn.distributed

# Tokens of each rank.
CUTS = {2: (17, 40), 3: (0, 33, 8), 4: (5, 16, 1, 30)}
B, H, HV, K, V = 2, 2, 4, 8, 5
BOUND = {torch.float32: 2e-5, torch.float64: 1e-12}


def _inputs(dtype, tokens, state):
    torch.manual_seed(7)
    made = [
        torch.randn(B, tokens, H, K, dtype=dtype),
        torch.randn(B, tokens, H, K, dtype=dtype),
        torch.randn(B, tokens, HV, V, dtype=dtype),
    ]
    if state:
        made += [torch.rand(B, HV, K, V, dtype=dtype), torch.rand(B, HV, K, dtype=dtype)]
    mask = torch.rand(B, tokens) > 0.3
    return [one.requires_grad_() for one in made], mask


def _loss(out, state, weights):
    loss = (out * weights).sum()
    return loss if state is None else loss + state.S.square().sum() / 50 + state.z.sum()


def _compare(dtype, causal, feature_map, with_mask, with_state):
    rank, size = dist.get_rank(), dist.get_world_size()
    cuts = CUTS[size]
    tokens, first = sum(cuts), sum(cuts[:rank])
    options = {"causal": causal, "feature_map": feature_map, "return_state": True}

    whole, mask = _inputs(dtype, tokens, with_state)
    weights = torch.randn(B, tokens, HV, V, dtype=dtype, generator=torch.Generator().manual_seed(3))
    out, state = tarn.ops.linear_attention(
        *whole[:3],
        key_mask=mask if with_mask else None,
        initial_state=tuple(whole[3:]) or None,
        **options,
    )
    _loss(out, state, weights).backward()

    mine, _ = _inputs(dtype, tokens, with_state)
    piece = slice(first, first + cuts[rank])
    here = [one.detach()[:, piece].requires_grad_() for one in mine[:3]]
    given = [one.detach().requires_grad_() for one in mine[3:]] if rank == 0 else []
    got, end = tarn.distributed.linear_attention(
        *here,
        key_mask=mask[:, piece] if with_mask else None,
        initial_state=tuple(given) or None,
        **options,
    )
    # The state's loss counts once.
    _loss(got, end if rank == size - 1 else None, weights[:, piece]).backward()

    bound = BOUND[dtype]
    torch.testing.assert_close(got, out[:, piece], rtol=bound, atol=bound)
    torch.testing.assert_close(end.S, state.S, rtol=bound, atol=bound)
    torch.testing.assert_close(end.z, state.z, rtol=bound, atol=bound)
    for ours, theirs in zip(here, whole[:3], strict=True):
        torch.testing.assert_close(
            ours.grad, theirs.grad[:, piece], rtol=10 * bound, atol=10 * bound
        )
    for ours, theirs in zip(given, whole[3:] if rank == 0 else [], strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=10 * bound, atol=10 * bound)


CASES = [
    (torch.float32, True, "elu1", False, False),
    (torch.float32, True, "relu2", True, True),
    (torch.float32, False, "elu1", True, True),
    (torch.float64, True, "elu1", True, True),
]


def _same_bits():
    (q, k, v), _ = _inputs(torch.float32, 24, False)
    both = [tarn.distributed.linear_attention(q, k, v).detach() for _ in range(2)]
    assert torch.equal(*both)


def _refusals():
    (q, k, v), _ = _inputs(torch.float32, 4, False)
    with pytest.raises(ValueError, match='denominator: want .*, got "signed"'):
        tarn.distributed.linear_attention(q, k, v, denominator="signed")
    rank = dist.get_rank()
    if rank > 0:
        with pytest.raises(
            ValueError, match=f"want None on ranks other than 0, got one on rank {rank}"
        ):
            tarn.distributed.linear_attention(
                q, k, v, initial_state=(torch.zeros(B, HV, K, V), torch.zeros(B, HV, K))
            )


def _all():
    """All cases in the same processes: to start them takes longer than the cases."""
    for case in CASES:
        ranks.told(case, _compare, *case)
    _same_bits()
    _refusals()


@pytest.mark.parametrize("size", sorted(CUTS))
def test_pieces_are_the_whole(size):
    ranks.run(size, _all)
