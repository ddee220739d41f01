"""Transformers as RNNs: a token in, a token out, and a state that is a value.

`tarn.recurrent.transformers` has the models, `tarn.recurrent.attention` the
attention modules. The functions here work on the state of either, nested lists
included: `fork` and `reorder` for beam search, `reset` for rows that start over,
`save_state` and `load_state`.
"""

from tarn.recurrent._state import (
    AttentionState,
    clone,
    fork,
    load_state,
    map_state,
    nbytes,
    reorder,
    reset,
    save_state,
)

__all__ = [
    "AttentionState",
    "clone",
    "fork",
    "load_state",
    "map_state",
    "nbytes",
    "reorder",
    "reset",
    "save_state",
]
