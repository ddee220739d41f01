"""fla.ops.lightnet: LightNet (Qin et al. 2024, arXiv 2405.21022), whose keys are a softmax
over the tokens so far."""

from typing import Any

from torch import Tensor

from tarn.fla import _call
from tarn.fla.gsa.gate import fused_additive_gate
from tarn.ops import _checks as checks

__all__ = ["chunk_lightnet", "fused_recurrent_lightnet"]


def _lightnet(
    op: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None,
    initial_state: Any,
    output_final_state: bool,
    state_v_first: bool,
    cu_seqlens: Tensor | None,
) -> tuple[Tensor, tuple[Tensor | None, Tensor]]:
    state, z = None, None
    if initial_state is not None:
        if not isinstance(initial_state, (tuple, list)) or len(initial_state) != 2:
            raise checks.type_error(
                op,
                "initial_state",
                "a pair of a state and z [.., 1, H, K]",
                type(initial_state).__name__,
            )
        state, z = initial_state
    for name, x in (("q", q), ("k", k)):
        checks.want_tensor(op, name, x)
        if x.dim() != 4:
            wanted = "[batch, seq_len, heads, width]"
            raise checks.value_error(op, name, wanted, checks.shape_text(x.shape))
    checks.want_shape(op, "k", k, q.shape)
    # Keys and gates in float32 (float64): their sums are what z says.
    wide = _call.wide(k).dtype
    keys, gates, z = fused_additive_gate(k, z, cu_seqlens, output_dtype=wide, gate_dtype=wide)
    out, last = _call.recurrence(
        op,
        q,
        keys,
        v,
        gates=gates,
        scale=scale,
        initial_state=state,
        output_final_state=output_final_state,
        state_v_first=state_v_first,
        cu_seqlens=cu_seqlens,
    )
    return out, (last, z)


def chunk_lightnet(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: tuple[Tensor | None, Tensor | None] | None = None,
    output_final_state: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, tuple[Tensor | None, Tensor]]:
    """z_t = log(exp(z_{t-1}) + exp(k_t)),
    S_t = Diag(exp(z_{t-1} - z_t)) S_{t-1} + exp(k_t - z_t) v_t^T, o_t = scale S_t^T q_t.

    q, k: [B, T, H, K]; v: [B, T, H, V]. Returns (o, (S, z)): S [B or N, H, K, V], [.., V, K]
    under state_v_first, None unless asked for; z [B or N, 1, H, K], always. initial_state
    takes the same pair, each part optional."""
    return _lightnet(
        "chunk_lightnet",
        q,
        k,
        v,
        scale,
        initial_state,
        output_final_state,
        state_v_first,
        cu_seqlens,
    )


def fused_recurrent_lightnet(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: tuple[Tensor | None, Tensor | None] | None = None,
    output_final_state: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, tuple[Tensor | None, Tensor]]:
    """:func:`chunk_lightnet`."""
    return _lightnet(
        "fused_recurrent_lightnet",
        q,
        k,
        v,
        scale,
        initial_state,
        output_final_state,
        state_v_first,
        cu_seqlens,
    )
