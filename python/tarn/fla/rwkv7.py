"""fla.ops.rwkv7: the recurrence of RWKV-7 (Peng et al. 2025, arXiv 2503.14456), DPLR with
its names: r reads, w are logarithms of decay, a is -kappa and b is kappa times alpha."""

from typing import Any

from torch import Tensor

from tarn.fla.generalized_delta_rule import chunk_dplr_delta_rule, recurrence

__all__ = ["chunk_rwkv7", "fused_mul_recurrent_rwkv7", "fused_recurrent_rwkv7"]


def chunk_rwkv7(
    r: Tensor,
    w: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    scale: float = 1.0,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    safe_gate: bool = False,
    chunk_size: int | None = None,
    disable_recompute: bool = False,
    cp_context: Any = None,
    lower_bound: float | None = None,
) -> tuple[Tensor, Tensor | None]:
    """:func:`tarn.fla.chunk_dplr_delta_rule` of r, k, v, a, b and the gates w."""
    return chunk_dplr_delta_rule(
        r,
        k,
        v,
        a,
        b,
        w,
        scale,
        initial_state,
        output_final_state,
        cu_seqlens,
        cp_context=cp_context,
        lower_bound=lower_bound,
    )


def fused_recurrent_rwkv7(
    r: Tensor,
    w: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = True,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """:func:`chunk_rwkv7` with the original's other defaults: scale None is K^-1/2, and the
    state is returned."""
    return recurrence(
        "fused_recurrent_rwkv7",
        r,
        k,
        v,
        a,
        b,
        w,
        scale=scale,
        initial_state=initial_state,
        output_final_state=output_final_state,
        cu_seqlens=cu_seqlens,
    )


def fused_mul_recurrent_rwkv7(
    r: Tensor,
    w: Tensor,
    k: Tensor,
    v: Tensor,
    kk: Tensor,
    a: Tensor,
    scale: float = 1.0,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """:func:`chunk_rwkv7` from kk (kappa) and a (alpha): a = -kk and b = kk * a there.
    reverse: the last token of a sequence comes first."""
    return recurrence(
        "fused_mul_recurrent_rwkv7",
        r,
        k,
        v,
        -kk,
        kk * a,
        w,
        scale=scale,
        initial_state=initial_state,
        output_final_state=output_final_state,
        reverse=reverse,
        cu_seqlens=cu_seqlens,
    )
