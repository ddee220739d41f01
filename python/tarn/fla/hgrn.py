"""fla.ops.hgrn: a state of one number for each channel (Qin et al. 2023, arXiv
2311.04823)."""

import torch
from torch import Tensor

from tarn import ops
from tarn.ops import _checks as checks

__all__ = ["chunk_hgrn", "fused_recurrent_hgrn"]


def _run(
    op: str,
    x: Tensor,
    g: Tensor,
    initial_state: Tensor | None,
    output_final_state: bool,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    checks.want_tensor(op, "x", x)
    checks.want_tensor(op, "g", g)
    if x.dim() != 3:
        wanted = "[batch, seq_len, channels]"
        raise checks.value_error(op, "x", wanted, checks.shape_text(x.shape))
    checks.want_shape(op, "g", g, x.shape)
    states = x.shape[0]
    if cu_seqlens is not None:
        checks.want_tensor(op, "cu_seqlens", cu_seqlens)
        if x.shape[0] != 1:
            raise checks.value_error(op, "x (with cu_seqlens)", "a batch of 1", x.shape[0])
        states = cu_seqlens.shape[0] - 1
    if initial_state is not None:
        checks.want_tensor(op, "initial_state", initial_state)
        checks.want_shape(op, "initial_state", initial_state, (states, x.shape[2]))
        kind = torch.float64 if x.dtype == torch.float64 else torch.float32
        initial_state = initial_state.to(kind)
    out, state = ops.elementwise_recurrence(
        x, g, initial_state=initial_state, cu_seqlens=cu_seqlens, return_state=True
    )
    return out, state if output_final_state else None


def chunk_hgrn(
    x: Tensor,
    g: Tensor,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """h_t = exp(g_t) h_{t-1} + x_t in every channel, o_t = h_t.

    x, g: [B, T, D]; initial_state: [B, D]. Returns o in the dtype of x and the state
    after the last token in float32 (float64 for float64), None unless asked for. The
    initial state receives its gradient, which the original leaves out here."""
    return _run("chunk_hgrn", x, g, initial_state, output_final_state)


def fused_recurrent_hgrn(
    x: Tensor,
    g: Tensor,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """:func:`chunk_hgrn`, also of sequences packed along T: cu_seqlens [N + 1] with B = 1,
    states [N, D]."""
    return _run("fused_recurrent_hgrn", x, g, initial_state, output_final_state, cu_seqlens)
