"""Linear attention to a memory: the memory becomes one matrix."""

from __future__ import annotations

from tarn.attention._linear import LINEAR_OWN, LINEAR_PARAMETERS, LinearAttentionBase
from tarn.attention._steps import LinearMemory
from tarn.attention_registry import RecurrentCrossAttentionRegistry
from tarn.recurrent.attention.cross_attention._base import CrossAttention


class RecurrentCrossLinearAttention(LinearMemory, CrossAttention, LinearAttentionBase):
    """The recurrent form of `tarn.attention.LinearAttention` over a memory.

    Args: as in RecurrentLinearAttention.

    State: S [N, H, C, M] and z [N, H, C] of the whole memory; a read costs
    O(H C M) for any length of the memory. A plain pair [S, z] is a state too.
    """

    _one_call = True


RecurrentCrossAttentionRegistry.register(
    "linear",
    RecurrentCrossLinearAttention,
    LINEAR_PARAMETERS,
    yielding=LINEAR_OWN,
)
