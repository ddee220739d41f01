"""fla.ops.gated_delta_product: Gated DeltaProduct (Siems et al. 2025, arXiv 2502.10297):
several steps of the delta rule for each token, which decays first and is read last."""

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from tarn.fla import _call, _delta
from tarn.ops import _checks as checks

__all__ = ["chunk_gated_delta_product"]


def _want(
    op: str, q: Tensor, k: Tensor, v: Tensor, g: Tensor | None, beta: Tensor, steps: int
) -> None:
    for name, x in (("q", q), ("k", k), ("v", v)):
        checks.want_tensor(op, name, x)
        if x.dim() != 4:
            wanted = "[batch, seq_len, heads, width]"
            raise checks.value_error(op, name, wanted, checks.shape_text(x.shape))
    if isinstance(steps, bool) or not isinstance(steps, int):
        raise checks.type_error(op, "num_householder", "an int", type(steps).__name__)
    if steps < 1:
        raise checks.value_error(op, "num_householder", "1 or more", steps)
    batch, tokens, heads, width = q.shape
    checks.want_shape(op, "k", k, (batch, tokens * steps, heads, width))
    checks.want_shape(op, "v", v, (batch, tokens * steps, heads, v.shape[3]))
    checks.want_tensor(op, "beta", beta)
    checks.want_shape(op, "beta", beta, (batch, tokens * steps, heads))
    if g is not None:
        checks.want_tensor(op, "g", g)
        checks.want_shape(op, "g", g, (batch, tokens, heads))


def chunk_gated_delta_product(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None,
    beta: Tensor,
    num_householder: int,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    cp_context: Any = None,
) -> tuple[Tensor, Tensor | None]:
    """With n = num_householder: W_0 = exp(g_t) S_{t-1},
    W_j = W_{j-1} + beta_tj k_tj (v_tj - W_{j-1}^T k_tj)^T for j = 1 .. n, S_t = W_n,
    o_t = scale S_t^T q_t.

    q: [B, T, H, K]; g: [B, T, H], natural logarithms, or None: no decay; k [B, T n, H, K],
    v [B, T n, H, V] and beta [B, T n, H] hold the steps of a token one after the other.
    cu_seqlens counts tokens. The rest is as in :func:`tarn.fla.chunk_gated_delta_rule`;
    it costs what that does on T n tokens."""
    op = "chunk_gated_delta_product"
    if cp_context is not None:
        raise _call.want_none(op, "cp_context", cp_context)
    _want(op, q, k, v, g, beta, num_householder)
    q, k = _delta.lengths_of_1(q, k, use_qk_l2norm_in_kernel)
    skipped, bounds = num_householder - 1, cu_seqlens
    # Queries at the last step of a token, gates at its first.
    queries = F.pad(q.unsqueeze(2), (0, 0, 0, 0, skipped, 0)).flatten(1, 2)
    gates = None if g is None else F.pad(g.unsqueeze(2), (0, 0, 0, skipped)).flatten(1, 2)
    if bounds is not None:
        checks.want_tensor(op, "cu_seqlens", bounds)
        bounds = bounds * num_householder
    out, state = _call.recurrence(
        op,
        queries,
        k,
        v,
        gates=gates,
        betas=beta,
        scale=scale,
        initial_state=initial_state,
        output_final_state=output_final_state,
        cu_seqlens=bounds,
    )
    return out[:, skipped::num_householder].contiguous(), state
