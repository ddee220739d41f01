"""Rotary embeddings of fla.modules on the CPU, by `torch.ops.tarn.rotate_rows`: in float32, rounded
once."""

from __future__ import annotations

import torch
from torch import Tensor

from tarn.fla._call import wide


def _of_any_position(x, cos, sin, interleaved, offsets, cu_seqlens):
    """Each token looks its row of the tables up. One whose position they lack becomes zero."""
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
    known = (place >= 0) & (place < len(cos))
    place = place.clamp(0, len(cos) - 1)
    cos, sin = (wide(table)[place].expand(x.shape[0], -1, -1) for table in (cos, sin))
    y = torch.ops.tarn.rotate_rows.default(x, cos, sin, interleaved)
    if known.all():
        return y
    width = 2 * cos.shape[-1]
    return torch.cat((torch.where(known[..., None, None], y[..., :width], 0.0), x[..., width:]), -1)


def rotary_embedding(
    x,
    cos,
    sin,
    interleaved=False,
    inplace=False,
    seqlen_offsets=0,
    cu_seqlens=None,
    chunk_indices=None,
):
    """x [B, T, H, D], tables [positions, R]; the first 2 R channels are rotated. A
    token whose position is not in the tables becomes zero there."""
    one_piece = cu_seqlens is None and not isinstance(seqlen_offsets, Tensor)
    if one_piece and 0 <= seqlen_offsets <= len(cos) - x.shape[1]:
        tables = (table[seqlen_offsets : seqlen_offsets + x.shape[1]] for table in (cos, sin))
        y = torch.ops.tarn.rotate_rows.default(x, *tables, interleaved)
    else:
        y = _of_any_position(x, cos, sin, interleaved, seqlen_offsets, cu_seqlens)
    return x.copy_(y) if inplace else y
