"""LFM3's convolution over time, of width 7: its file looks for no package, since
causal_conv1d's kernels end at 4."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tarn import fla

_WIDTHS = range(2, 9)  # of tarn.ops.short_convolution
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def _served(x: Tensor, weight: Tensor, activation: str | None) -> bool:
    return (
        x.dtype in _DTYPES
        and weight.dtype in (x.dtype, torch.float32)  # float32: under autocast
        and weight.shape[1] in _WIDTHS
        and activation in (None, "silu", "swish")
    )


def sequence(
    theirs: Any,
    hidden_states: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    **options: Any,
) -> Tensor:
    """x [B, D, T] by weight [D, W]. Other options, such as seq_idx, mean nothing to it."""
    if not _served(hidden_states, weight, activation):
        return theirs(hidden_states, weight, bias, activation, **options)
    return fla.causal_conv1d_fn(hidden_states, weight, bias, activation=activation)


def step(
    theirs: Any,
    hidden_states: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
) -> Tensor:
    """x [B, D, T] after conv_state [B, D, L], the inputs before it, which take it in."""
    if not _served(hidden_states, weight, activation) or conv_state.dtype != hidden_states.dtype:
        return theirs(hidden_states, conv_state, weight, bias, activation)
    return fla.causal_conv1d_update(hidden_states, conv_state, weight, bias, activation)
