"""selective_state_update: one token."""

import torch
from torch import Tensor
from torch.nn import functional as F

from tarn import ops
from tarn.fla import _call
from tarn.fla.mamba.ssd_combined import steps_of
from tarn.ops import _checks as checks

__all__ = ["selective_state_update"]

# Of a channel, in one pass of tarn.ops.selective_scan.
_MOST_STATES = 128


def _one_number_a_head(A: Tensor, dt: Tensor, dt_bias: Tensor | None) -> bool:
    """Whether each is a number of the head, expanded: seen without reading any."""
    axes = [(A, -1), (A, -2), (dt, -1)] + ([] if dt_bias is None else [(dt_bias, -1)])
    return all(one.stride(axis) == 0 or one.shape[axis] == 1 for one, axis in axes)


def _one_token(
    old: Tensor,
    x: Tensor,
    dt: Tensor,
    dt_bias: Tensor | None,
    dt_softplus: bool,
    A: Tensor,
    B: Tensor,
    C: Tensor,
) -> tuple[Tensor, Tensor]:
    """The state after the token and what C reads from it, in float32 at least; with
    every axis of :func:`selective_state_update`."""
    heads = old.shape[1]
    keys = _call.wide(B).repeat_interleave(heads // B.shape[1], 1)
    if _one_number_a_head(A, dt, dt_bias):
        step = steps_of(dt[..., 0], None if dt_bias is None else dt_bias[..., 0], dt_softplus)
        new = _next_state(
            old, _call.wide(x) * step.unsqueeze(-1), keys, step * _call.wide(A[:, 0, 0])
        )
    elif heads == 1 and old.shape[-1] <= _MOST_STATES:
        token = ops.selective_scan(
            _call.wide(x),
            steps_of(dt, dt_bias, dt_softplus),
            A[0],
            B,
            C,
            initial_state=_call.wide(old[:, 0]),
            return_state=True,
        )
        return token[1].unsqueeze(1), token[0]
    else:
        steps = steps_of(dt, dt_bias, dt_softplus).unsqueeze(-1)
        new = old * (steps * _call.wide(A)).exp() + steps * _call.wide(x).unsqueeze(
            -1
        ) * keys.unsqueeze(2)
    queries = _call.wide(C).to(new.dtype).repeat_interleave(heads // C.shape[1], 1)
    return new, torch.matmul(new, queries.unsqueeze(-1)).squeeze(-1)


def _next_state(old: Tensor, written: Tensor, keys: Tensor, gates: Tensor) -> Tensor:
    """exp(gates) old + written keys^T; old [B, H, P, N], written [B, H, P], keys [B, H, N],
    gates [B, H]. A state with values first is one whose keys are what is written, and whose
    values are the keys; what the step reads from it is of no use."""
    dtype = torch.float64 if old.dtype == torch.float64 else torch.float32
    key, value = written.to(dtype).unsqueeze(1), keys.to(dtype).unsqueeze(1)
    _, new = ops.decay_attention(
        key,
        key,
        value,
        gates=gates.to(dtype).unsqueeze(1),
        scale=1.0,
        initial_state=old.to(dtype),
        return_state=True,
    )
    return new


def selective_state_update(
    state: Tensor,
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
    state_batch_indices: Tensor | None = None,
) -> Tensor:
    """One token: `state` is changed in place, the result is out in the shape of x.

    state: [B, H, P, N]; x, dt, z: [B, H, P]; A: [H, P, N]; B, C: [B, G, N], G a divisor
    of H; D, dt_bias: [H, P]; each without its axis H (and G) for a single head. With
    state_batch_indices [B], row b is that row of `state`. Where A, dt and dt_bias hold one
    number a head, as Mamba-2 expands them (strides of 0), the state takes the step of
    :func:`tarn.ops.decay_attention`, outside of autograd and in float32 on its device.
    Elsewhere every number of A may differ: :func:`tarn.ops.selective_scan` computes it where
    there is one head, as in Mamba-1, and torch's operators in several passes where there are
    more, both in float32."""
    op = "selective_state_update"
    one_head = state.dim() == 3
    if one_head:
        every = [one if one is None else one.unsqueeze(1) for one in (state, x, dt, B, C, z)]
        shared = [one if one is None else one.unsqueeze(0) for one in (A, D, dt_bias)]
        rows, x_, dt_, B_, C_, z_ = every
        A_, D_, bias = shared
    else:
        rows, x_, dt_, B_, C_, z_, A_, D_, bias = state, x, dt, B, C, z, A, D, dt_bias
    assert rows is not None and x_ is not None and B_ is not None and C_ is not None
    assert A_ is not None and dt_ is not None
    heads, width, states = rows.shape[1:]
    batch = rows.shape[0] if state_batch_indices is None else state_batch_indices.shape[0]
    checks.want_shape(op, "x", x_, (batch, heads, width))
    checks.want_shape(op, "dt", dt_, x_.shape)
    checks.want_shape(op, "A", A_, rows.shape[1:])
    if heads % B_.shape[1] != 0:
        raise checks.value_error(op, "B", f"groups that divide {heads}", B_.shape[1])
    checks.want_shape(op, "B", B_, (batch, B_.shape[1], states))
    checks.want_shape(op, "C", C_, B_.shape)
    old = rows if state_batch_indices is None else rows[state_batch_indices]
    if _in_place(old, x_, dt_, A_, B_, C_, D_, bias):
        first = [None if one is None else one[..., 0] for one in (D_, bias)]
        out = torch.ops.tarn.state_space_step_.default(
            old, x_, dt_[..., 0], A_[:, 0, 0], B_, C_, *first, dt_softplus
        )
        if state_batch_indices is not None:
            rows[state_batch_indices] = old
        return _gated(out, z_).to(x.dtype).reshape(x.shape)
    # Autocast would lower what is kept from token to token.
    with torch.autocast(x.device.type, enabled=False):
        new, out = _one_token(old, x_, dt_, bias, dt_softplus, A_, B_, C_)
    if state_batch_indices is None:
        rows.copy_(new)
    else:
        rows[state_batch_indices] = new.to(rows.dtype)
    if D_ is not None:
        out = out + x_ * D_
    return _gated(out, z_).to(x.dtype).reshape(x.shape)


def _in_place(state: Tensor, *reads: Tensor | None) -> bool:
    """Whether the kernel takes the token as it is: what is read is x, dt, A, B, C, D and
    dt_bias. Elsewhere the same is composed."""
    _, dt, A, _, _, D, bias = reads
    assert dt is not None and A is not None
    return (
        not torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
        and state.is_contiguous()
        and all(
            one is None
            or (one.dtype == torch.float32 and type(one) in (Tensor, torch.nn.Parameter))
            for one in (state, *reads)
        )
        and _one_number_a_head(A, dt, bias)
        and (D is None or D.stride(-1) == 0 or D.shape[-1] == 1)
    )


def _gated(out: Tensor, z: Tensor | None) -> Tensor:
    return out if z is None else out * F.silu(_call.wide(z))
