"""What the functions of the delta rule do to their arguments before the recurrence, so
that gradients reach what was given: lengths of queries and keys, gates from raw inputs,
betas from raw inputs."""

from torch import Tensor

from tarn import ops
from tarn.fla import _call
from tarn.ops import _checks as checks


def lengths_of_1(q: Tensor, k: Tensor, use_qk_l2norm_in_kernel: bool) -> tuple[Tensor, Tensor]:
    """x / sqrt(sum x^2 + 1e-6), in the dtype of x."""
    return (ops.unit_norm(q), ops.unit_norm(k)) if use_qk_l2norm_in_kernel else (q, k)


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
            op, "allow_neg_eigval", "use_beta_sigmoid_in_kernel=True with it", "False"
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
    for name, given, count in (("dt_bias", dt_bias, rows.numel()), ("A_log", A_log, rows[0])):
        if given is not None and given.numel() != count:
            wanted = checks.shape_text([count])
            raise checks.value_error(op, name, wanted, checks.shape_text(given.shape))
    shared = [None if one is None else one.flatten() for one in (A_log, dt_bias)]
    if lower_bound is None:
        gates = ops.decay_gate(g.flatten(2), *shared)
    else:
        gates = ops.decay_gate(g.flatten(2), *shared, form="sigmoid", scale=-lower_bound)
    return gates.view(g.shape)
