"""The mask of a memory, and the kinds that cannot keep one."""

from __future__ import annotations

import torch

from tarn.attention_registry import RecurrentCrossAttentionRegistry


def keep_of(key_lengths, batch_size: int, seq_len: int, device) -> torch.Tensor | None:
    """Kept keys, bool [N, S] (True = keep), of a mask, [N] lengths or None."""
    if key_lengths is None:
        return None
    mask = getattr(key_lengths, "bool_matrix", None)
    if mask is None:
        lengths = torch.as_tensor(key_lengths, device=device)
        mask = torch.arange(seq_len, device=device) < lengths[:, None]
    if mask.shape != (batch_size, seq_len):
        raise ValueError(
            f"key_lengths: want a mask over [{batch_size}, {seq_len}], got {list(mask.shape)}"
        )
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
