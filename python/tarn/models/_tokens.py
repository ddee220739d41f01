"""Checks of tokens before a model reads them; errors name the argument, what was
wanted and what was given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tarn.ops._checks import shape_text, type_error, value_error

_INTEGERS = (torch.int64, torch.int32)


def want_axes(op: str, argument: str, tokens: Any, axes: Sequence[str]) -> None:
    """Checks the type, and the number of axes, such as "BT"."""
    if not isinstance(tokens, torch.Tensor):
        raise type_error(op, argument, "a tensor", type(tokens).__name__)
    if tokens.dim() != len(axes):
        raise value_error(op, argument, f"[{', '.join(axes)}]", shape_text(tokens.shape))


def want_tokens(op: str, argument: str, tokens: Any, axes: Sequence[str], module: Any) -> None:
    """Checks everything but the values, which are not read here. module: what will read
    them; a class that is not torch's own says itself what it takes."""
    if not isinstance(module, torch.nn.Embedding):
        return
    want_axes(op, argument, tokens, axes)
    if tokens.dtype not in _INTEGERS:
        raise type_error(op, argument, "torch.int64 or torch.int32", tokens.dtype)


def rows_of(op: str, argument: str, tokens: torch.Tensor, module: Any) -> torch.Tensor:
    """module(tokens). The kernel on the CPU checks every token as it reads it, so only
    its error is translated: a check before would cost a step two more operators."""
    if torch.compiler.is_compiling():
        return module(tokens)
    try:
        return module(tokens)
    except IndexError:
        want_values(op, argument, tokens, module)
        raise


def want_values(op: str, argument: str, tokens: torch.Tensor, module: Any) -> None:
    """Raises ValueError naming a token outside the vocabulary, if there is one."""
    if not isinstance(module, torch.nn.Embedding) or tokens.numel() == 0:
        return
    count = module.num_embeddings
    least, most = (int(bound) for bound in torch.aminmax(tokens.detach()))
    if least < 0 or most >= count:
        given = least if least < 0 else most
        raise value_error(op, argument, f"0 to {count - 1}", given) from None


def want_positions(
    op: str, argument: str, first: torch.Tensor | int, seq_len: int, rows: int
) -> None:
    """Raises ValueError unless a table of that many rows has one for seq_len tokens at
    `first` (of each sequence [B], on the CPU) and after it. While torch traces, places
    that are numbers in a tensor are left to the embedding's own check."""
    if isinstance(first, torch.Tensor):
        if torch.compiler.is_compiling() or first.numel() == 0:
            return
        first = int(first.max())
    if first + seq_len > rows:
        wanted = f"at most max_positions = {rows} positions, those before included"
        raise value_error(op, argument, wanted, first + seq_len)


def positions_of(model: Any, table: str = "pos_embedding") -> int | None:
    """The tokens that a sequence may have, where the model learns positions."""
    return getattr(getattr(model, table, None), "num_embeddings", None)
