"""Rotary embeddings of fla.modules on the CPU, in torch's operators: in float32, rounded once."""

from __future__ import annotations

import torch
from torch import Tensor

from tarn.fla._call import wide


def _halves(x: Tensor, interleaved: bool) -> tuple[Tensor, ...]:
    return (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)


class _Rotation(torch.autograd.Function):
    """Turns pairs of channels by the angles of two tables [T, 1, R]; the gradient turns back."""

    @staticmethod
    def forward(ctx, x, cos, sin, interleaved):
        ctx.save_for_backward(cos, sin)
        ctx.interleaved, width = interleaved, 2 * cos.shape[-1]
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        y[..., width:] = x[..., width:]
        cos, sin = (one.to(wide(x[..., :0]).dtype) for one in (cos, sin))
        a, b = (wide(one) for one in _halves(x[..., :width], interleaved))
        first, second = _halves(y[..., :width], interleaved)
        if x.dtype in (torch.float32, torch.float64):  # else the sum alone is rounded
            torch.mul(a, cos, out=first).addcmul_(b, sin, value=-1)
            torch.mul(a, sin, out=second).addcmul_(b, cos)
        else:
            first.copy_((a * cos).addcmul_(b, sin, value=-1))
            second.copy_((a * sin).addcmul_(b, cos))
        return y

    @staticmethod
    def backward(ctx, grad):
        cos, sin = ctx.saved_tensors
        return _Rotation.apply(grad, cos, -sin, ctx.interleaved), None, None, None


def _of_any_position(x, cos, sin, interleaved, offsets, cu_seqlens):
    """Each token looks its row of the tables up. One whose position they lack becomes zero."""
    width = 2 * cos.shape[-1]
    place = torch.arange(x.shape[1], device=x.device)[None]
    if cu_seqlens is not None:
        bounds = cu_seqlens.long()
        sequence = torch.searchsorted(bounds[1:].contiguous(), place[0], right=True)
        place = place - bounds[sequence]
        if isinstance(offsets, Tensor):
            place = place + offsets[sequence]
    elif isinstance(offsets, Tensor):
        place = place + offsets[:, None]
    if not isinstance(offsets, Tensor):
        place = place + offsets
    known = ((place >= 0) & (place < len(cos)))[..., None, None]
    place = place.clamp(0, len(cos) - 1)
    cos, sin = (wide(table)[place].unsqueeze(2) for table in (cos, sin))
    a, b = _halves(wide(x[..., :width]), interleaved)
    first, second = a * cos - b * sin, a * sin + b * cos
    y = (torch.stack((first, second), -1).flatten(-2) if interleaved
         else torch.cat((first, second), -1))
    return torch.cat((torch.where(known, y, 0.0).to(x.dtype), x[..., width:]), -1)


def rotary_embedding(x, cos, sin, interleaved=False, inplace=False, seqlen_offsets=0,
                     cu_seqlens=None, chunk_indices=None):
    """x [B, T, H, D], tables [positions, R]; the first 2 R channels are turned. A token
    whose position is not in the tables becomes zero there."""
    one_piece = cu_seqlens is None and not isinstance(seqlen_offsets, Tensor)
    learned = torch.is_grad_enabled() and (cos.requires_grad or sin.requires_grad)
    if one_piece and 0 <= seqlen_offsets <= len(cos) - x.shape[1] and not learned:
        tables = (wide(table[seqlen_offsets:seqlen_offsets + x.shape[1]]).unsqueeze(1) for table in (cos, sin))
        y = _Rotation.apply(x, *tables, interleaved)
    else:
        y = _of_any_position(x, cos, sin, interleaved, seqlen_offsets, cu_seqlens)
    return x.copy_(y) if inplace else y
