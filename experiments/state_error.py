"""What float32 sums lose along a long stream: the state of linear attention
after up to a million tokens against float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import tarn.ops
from experiments.core.types import JsonDict

BLOCK = 256  # tokens of a call; float64 is composed, with BLOCK x BLOCK scores


def state_error(
    seq_len: int = 1_000_000,
    heads: int = 4,
    width: int = 32,
    seed: int = 0,
    told: Callable[[float], None] = lambda share: None,
) -> list[JsonDict]:
    """Runs a stream of N(0, 1) queries, keys and values through
    `tarn.ops.linear_attention` block by block with a carried state, in float32
    and, from the same numbers, in float64. One row at every power of ten from
    1,000 and at the end: the largest difference of S, of z and of the block's
    results, each over the largest entry of its float64 counterpart. `told` gets
    the share that is done. About 4 ms a block; memory does not grow."""
    random = torch.Generator().manual_seed(seed)
    single: Any = None  # LinearState, float32
    double: Any = None  # LinearState, float64
    rows: list[JsonDict] = []
    done, next_row = 0, 1_000
    while done < seq_len:
        end = min(done + BLOCK, next_row, seq_len)
        inputs = [torch.randn((1, end - done, heads, width), generator=random) for _ in range(3)]
        out, single = tarn.ops.linear_attention(*inputs, initial_state=single, return_state=True)
        exact, double = tarn.ops.linear_attention(
            *(x.double() for x in inputs), initial_state=double, return_state=True
        )
        done = end
        told(done / seq_len)
        if done == next_row or done == seq_len:
            rows.append(
                {
                    "position": done,
                    "S": _relative(single.S, double.S),
                    "z": _relative(single.z, double.z),
                    "out": _relative(out, exact),
                }
            )
            next_row *= 10 if done == next_row else 1
    return rows


def _relative(got: Tensor, want: Tensor) -> float:
    return float((got.double() - want).abs().max() / want.abs().max())
