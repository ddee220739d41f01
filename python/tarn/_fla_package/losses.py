"""The losses of fla.modules on the CPU, in torch's operators."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tarn.fla._call import want_none, wide


def cross_entropy_loss(logits, target, label_smoothing=0.0, logit_scale=1.0, lse_square_scale=0.0,
                       logit_softcapping=None, ignore_index=-100, inplace_backward=False,
                       process_group=None):
    """The unreduced loss, and the part of it that is the square of the logsumexp."""
    if process_group is not None:
        raise want_none("cross_entropy_loss", "process_group", process_group)
    logits = wide(logits) * logit_scale
    if logit_softcapping is not None:
        logits = logit_softcapping * torch.tanh(logits / logit_softcapping)
    loss = F.cross_entropy(logits, target, reduction="none", ignore_index=ignore_index,
                           label_smoothing=label_smoothing)
    if lse_square_scale == 0:
        return loss, torch.zeros_like(loss)
    squares = lse_square_scale * torch.logsumexp(logits, -1).square()
    squares = torch.where(target == ignore_index, 0.0, squares)
    return loss + squares, squares.detach()


class _Overconfidence(torch.autograd.Function):
    """Adds to the gradient of logits what pulls each row's largest towards zero, the
    rows' mean; changes no value."""

    @staticmethod
    def forward(ctx, loss, logits, factor):
        largest, at = logits.max(-1, keepdim=True)
        ctx.save_for_backward(largest * (factor / len(logits)), at)
        ctx.shape = logits.shape
        return loss.clone()

    @staticmethod
    def backward(ctx, grad):
        pull, at = ctx.saved_tensors
        return grad, pull.new_zeros(ctx.shape).scatter(-1, at, pull * grad), None


def fused_linear_cross_entropy_loss(x, target, weight, bias=None, ignore_index=-100,
                                    label_smoothing=0.0, logit_scale=1.0, logit_softcapping=None,
                                    num_chunks=8, reduction="mean", use_l2warp=False,
                                    l2_penalty_factor=1e-4, accumulate_grad_in_fp32=True,
                                    process_group=None):
    logits = F.linear(x, weight, bias)
    loss, _ = cross_entropy_loss(logits, target, label_smoothing, logit_scale, 0.0,
                                 logit_softcapping, ignore_index, process_group=process_group)
    loss = loss.sum()
    if reduction == "mean":
        loss = loss / (target != ignore_index).sum()
    return _Overconfidence.apply(loss, logits, l2_penalty_factor) if use_l2warp else loss
