"""Linear attention over one sequence that is cut over the ranks of a process group.

A sequence of T tokens is split into consecutive pieces on P ranks. What a rank needs of
the others is the sum of their states, whose size does not depend on T, so that one
all-gather of P states a call forward and one backward suffice, where softmax
attention would move all keys and values. The group is torch's
(``torch.distributed.init_process_group``); ``docs/distributed.md`` tells more.
"""

from __future__ import annotations

from typing import Any, Optional

import torch
import torch.distributed as dist
from torch import Tensor

from tarn import ops
from tarn.ops import LinearState

__all__ = ["linear_attention", "states_before"]


def linear_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    group: Optional[dist.ProcessGroup] = None,
    causal: bool = True,
    feature_map: str = "elu1",
    key_mask: Optional[Tensor] = None,
    key_lengths: Optional[Tensor] = None,
    denominator: str = "exact",
    eps: float = 1e-6,
    scale: float = 1.0,
    initial_state: Any = None,
    return_state: bool = False,
    chunk_size: Optional[int] = None,
) -> Any:
    """:func:`tarn.ops.linear_attention` of the whole sequence, of which each rank has
    a piece: rank r holds the tokens after those of rank r - 1.

    Args:
        queries: [B, T_r, H, K], this rank's piece; T_r may be 0 and may differ from
            rank to rank. B, H, K and the dtype are those of all ranks.
        keys: [B, T_r, H, K].
        values: [B, T_r, HV, V].
        group: torch's process group; None: the default one.
        causal: whether a query reads only keys up to its own position; otherwise it
            reads the keys of all ranks.
        key_mask: [B, T_r] bool, True = keep; key_lengths: [B], keys kept at the
            front of this rank's piece.
        feature_map, denominator, eps, scale, chunk_size: as there; "signed"
            denominators are not offered.
        initial_state: the state before the first token; read on rank 0, None
            elsewhere. Receives a gradient there.
        return_state: whether to return the state after the last token too, on
            every rank.

    Returns:
        out [B, T_r, HV, V], or (out, LinearState).

    Raises:
        ValueError, TypeError: as there, before any exchange; ValueError also for an
        initial state on another rank than the first.

    Every rank of the group makes the same calls in the same order, and
    differentiates the result if one of them does; a rank that raises leaves the
    others waiting until the group's timeout. Once differentiable.
    Costs one all-gather of B HV C (V + 1) float32 numbers a rank forward and one
    backward, and the sums of a rank's own keys and values are taken twice. Results
    agree with those of one rank up to rounding, and are the same bits from run to
    run.
    """
    if denominator == "signed":
        raise ValueError(
            'distributed.linear_attention: denominator: want "exact", "compat" or '
            '"none", got "signed"'
        )
    rank = dist.get_rank(group)
    if initial_state is not None and rank != 0:
        raise ValueError(
            "distributed.linear_attention: initial_state: want None on ranks other than 0, "
            f"got one on rank {rank}"
        )
    shared: dict[str, Any] = {
        "feature_map": feature_map,
        "denominator": denominator,
        "eps": eps,
        "scale": scale,
    }
    # The sums of this rank's own tokens: no query asks for anything.
    _, own = _call(
        queries[:, :0],
        keys,
        values,
        causal=False,
        key_mask=key_mask,
        key_lengths=key_lengths,
        initial_state=initial_state,
        return_state=True,
        **shared,
    )
    before, total = states_before(own, group=group)
    if not causal:
        # All keys count, so that nothing of this rank is read twice.
        out = ops.linear_attention(
            queries, keys[:, :0], values[:, :0], causal=False, initial_state=total, **shared
        )
    else:
        out = ops.linear_attention(
            queries,
            keys,
            values,
            key_mask=key_mask,
            key_lengths=key_lengths,
            initial_state=_start(initial_state, before),
            chunk_size=chunk_size,
            **shared,
        )
    return (out, total) if return_state else out


def _call(*tensors: Tensor, **options: Any) -> Any:
    return ops.linear_attention(*tensors, **options)


def _start(initial_state: Any, before: LinearState) -> LinearState:
    """The state before this rank's first token. The first rank adds its zeros, so that
    the gradients of the others reach it through the exchange."""
    if initial_state is None:
        return before
    S, z = initial_state[:2]
    return LinearState(S + before.S, z + before.z)


def states_before(
    own: LinearState, *, group: Optional[dist.ProcessGroup] = None
) -> tuple[LinearState, LinearState]:
    """The sums of the states of all ranks in front of this one, and of all ranks.

    own: what this rank's tokens alone add up to; the shapes are those of all ranks.
    Differentiable; one all-gather forward and one backward.
    """
    S, z, _ = own
    flat = torch.cat([S.flatten(), z.flatten()])
    before, total = _Sums.apply(flat, group)

    def state(sums: Tensor) -> LinearState:
        return LinearState(sums[: S.numel()].view(S.shape), sums[S.numel() :].view(z.shape))

    return state(before), state(total)


class _Sums(torch.autograd.Function):
    """[n] to the sums over the ranks in front and over all ranks, rank by rank, so
    that no order depends on who is ready first."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, group: Optional[dist.ProcessGroup]) -> tuple[Tensor, Tensor]:
        ctx.group = group
        parts = _gathered(own, group)
        rank = dist.get_rank(group)
        before = torch.zeros_like(own)
        for part in parts[:rank]:
            before = before + part
        total = before
        for part in parts[rank:]:
            total = total + part
        return before, total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_before: Tensor, d_total: Tensor) -> tuple[Tensor, None]:
        # A rank's own sums are in front of all later ranks, and in every total.
        both = _gathered(torch.stack([d_before, d_total]), ctx.group)
        rank = dist.get_rank(ctx.group)
        own = torch.zeros_like(d_before)
        for index, part in enumerate(both):
            own = own + part[1]
            if index > rank:
                own = own + part[0]
        return own, None


def _gathered(own: Tensor, group: Optional[dist.ProcessGroup]) -> list[Tensor]:
    """The tensors of all ranks, in the order of the ranks."""
    own = own.contiguous()
    parts = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, own, group=group)
    return parts
