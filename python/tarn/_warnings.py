"""What tarn warns about: each of it once in a process."""

from __future__ import annotations

import sys
import warnings


class LayoutWarning(UserWarning):
    """Operands look like [B, H, T, K], the layout of torch's
    scaled_dot_product_attention, where [B, T, H, K] is wanted: axis 1, the tokens, is
    shorter than axis 2, the heads, which are more than 64. A single token, and the short
    prompts of a model with up to 64 heads, look alike and do not warn."""


MOST_HEADS = 64  # of models whose prompts may be shorter than that
_warned = False


def looks_transposed(seq_len: object, heads: object) -> bool:
    """Whether the sizes of axes 1 and 2 are worth the warning. Sizes that are not plain
    numbers, as torch traces them, are left alone: a comparison would bind them."""
    return (
        not _warned
        and type(heads) is int
        and heads > MOST_HEADS
        and type(seq_len) is int
        and 1 < seq_len < heads
    )


def warn_layout(op: str, seq_len: int, heads: int) -> None:
    """Warns at the caller's line outside tarn."""
    global _warned
    _warned = True
    frame, level = sys._getframe(1), 2  # as warnings.warn counts
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "tarn":
        frame, level = frame.f_back, level + 1
    warnings.warn(
        f"{op}: queries: want [B, T, H, K], got T = {seq_len} tokens and H = {heads} heads: if "
        "they are [B, H, T, K], as scaled_dot_product_attention takes them, call "
        ".transpose(1, 2) on queries, keys, values and result (this warning comes once)",
        LayoutWarning,
        stacklevel=level,
    )
