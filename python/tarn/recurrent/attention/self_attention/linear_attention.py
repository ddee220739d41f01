"""Linear attention as an RNN (Katharopoulos et al. 2020, eq. 18-20)."""

from __future__ import annotations

from tarn.attention._linear import LINEAR_OWN, LINEAR_PARAMETERS, LinearAttentionBase
from tarn.attention._steps import LinearSteps
from tarn.attention_registry import RecurrentAttentionRegistry
from tarn.recurrent.attention.self_attention._skin import StepForward


class RecurrentLinearAttention(LinearSteps, StepForward, LinearAttentionBase):
    """The recurrent form of `tarn.attention.CausalLinearAttention`.

    Args: as in CausalLinearAttention.

    State, of a fixed size: S [N, H, C, M] and z [N, H, C], float32, and what
    the feature map needs (`extra`). A plain pair [S, z] is a state too.
    """

    _one_call = True


for _name in ("linear", "causal-linear"):
    RecurrentAttentionRegistry.register(
        _name,
        RecurrentLinearAttention,
        LINEAR_PARAMETERS,
        yielding=LINEAR_OWN,
    )
