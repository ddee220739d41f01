"""A decay for each channel of the values, by the operator that has one for each channel of the
keys: its gradient with respect to its queries."""

from typing import Any

import torch
from torch import Tensor

from tarn import ops


def _turned(
    reads: Tensor,
    k: Tensor,
    v: Tensor,
    gates: Tensor,
    state: Tensor | None,
    cu_seqlens: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """With the state transposed, values are keys: sum_m reads_m S[.., m], and S [.., V,
    K]."""
    return ops.decay_attention(
        reads,
        v,
        k,
        gates=gates,
        scale=1.0,
        initial_state=state,
        cu_seqlens=cu_seqlens,
        return_state=True,
    )


class _ByValues(torch.autograd.Function):
    """o = S q and the last S [.., V, K] of S_t = Diag(exp(g_t)) S_{t-1} + v_t k_t^T.

    L(r) = sum_t q_t . (S_t^T r_t) is what the operator computes from queries r, and is linear
    in them: its gradient is o, and the gradient of o . d is that of L(d)."""

    @staticmethod
    def forward(
        ctx: Any,
        cu_seqlens: Tensor | None,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        gates: Tensor,
        state: Tensor | None,
    ) -> Any:
        ctx.save_for_backward(cu_seqlens, q, k, v, gates, state)
        with torch.enable_grad():
            reads = torch.zeros_like(v, requires_grad=True)
            out, last = _turned(
                reads,
                k.detach(),
                v.detach(),
                gates.detach(),
                None if state is None else state.detach(),
                cu_seqlens,
            )
            (found,) = torch.autograd.grad(out, reads, q.detach())
        return found, last.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        cu_seqlens, higher = ctx.saved_tensors[0], torch.is_grad_enabled()
        tensors: list[Any] = list(ctx.saved_tensors[1:])
        needs = ctx.needs_input_grad[2:]
        with torch.enable_grad():
            # Views of the arguments, which may depend on each other: partial derivatives.
            own: list[Any] = [
                None if x is None else x.view_as(x) if higher else x.detach() for x in tensors
            ]
            q, rest = own[0], own[1:]
            wanted: list[Any] = [x for x, need in zip(rest, needs, strict=True) if need]
            if not higher:
                wanted = [x.requires_grad_() for x in wanted]
            out, last = _turned(grads[0], rest[0], rest[1], rest[2], rest[3], cu_seqlens)
            found = (
                torch.autograd.grad(
                    (out, last),
                    wanted,
                    (q, grads[1]),
                    create_graph=higher,
                    materialize_grads=True,
                )
                if wanted
                else ()
            )
        each = iter(found)
        return (
            None,
            out if higher else out.detach(),
            *(next(each) if need else None for need in needs),
        )


def under_transforms() -> bool:
    """Whether one of torch.func's runs, which a torch.autograd.Function of this form refuses."""
    return getattr(torch._C, "_functorch").peek_interpreter_stack() is not None


def serves(q: Tensor, v: Tensor) -> bool:
    """Not where torch records no gradients at all, nor under torch.func's transforms."""
    empty = q.numel() == 0 or v.numel() == 0
    return not (empty or torch.is_inference_mode_enabled() or under_transforms())


def recurrence(
    q: Tensor, k: Tensor, v: Tensor, gates: Tensor, state: Tensor | None, cu_seqlens: Tensor | None
) -> tuple[Tensor, Tensor]:
    """S_t = S_{t-1} Diag(exp(g_t)) + k_t v_t^T, o_t = S_t^T q_t, in float32 (float64).

    q, k: [B, T, H, K]; v, gates: [B, T, HV, V]; state [B or N, HV, K, V]. Returns o and the
    last state. It costs what `tarn.ops.decay_attention` and its gradient cost."""
    heads = q.shape[2]
    if v.shape[2] != heads:
        q, k = (x.repeat_interleave(v.shape[2] // heads, 2) for x in (q, k))
    found: Any = _ByValues.apply(
        cu_seqlens, q, k, v, gates, None if state is None else state.mT.contiguous()
    )
    return found[0], found[1].mT
