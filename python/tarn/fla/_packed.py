"""Bounds of packed sequences, where a function needs them as numbers."""

from torch import Tensor

from tarn.ops import _checks as checks


def bounds_of(op: str, cu_seqlens: Tensor, tokens: int, like: Tensor) -> list[int]:
    """[0, ..., tokens], which never falls."""
    checks.want_lengths(op, "cu_seqlens", cu_seqlens, like)
    bounds = cu_seqlens.tolist()
    if bounds[:1] != [0] or bounds[-1] != tokens or bounds != sorted(bounds):
        wanted = f"0, ..., {tokens} in ascending order"
        raise checks.value_error(op, "cu_seqlens", wanted, checks.shape_text(bounds))
    return bounds
