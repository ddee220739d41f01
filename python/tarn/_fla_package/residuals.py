"""Attention over the residuals of earlier layers (arXiv 2603.15031), on the CPU in torch's
operators: in float32, rounded once."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tarn.fla._call import wide
from tarn.ops import _checks as checks


def fused_attnres(
    query,
    residuals,
    rms_weight,
    output_rms_weight=None,
    rms_eps=1e-6,
    scale=1.0,
    return_weights=False,
    checkpoint_level=1,
):
    """o = sum_l p_l v_l with p the softmax over l of scale query . n(v_l), n the RMS norm with
    rms_weight; with output_rms_weight the RMS norm of o. query, rms_weight: D numbers;
    residuals: L tensors v_l [..., D]. return_weights adds p [L, ...], which has no gradient."""
    op = "fused_attnres"
    if len(residuals) == 0:
        raise checks.value_error(op, "residuals", "at least one tensor", 0)
    if checkpoint_level not in (0, 1):
        raise checks.value_error(op, "checkpoint_level", "0 or 1", checkpoint_level)
    shape = residuals[0].shape
    for n, one in enumerate(residuals):
        checks.want_tensor(op, f"residuals[{n}]", one)
        checks.want_shape(op, f"residuals[{n}]", one, shape)
    for name, one in (("query", query), ("rms_weight", rms_weight)):
        if one.numel() != shape[-1]:
            raise checks.value_error(op, name, f"{shape[-1]} numbers", one.numel())
    asked = wide(query).flatten() * wide(rms_weight).flatten() * scale
    sources = [wide(one) for one in residuals]
    logits = torch.stack(
        [torch.matmul(one, asked) * (one.square().mean(-1) + rms_eps).rsqrt() for one in sources]
    )
    weights = logits.softmax(0)
    out = weights[0].unsqueeze(-1) * sources[0]
    for weight, one in zip(weights[1:], sources[1:], strict=True):
        out = torch.addcmul(out, weight.unsqueeze(-1), one)
    if output_rms_weight is not None:
        out = F.rms_norm(out, shape[-1:], wide(output_rms_weight).flatten(), rms_eps)
    out = out.to(residuals[0].dtype)
    return (out, weights.detach()) if return_weights else out
