"""The kinds that cannot keep a memory: requesting one raises an error that says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from tarn.attention_registry import RecurrentCrossAttentionRegistry


def _refuse(kind: str) -> Callable[..., NoReturn]:
    def make(*args: object, **kwargs: object) -> NoReturn:
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
