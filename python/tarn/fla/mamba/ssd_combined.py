"""mamba_chunk_scan_combined, and the whole of a layer around it."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tarn import ops
from tarn.fla import _call
from tarn.fla.causal_conv1d import causal_conv1d_fn
from tarn.ops import _checks as checks

__all__ = ["mamba_chunk_scan_combined", "mamba_split_conv1d_scan_combined"]


def steps_of(dt: Tensor, dt_bias: Tensor | None, dt_softplus: bool) -> Tensor:
    """dt + dt_bias, its softplus under dt_softplus, in float32 at least; dt_bias: [H], or
    the last axes of dt."""
    if dt_softplus:
        axes = 1 if dt_bias is None else dt_bias.dim()
        bias = None if dt_bias is None else dt_bias.flatten()
        _, steps = ops.decay_gate(dt.flatten(-axes), None, bias, return_second=True)
        return steps.view(dt.shape)
    return _call.wide(dt) if dt_bias is None else _call.wide(dt) + _call.wide(dt_bias)


def _resets(gates: Tensor, seq_idx: Tensor) -> Tensor:
    """Gates [B, T, H] that forget exactly where the number of the sequence changes; the
    initial state is that of sequence 0, as there."""
    before = F.pad(seq_idx[:, :-1], (1, 0)) if seq_idx.shape[1] else seq_idx
    return gates.masked_fill((seq_idx != before).unsqueeze(-1), -torch.inf)


def mamba_chunk_scan_combined(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    chunk_size: int,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    initial_states: Tensor | None = None,
    seq_idx: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    return_final_states: bool = False,
    return_varlen_states: bool = False,
) -> Any:
    """S_t = exp(d_t A) S_{t-1} + B_t (d_t x_t)^T, out_t = (S_t^T C_t + D x_t) silu(z_t) with
    d = dt + dt_bias, its softplus under dt_softplus, clamped to dt_limit.

    x, z: [B, T, H, P]; dt: [B, T, H]; A, dt_bias: [H]; B, C: [B, T, G, N], G a divisor of
    H; D: [H] or [H, P]; initial_states: [B, H, P, N]; seq_idx: [B, T] integers, the
    state starts again where they change. chunk_size is a hint. Returns out [B, T, H, P]
    in the dtype of x, followed by the states asked for: those at the end of the
    rows, and under return_varlen_states (B = 1) those at the ends of the sequences of
    cu_seqlens, which is read for nothing else, [sequences, H, P, N]."""
    op = "mamba_chunk_scan_combined"
    for name, tensor in {"x": x, "dt": dt, "A": A, "B": B, "C": C}.items():
        checks.want_tensor(op, name, tensor)
    if x.dim() != 4 or B.dim() != 4:
        name, given = ("x", x) if x.dim() != 4 else ("B", B)
        raise checks.value_error(op, name, "4 axes", checks.shape_text(given.shape))
    heads, states = x.shape[2], (x.shape[0], x.shape[2], x.shape[3], B.shape[3])
    checks.want_shape(op, "dt", dt, x.shape[:3])
    checks.want_shape(op, "A", A, (heads,))
    if initial_states is not None:
        checks.want_shape(op, "initial_states", initial_states, states)
    if seq_idx is not None:
        checks.want_shape(op, "seq_idx", seq_idx, x.shape[:2])
    if return_varlen_states and (cu_seqlens is None or x.shape[0] != 1):
        wanted = "a tensor and a batch of 1 with return_varlen_states"
        raise checks.value_error(
            op, "cu_seqlens", wanted, cu_seqlens if x.shape[0] == 1 else x.shape[0]
        )
    steps = steps_of(dt, dt_bias, dt_softplus).clamp(*dt_limit)
    gates = steps * _call.wide(A)
    if seq_idx is not None:
        gates = _resets(gates, seq_idx)
    dtype = torch.promote_types(torch.promote_types(x.dtype, B.dtype), C.dtype)
    values = ops.head_scale(x.to(dtype), steps)
    kind = torch.float64 if dtype == torch.float64 else torch.float32
    initial = None if initial_states is None else initial_states.to(kind).mT
    main = (C.to(dtype), B.to(dtype), values)
    out, last = ops.decay_attention(
        *main, gates=gates, scale=1.0, initial_state=initial, return_state=True
    )
    out = _finished(out, x, D, z)
    found = [out] + ([last.mT.contiguous()] if return_final_states else [])
    if return_varlen_states:
        assert cu_seqlens is not None
        _, ends = ops.decay_attention(
            *main,
            gates=gates,
            scale=1.0,
            cu_seqlens=cu_seqlens,
            return_state=True,
            initial_state=_first_alone(initial, cu_seqlens),
        )
        found.append(ends.mT.contiguous())
    return found[0] if len(found) == 1 else tuple(found)


def _first_alone(initial: Tensor | None, cu_seqlens: Tensor) -> Tensor | None:
    """The initial state of a row for its first sequence, zeros for the others."""
    if initial is None:
        return None
    count = cu_seqlens.shape[0] - 1
    return torch.cat([initial, initial.new_zeros(count, *initial.shape[1:])])[:count]


def _finished(out: Tensor, x: Tensor, D: Tensor | None, z: Tensor | None) -> Tensor:
    if D is not None:
        out = _call.wide(out)  # rounded once, after the gate
        out = ops.head_scale(x, D, out) if D.dim() == 1 else out + x * D
    if z is not None:
        out = _call.wide(out) * F.silu(_call.wide(z))
    return out.to(x.dtype)


def _parts_of(
    op: str, zxbcdt: Tensor, conv1d_weight: Tensor, D: Tensor, headdim: int | None, ngroups: int
) -> tuple[int, int, int, int]:
    """Heads H, their width P, states N, and the width E of the gated part without a state,
    from shapes: zxbcdt is [B, T, 2 E + 2 H P + 2 G N + H], the convolution has H P + 2 G N
    channels."""
    for name, x, axes in (("zxbcdt", zxbcdt, 3), ("conv1d_weight", conv1d_weight, 2)):
        checks.want_tensor(op, name, x)
        if x.dim() != axes:
            raise checks.value_error(op, name, f"{axes} axes", checks.shape_text(x.shape))
    checks.want_tensor(op, "D", D)
    if D.dim() == 1 and headdim is None:
        raise checks.value_error(op, "headdim", "a width with D [heads]", None)
    heads, width = D.shape[0], D.shape[1] if D.dim() == 2 else int(headdim or 0)
    if ngroups < 1 or heads % ngroups != 0:
        raise checks.value_error(op, "ngroups", f"a divisor of {heads}", ngroups)
    inner, channels = heads * width, conv1d_weight.shape[0]
    if channels < inner or (channels - inner) % (2 * ngroups) != 0:
        wanted = f"{inner} channels and a multiple of {2 * ngroups}"
        raise checks.value_error(op, "conv1d_weight", wanted, channels)
    spare = zxbcdt.shape[2] - inner - channels - heads
    if spare < 0 or spare % 2 != 0:
        wanted = f"a width of {inner + channels + heads}, or more by an even number"
        raise checks.value_error(op, "zxbcdt", wanted, zxbcdt.shape[2])
    return heads, width, (channels - inner) // (2 * ngroups), spare // 2


def mamba_split_conv1d_scan_combined(
    zxbcdt: Tensor,
    conv1d_weight: Tensor,
    conv1d_bias: Tensor | None,
    dt_bias: Tensor,
    A: Tensor,
    D: Tensor,
    chunk_size: int,
    initial_states: Tensor | None = None,
    seq_idx: Tensor | None = None,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    return_final_states: bool = False,
    activation: str | None = "silu",
    rmsnorm_weight: Tensor | None = None,
    rmsnorm_eps: float = 1e-6,
    outproj_weight: Tensor | None = None,
    outproj_bias: Tensor | None = None,
    headdim: int | None = None,
    ngroups: int = 1,
    norm_before_gate: bool = True,
) -> Any:
    """A layer of Mamba-2 after its first product: the convolution of x, B and C,
    :func:`mamba_chunk_scan_combined` with dt_softplus, the gate z, the norm, the last product.

    zxbcdt: [B, T, 2 E + 2 H P + 2 G N + H], in this order two parts of width E, z, x, B, C
    and dt; of the first two silu(a) b goes in front of the rest, E = 0 in a plain layer.
    conv1d_weight: [H P + 2 G N, W]; dt_bias, A: [H]; D: [H], with P as headdim, or [H, P];
    G is ngroups. Without rmsnorm_weight [H P] the result is y silu(z), with it the RMS norm of
    each of the G groups, of y and then times silu(z) under norm_before_gate, of y
    silu(z) otherwise. outproj_weight: [out, E + H P]. Returns [B, T, E + H P] or [B, T,
    out], and under return_final_states also the states [B, H, P, N]."""
    op = "mamba_split_conv1d_scan_combined"
    heads, width, states, spare = _parts_of(op, zxbcdt, conv1d_weight, D, headdim, ngroups)
    if activation not in (None, "silu", "swish"):
        raise checks.value_error(op, "activation", "None, silu or swish", activation)
    for name, x in (("dt_bias", dt_bias), ("A", A)):
        checks.want_tensor(op, name, x)
        checks.want_shape(op, name, x, (heads,))
    inner, rows = heads * width, zxbcdt.shape[:2]
    if rmsnorm_weight is not None:
        checks.want_shape(op, "rmsnorm_weight", rmsnorm_weight, (inner,))
    pair, z, xBC, dt = zxbcdt.split([2 * spare, inner, conv1d_weight.shape[0], heads], -1)
    xBC = causal_conv1d_fn(
        xBC.transpose(1, 2), conv1d_weight, conv1d_bias, seq_idx, activation=activation
    )
    x, B, C = xBC.transpose(1, 2).split([inner, ngroups * states, ngroups * states], -1)
    y, last = mamba_chunk_scan_combined(
        x.unflatten(-1, (heads, width)),
        dt,
        A,
        B.unflatten(-1, (ngroups, states)),
        C.unflatten(-1, (ngroups, states)),
        chunk_size,
        D,
        z.unflatten(-1, (heads, width)) if rmsnorm_weight is None else None,
        dt_bias,
        initial_states,
        seq_idx,
        None,
        True,
        dt_limit,
        return_final_states=True,
    )
    out = y.reshape(*rows, inner)
    if rmsnorm_weight is not None:
        groups = (ngroups, inner // ngroups)
        out = ops.gated_norm(
            out.unflatten(-1, groups),
            rmsnorm_weight.view(groups),
            None,
            z.unflatten(-1, groups),
            eps=rmsnorm_eps,
            gate_first=not norm_before_gate,
        ).flatten(-2)
    if spare > 0:
        first, second = pair.chunk(2, -1)
        gated = (F.silu(_call.wide(first)) * _call.wide(second)).to(out.dtype)
        out = torch.cat([gated, out], -1)
    if outproj_weight is not None:
        out = F.linear(out, outproj_weight, outproj_bias)
    return (out, last) if return_final_states else out
