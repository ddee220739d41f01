"""xLSTM's mLSTM cell (Beck et al. 2024, arXiv 2405.04517), which its file computes in chunks
and by a loop over the tokens that are left over."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tarn import ops

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def _served(config: Any, mode: str, query: Tensor, last: bool) -> bool:
    """The modes of training have lengths and options that they refuse: these are theirs."""
    if query.dtype not in _DTYPES or query.shape[2] == 0:
        return False
    if "train" in mode:
        padded = "with_padding" in config.mode
        return not last if padded else query.shape[2] % config.chunk_size == 0
    return "inference" in mode


def forward(
    theirs: Any,
    self: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    igate: Tensor,
    fgate: Tensor,
    c_initial: Tensor | None = None,
    n_initial: Tensor | None = None,
    m_initial: Tensor | None = None,
    return_last_states: bool | None = None,
    mode: Any = None,
) -> Any:
    """query, key: [B, H, T, K]; value: [B, H, T, V]; igate, fgate: [B, H, T], before their
    functions. States: C [B, H, K, V], n [B, H, K] and m [B, H, 1]. Returns h [B, H, T, V] in
    the dtype of query, and the states where they are asked for, or in inference."""
    mode = self.config.mode if mode is None else mode
    last = self.config.return_last_states if return_last_states is None else return_last_states
    states: Any = (c_initial, n_initial, m_initial)
    given = sum(one is not None for one in states)
    if given not in (0, 3) or not _served(self.config, mode, query, last):
        return theirs(self, query, key, value, igate, fgate, *states, return_last_states, mode)
    last = last or "train" not in mode
    queries, keys, values = (one.float().transpose(1, 2) for one in (query, key, value))
    inputs, forgets = (one.float().transpose(1, 2) for one in (igate, fgate))
    before = None
    if given:
        c, n, m = (one.float() for one in states)
        before = torch.cat([c, n[..., None]], -1), m.squeeze(-1)
    with torch.autocast("cpu", enabled=False):  # it would round values and keys
        out, (held, most) = ops.mlstm(
            queries,
            keys,
            values,
            inputs,
            forgets,
            initial_state=before,
            eps=self.config.eps,
            return_state=True,
        )
    out = out.to(query.dtype).transpose(1, 2)
    if not last:
        return out
    dtype = key.dtype if "train" in mode else getattr(torch, self.config.inference_state_dtype)
    found = (held[..., :-1], held[..., -1], most[..., None])
    return out, tuple(one.to(dtype) for one in found)
