"""The losses of fla.modules on the CPU, by `torch.ops.tarn.cross_entropy`."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tarn.fla._call import want_none, wide
from tarn.ops import _checks as checks


def cross_entropy_loss(
    logits,
    target,
    label_smoothing=0.0,
    logit_scale=1.0,
    lse_square_scale=0.0,
    logit_softcapping=None,
    ignore_index=-100,
    inplace_backward=False,
    process_group=None,
):
    """The unreduced loss, and the part of it that is the square of the logsumexp."""
    if process_group is not None:
        raise want_none("cross_entropy_loss", "process_group", process_group)
    losses, squares, _ = torch.ops.tarn.cross_entropy.default(
        logits,
        target,
        label_smoothing,
        logit_scale,
        lse_square_scale,
        logit_softcapping or 0.0,
        ignore_index,
    )
    return losses, squares


# Products of fewer tokens are slower than torch's of all of them: 22 % at 128, 5 % at 256.
_LEAST_TOKENS = 256


def _added(total, part, kind):
    """total + part in the dtype `kind`; total None: the first part."""
    return part.to(kind) if total is None else total.add_(part)


class _ByChunks(torch.autograd.Function):
    """The sum of the losses of all tokens over `count`, `size` tokens at a time: their logits are
    dropped with the chunk, whose gradients are taken with it. `pull` moves the largest logit of
    each token towards zero by its gradient and changes no value."""

    @staticmethod
    def forward(ctx, x, weight, bias, target, size, count, pull, narrow, recorded, options):
        wanted = [recorded and one is not None and one.requires_grad for one in (x, weight, bias)]
        grad_x = torch.empty_like(x) if wanted[0] else None
        grad_weight = grad_bias = None
        kind = torch.promote_types(weight.dtype, torch.float32)
        if narrow or size >= len(x):  # nothing is added to the one product
            kind = weight.dtype
        total = 0.0
        for begin in range(0, len(x), size):
            rows, own = x[begin : begin + size], target[begin : begin + size]
            logits = F.linear(rows, weight, bias)
            with torch.set_grad_enabled(any(wanted)):
                logits = logits.requires_grad_(any(wanted))
                loss = cross_entropy_loss(logits, own, *options)[0].sum() / count
            total = total + loss.detach()
            if not any(wanted):
                continue
            (flow,) = torch.autograd.grad(loss, logits)
            if pull != 0:
                largest, at = logits.detach().max(-1, keepdim=True)
                flow.scatter_add_(-1, at, largest * (pull / len(x)))
            if grad_x is not None:
                grad_x[begin : begin + size] = flow @ weight
            if wanted[1]:
                grad_weight = _added(grad_weight, flow.t() @ rows, kind)
            if wanted[2]:
                grad_bias = _added(grad_bias, flow.sum(0), kind)
        if wanted[1] and grad_weight is None:  # no tokens
            grad_weight = torch.zeros_like(weight)
        if wanted[2] and grad_bias is None:
            grad_bias = torch.zeros_like(bias)
        like = (x, weight, bias)
        ctx.save_for_backward(
            *[
                None if grad is None else grad.to(one.dtype)
                for grad, one in zip((grad_x, grad_weight, grad_bias), like, strict=True)
            ]
        )
        return total if isinstance(total, torch.Tensor) else wide(x).sum() / count

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        grads = [None if one is None else one * grad.to(one.dtype) for one in ctx.saved_tensors]
        return (*grads, *[None] * 7)


def fused_linear_cross_entropy_loss(
    x,
    target,
    weight,
    bias=None,
    ignore_index=-100,
    label_smoothing=0.0,
    logit_scale=1.0,
    logit_softcapping=None,
    num_chunks=8,
    reduction="mean",
    use_l2warp=False,
    l2_penalty_factor=1e-4,
    accumulate_grad_in_fp32=True,
    process_group=None,
):
    """cross_entropy_loss of x weight^T + bias, of the tokens [N, D] in num_chunks parts,
    or fewer where a part would have less than 256 tokens."""
    op = "fused_linear_cross_entropy_loss"
    if process_group is not None:
        raise want_none(op, "process_group", process_group)
    if num_chunks < 1:
        raise checks.value_error(op, "num_chunks", "at least 1", num_chunks)
    if reduction not in ("mean", "sum"):
        raise checks.value_error(op, "reduction", '"mean" or "sum"', repr(reduction))
    count = (target != ignore_index).sum() if reduction == "mean" else 1
    options = (label_smoothing, logit_scale, 0.0, logit_softcapping, ignore_index)
    return _ByChunks.apply(
        x,
        weight,
        bias,
        target,
        max(-(-len(x) // num_chunks), _LEAST_TOKENS),
        count,
        l2_penalty_factor if use_l2warp else 0.0,
        not accumulate_grad_in_fp32,
        torch.is_grad_enabled(),
        options,
    )
