"""Kinds without a recurrent form: requesting one raises an error that says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from tarn._tables import recurrent_mixers
from tarn.attention_registry import RecurrentAttentionRegistry

_LATER_TOKENS = "which keys a token reads depends on tokens after it"
_WHY = {
    "clustered": _LATER_TOKENS,
    "improved-clustered": _LATER_TOKENS,
    "causal-improved-clustered": _LATER_TOKENS,
    "reformer": _LATER_TOKENS,
    "conditional-full": "it switches on the length of the whole sequence",
}


def _refuse(kind: str) -> Callable[..., NoReturn]:
    def make(*args: object, **kwargs: object) -> NoReturn:
        raise ValueError(
            f"{kind}: want an attention with a recurrent form ({', '.join(recurrent_mixers())}), got "
            f"one without: {_WHY[kind]}"
        )

    return make


for _kind in _WHY:
    RecurrentAttentionRegistry.register(_kind, _refuse(_kind), [])
