"""RWKV-4's attention (Peng et al. 2023, arXiv 2305.13048, eq. 16), which its file computes by
a loop over the tokens on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tarn import ops

_LEAST = -1e38  # the maximum before the first token
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@torch.no_grad()
def _maxima(decay: Tensor, keys: Tensor, first: Tensor) -> Tensor:
    """m before and after each token, [B, T + 1, C]: ``m_t = max(m_{t-1} + w, k_t)``. Any m
    gives the same result; this one lets no exponential overflow."""
    steps = torch.arange(1, keys.shape[1] + 1, dtype=keys.dtype, device=keys.device)
    sums = steps[:, None] * decay
    found = sums + torch.maximum(first[:, None], (keys - sums).cummax(1).values)
    return torch.cat([first[:, None], found], 1)


def attention(
    theirs: Any,
    time_decay: Tensor,
    time_first: Tensor,
    key: Tensor,
    value: Tensor,
    state: Any = None,
    return_state: bool = False,
) -> tuple[Tensor, Any]:
    """time_decay, time_first: [C]; key, value: [B, T, C]. state: numerator, denominator and
    maximum, [B, C] each, float32. One token takes their form, which has no loop."""
    if key.shape[1] < 2 or key.dtype not in _DTYPES:
        return theirs(time_decay, time_first, key, value, state=state, return_state=return_state)
    decay, bonus = -torch.exp(time_decay.float()), time_first.float()
    keys, values = key.float(), value.float()
    if state is None:
        sums = None
        most = torch.full_like(keys[:, 0], _LEAST)
    else:
        sums, most = torch.cat(state[:2], -1).float(), state[2].float()
    maxima = _maxima(decay, keys, most)
    before, after = maxima[:, :-1], maxima[:, 1:]
    weights = torch.exp(keys - after)
    gates = decay + (before - after)
    # The numerator and the denominator are one recurrence of 2 C channels.
    with torch.autocast("cpu", enabled=False):  # their sums are float32 under it too
        held = ops.elementwise_recurrence(
            torch.cat([weights * values, weights], -1),
            torch.cat([gates, gates], -1),
            initial_state=sums,
        )
    start = torch.zeros_like(held[:, :1]) if sums is None else sums[:, None]
    # A token reads the sums before it, and itself by its bonus.
    numerator, denominator = torch.cat([start, held[:, :-1]], 1).chunk(2, -1)
    largest = torch.maximum(before, (keys + bonus).detach())
    old, new = torch.exp(before - largest), torch.exp(keys + bonus - largest)
    out = (old * numerator + new * values) / (old * denominator + new)
    if return_state or state is not None:
        state = [*held[:, -1].chunk(2, -1), maxima[:, -1]]
    return out.to(key.dtype), state
