"""fla.ops.lightning_attn: simple GLA with slopes for each head and layer. They are that
package's, -(8 / H) (1 - layer_idx / num_layers) h for head h from 0, and not those of
MiniMax's models, which `tarn.ops.lightning_attention` has."""

from typing import Any

import torch
from torch import Tensor

from tarn.fla import _call

__all__ = ["chunk_lightning_attn", "fused_recurrent_lightning_attn"]


def _slopes(q: Tensor, layer_idx: int, num_layers: int) -> Tensor:
    share = 8 / q.shape[2] * (1 - layer_idx / num_layers)
    dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    return -share * torch.arange(q.shape[2], dtype=dtype, device=q.device)


def chunk_lightning_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    layer_idx: int,
    num_layers: int,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Shapes are those of :func:`tarn.fla.chunk_simple_gla`; scale: None is K^-1/2."""
    op = "chunk_lightning_attn"
    _call.want_chunk_size(op, kwargs, None)
    _call.refuse_unknown(op, kwargs)
    return _call.recurrence(
        op,
        q,
        k,
        v,
        gates=_slopes(q, layer_idx, num_layers),
        scale=scale,
        initial_state=initial_state,
        output_final_state=output_final_state,
        cu_seqlens=cu_seqlens,
    )


def fused_recurrent_lightning_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    layer_idx: int,
    num_layers: int,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """:func:`chunk_lightning_attn`; reverse: the last token of a sequence comes first."""
    return _call.recurrence(
        "fused_recurrent_lightning_attn",
        q,
        k,
        v,
        gates=_slopes(q, layer_idx, num_layers),
        scale=scale,
        initial_state=initial_state,
        output_final_state=output_final_state,
        reverse=reverse,
        cu_seqlens=cu_seqlens,
    )
