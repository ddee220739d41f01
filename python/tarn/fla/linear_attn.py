"""fla.ops.linear_attn: linear attention without decay, o_t = scale S_t^T q_t, divided
under `normalize` by scale q_t . z_t + 1e-10 with z_t the sum of the keys so far."""

from typing import Any

import torch
from torch import Tensor

from tarn.fla import _call
from tarn.ops import _checks as checks

__all__ = ["chunk_linear_attn", "fused_chunk_linear_attn", "fused_recurrent_linear_attn"]

_EPS = 1e-10  # of the denominator; sign and size are the caller's, as there


def _with_ones(v: Tensor, state: Any) -> tuple[Tensor, Tensor | None]:
    """Values with a last channel of ones, whose column of the state is z: the denominator
    comes out of the same pass. state: None, S or (S, z [N, 1, H, K]; None: zeros)."""
    S, z = state if isinstance(state, tuple) else (state, None)
    values = torch.nn.functional.pad(_call.wide(v), (0, 1), value=1.0)
    if S is None:
        if z is None:
            return values, None
        S = z.new_zeros(z.shape[0], z.shape[2], z.shape[3], v.shape[-1])
    column = S.new_zeros(S.shape[:3]) if z is None else z.squeeze(1)
    S = _call.wide(S)
    return values, torch.cat([S, column.to(S.dtype).unsqueeze(-1)], -1)


def _linear(op, q, k, v, normalize, scale, initial_state, output_final_state, **options) -> Any:
    if not normalize:
        if isinstance(initial_state, tuple):
            raise checks.type_error(op, "initial_state", "a tensor or normalize=True", "a tuple")
        return _call.recurrence(
            op,
            q,
            k,
            v,
            scale=scale,
            initial_state=initial_state,
            output_final_state=output_final_state,
            **options,
        )
    # The call is float32 throughout: a denominator that was rounded to 16 bits would cost the
    # output its own precision.
    checks.want_tensor(op, "v", v)
    values, state = _with_ones(v, initial_state)
    sums, last = _call.recurrence(
        op,
        _call.wide(q),
        _call.wide(k),
        values,
        scale=scale,
        initial_state=state,
        output_final_state=True,
        **options,
    )
    out = sums[..., :-1] / (sums[..., -1:] + _EPS)
    assert last is not None
    S = last[..., :-1].contiguous() if output_final_state else None
    return out.to(v.dtype), (S, last[..., -1].unsqueeze(1))


def chunk_linear_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Tensor | tuple[Tensor | None, Tensor | None] | None = None,
    output_final_state: bool = False,
    normalize: bool = True,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Any]:
    """q, k: [B, T, H, K]; v: [B, T, H, V]. Returns (o, S [B or N, H, K, V] or None), under
    `normalize` (o, (S or None, z [B or N, 1, H, K])); initial_state takes the same. z is
    float32 for inputs of 16 bits."""
    return _linear(
        "chunk_linear_attn",
        q,
        k,
        v,
        normalize,
        scale,
        initial_state,
        output_final_state,
        cu_seqlens=cu_seqlens,
    )


def fused_chunk_linear_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Tensor | tuple[Tensor | None, Tensor | None] | None = None,
    output_final_state: bool = False,
    normalize: bool = True,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Any]:
    """:func:`chunk_linear_attn`."""
    return _linear(
        "fused_chunk_linear_attn",
        q,
        k,
        v,
        normalize,
        scale,
        initial_state,
        output_final_state,
        cu_seqlens=cu_seqlens,
    )


def fused_recurrent_linear_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Tensor | tuple[Tensor | None, Tensor | None] | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    normalize: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Any]:
    """:func:`chunk_linear_attn`, not normalised unless asked for; reverse: the last token
    of a sequence comes first."""
    return _linear(
        "fused_recurrent_linear_attn",
        q,
        k,
        v,
        normalize,
        scale,
        initial_state,
        output_final_state,
        reverse=reverse,
        cu_seqlens=cu_seqlens,
    )
