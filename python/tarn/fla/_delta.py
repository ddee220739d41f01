"""What the functions of the delta rule do to their arguments before the recurrence, in
torch's operators, so that gradients reach what was given: lengths of queries and keys,
gates from raw inputs, betas from raw inputs."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tarn.fla import _call
from tarn.ops import _checks as checks
from tarn.ops._gated import normalized


def lengths_of_1(q: Tensor, k: Tensor, use_qk_l2norm_in_kernel: bool) -> tuple[Tensor, Tensor]:
    """x / sqrt(sum x^2 + 1e-6), in the dtype of x."""
    return (normalized(q), normalized(k)) if use_qk_l2norm_in_kernel else (q, k)


def betas_of(
    op: str,
    beta: Tensor | None,
    v: Tensor,
    use_beta_sigmoid_in_kernel: bool,
    allow_neg_eigval: bool,
) -> Tensor:
    """[B, T, HV], or [B, T, HV, V] with one for each value channel; None: ones."""
    if allow_neg_eigval and not use_beta_sigmoid_in_kernel:
        raise checks.value_error(
            op, "allow_neg_eigval", "use_beta_sigmoid_in_kernel=True beside it", "False"
        )
    if beta is None:
        return v.new_ones(v.shape[:3])
    checks.want_tensor(op, "beta", beta)
    checks.want_shape(op, "beta", beta, v.shape if beta.dim() == 4 else v.shape[:3])
    if not use_beta_sigmoid_in_kernel:
        return beta
    return _call.wide(beta).sigmoid() * (2.0 if allow_neg_eigval else 1.0)


def gate_of(
    op: str,
    g: Tensor,
    A_log: Tensor | None,
    dt_bias: Tensor | None,
    lower_bound: float | None = None,
) -> Tensor:
    """-exp(A_log) softplus(g + dt_bias), or with a lower bound L its form between L and 0,
    L sigmoid(exp(A_log) (g + dt_bias)). g: [B, T, HV] or [B, T, HV, K]; A_log: HV numbers
    of any shape, None: a factor of 1; dt_bias: as many as g has for a token."""
    rows = g.shape[2:]
    x = _call.wide(g)
    if dt_bias is not None:
        if dt_bias.numel() != rows.numel():
            wanted = checks.shape_text([rows.numel()])
            raise checks.value_error(op, "dt_bias", wanted, checks.shape_text(dt_bias.shape))
        x = x + _call.wide(dt_bias).reshape(rows)
    rate: Any = 1.0
    if A_log is not None:
        if A_log.numel() != rows[0]:
            wanted = checks.shape_text([rows[0]])
            raise checks.value_error(op, "A_log", wanted, checks.shape_text(A_log.shape))
        rate = _call.wide(A_log).exp().reshape(-1, *[1] * (len(rows) - 1))
    if lower_bound is not None:
        return lower_bound * torch.sigmoid(rate * x)
    return -rate * F.softplus(x)
