"""The mask of a memory, and the kinds that cannot keep one."""

from __future__ import annotations

import torch

from tarn.attention_registry import RecurrentCrossAttentionRegistry
from tarn.masking import BaseMask


def keep_of(key_lengths, batch_size: int, seq_len: int, device) -> torch.Tensor | None:
    """Kept keys, bool [N, S] (True = keep), of a mask, [N] lengths or None."""
    if key_lengths is None:
        return None
    wanted = (batch_size, seq_len)
    if isinstance(key_lengths, BaseMask) and key_lengths._all_ones and key_lengths.shape == wanted:
        return None  # known without reading a matrix
    mask = getattr(key_lengths, "bool_matrix", None)
    if mask is None:
        lengths = torch.as_tensor(key_lengths, device=device)
        mask = torch.arange(seq_len, device=device) < lengths[:, None]
    if mask.shape != wanted:
        raise ValueError(f"key_lengths: want a mask over {list(wanted)}, got {list(mask.shape)}")
    return mask.to(device)


def _refuse(kind: str):
    def make(*args, **kwargs):
        raise ValueError(
            f"{kind}: want linear or full for recurrent cross attention, got a kind that has "
            "no form to read a memory with one query at a time"
        )

    return make


for _kind in (
    "local",
    "exact-topk",
    "conditional-full",
    "clustered",
    "improved-clustered",
    "causal-improved-clustered",
    "causal-linear",
    "reformer",
    "aft-full",
    "aft-simple",
):
    RecurrentCrossAttentionRegistry.register(_kind, _refuse(_kind), [])
