"""Turns mask objects into the operators' arguments and checks their sizes."""

from __future__ import annotations

from typing import Any

import torch

from tarn.masking import BaseMask, FullMask, LengthMask, MaskError, TriangularCausalMask


def _want(kind: str, argument: str, mask: Any) -> BaseMask:
    """The mask; one of another class is read by its bool_matrix."""
    if isinstance(mask, BaseMask):
        return mask
    kept = getattr(mask, "bool_matrix", None)
    if isinstance(kept, torch.Tensor):
        return FullMask(kept.bool())
    raise TypeError(
        f"{kind}: {argument}: want a mask of tarn.masking or None, got {type(mask).__name__}"
    )


def key_arguments(kind: str, mask: BaseMask | None, batch: int, seq_len_k: int) -> dict[str, Any]:
    """The argument key_lengths or key_mask for a mask [N, S] (or [1, S]), or none
    where every key is known to be kept. Raises MaskError, TypeError."""
    if mask is None:
        return {}
    mask = _want(kind, "key_lengths", mask)
    shape = tuple(mask.shape)
    if len(shape) != 2 or shape[0] not in (1, batch) or shape[1] != seq_len_k:
        raise MaskError(
            f"{kind}: key_lengths: want a mask [{batch}, {seq_len_k}], got {list(shape)} "
            "(give LengthMask the padded length as max_len)"
        )
    if mask._all_ones:  # known without reading a matrix
        return {}
    if isinstance(mask, LengthMask) and not isinstance(mask, TriangularCausalMask):
        return {"key_lengths": mask.lengths.expand(batch)}
    return {"key_mask": mask.bool_matrix.expand(batch, seq_len_k)}


def query_lengths_of(
    kind: str, mask: BaseMask | None, batch: int, seq_len_q: int
) -> torch.Tensor | None:
    """[N] lengths of a mask [N, L]; None where all rows are known to be whole.
    Raises MaskError, TypeError, ValueError (rows that are no prefix)."""
    if mask is None:
        return None
    mask = _want(kind, "query_lengths", mask)
    shape = tuple(mask.shape)
    if len(shape) != 2 or shape[0] not in (1, batch) or shape[1] != seq_len_q:
        wanted = f"a mask [{batch}, {seq_len_q}]"
        raise MaskError(f"{kind}: query_lengths: want {wanted}, got {list(shape)}")
    return None if mask._all_ones else mask.lengths.expand(batch)


def _want_size(kind: str, mask: BaseMask, queries: torch.Tensor, keys: torch.Tensor) -> None:
    batch, seq_len_q, heads = queries.shape[:3]
    sizes = (batch, heads, seq_len_q, keys.shape[1])
    shape = tuple(mask.shape)
    given = shape
    if isinstance(mask, TriangularCausalMask) and mask.any_keys:
        shape = (shape[0], sizes[3])
    if len(shape) == 3:
        shape = (shape[0], 1, *shape[1:])
    fits = 2 <= len(shape) <= 4 and shape[-2:] == sizes[-2:]
    if fits and len(shape) == 4:
        fits = shape[0] in (1, batch) and shape[1] in (1, heads)
    if not fits:
        raise MaskError(
            f"{kind}: attn_mask: want a mask [{sizes[2]}, {sizes[3]}] of queries and keys, "
            f"got {list(given)}"
        )


def attention_arguments(
    kind: str, mask: BaseMask | None, queries: torch.Tensor, keys: torch.Tensor
) -> dict[str, Any]:
    """The arguments causal and causal_offset, or attention_mask, for any mask; used by
    the kinds that take all masks. Raises MaskError, TypeError."""
    if mask is None:
        return {}
    mask = _want(kind, "attn_mask", mask)
    _want_size(kind, mask, queries, keys)
    if isinstance(mask, TriangularCausalMask):
        return {"causal": True, "causal_offset": mask.causal_offset}
    if isinstance(mask, FullMask) and mask._all_ones:
        return {}
    kept = mask.bool_matrix
    return {"attention_mask": kept.unsqueeze(1) if kept.dim() == 3 else kept}


def keeps_all(kind: str, mask: BaseMask | None, queries: torch.Tensor, keys: torch.Tensor) -> bool:
    """Whether the attention mask lets every query of this call read every key.
    Raises MaskError, TypeError."""
    if mask is None:
        return True
    mask = _want(kind, "attn_mask", mask)
    _want_size(kind, mask, queries, keys)
    if isinstance(mask, TriangularCausalMask):
        return queries.shape[1] == 0 or mask.causal_offset + 1 >= keys.shape[1]
    return mask.all_ones


def want_no_attention_mask(
    kind: str, mask: BaseMask | None, queries: torch.Tensor, keys: torch.Tensor
) -> None:
    """Checks that all keys are kept, for the kinds that only take key masks. Raises
    MaskError, TypeError."""
    if not keeps_all(kind, mask, queries, keys):
        raise MaskError(f"{kind}: attn_mask: want one that keeps all keys, got another mask")


def causal_offset_of(
    kind: str, mask: BaseMask | None, queries: torch.Tensor, keys: torch.Tensor
) -> int:
    """The offset with which a mask keeps exactly j <= i + offset, for the causal
    kinds. Raises MaskError, TypeError."""
    if mask is not None:
        mask = _want(kind, "attn_mask", mask)
        _want_size(kind, mask, queries, keys)
        if mask.causal_offset is not None:
            return mask.causal_offset
    elif keys.shape[1] <= 1:
        return 0
    raise MaskError(
        f"{kind}: attn_mask: want a lower triangular mask, got "
        f"{'none' if mask is None else 'another mask'}"
    )
