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
