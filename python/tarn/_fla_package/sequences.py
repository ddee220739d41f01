"""What in fla.modules and in its RWKV layers looks back in time or mixes tokens, on the
CPU: convolutions by `tarn.ops`, the rest in torch's operators."""

from __future__ import annotations

import torch
from torch import Tensor

from tarn import ops
from tarn.fla._call import want_none, wide
from tarn.ops import _checks as checks


def _last_inputs(
    x: Tensor, count: int, initial_state: Tensor | None, cu_seqlens: Tensor | None
) -> Tensor:
    """[N, D, count]: the last inputs of each sequence of x [B, T, D], the oldest first;
    before its first those of initial_state [N, D, count], or zeros."""
    if cu_seqlens is None:
        before = (
            x.new_zeros(x.shape[0], x.shape[2], count)
            if initial_state is None
            else initial_state.to(x.dtype)
        )
        return torch.cat([before, x.transpose(1, 2)], -1)[..., -count:].contiguous()
    bounds = cu_seqlens.long()
    place = bounds[1:, None] + torch.arange(-count, 0, device=x.device)
    known = place >= bounds[:-1, None]
    found = x[0][place.clamp(min=0)] * known[..., None]
    if initial_state is not None:
        back = (place - bounds[:-1, None] + count).clamp(0, count - 1)
        old = initial_state.to(x.dtype).transpose(1, 2)
        old = old.gather(1, back[..., None].expand(-1, -1, x.shape[2]))
        found = torch.where(known[..., None], found, old)
    return found.transpose(1, 2).contiguous()


def _wanted(op: str, weight: Tensor | None) -> Tensor:
    """The original's default is None too, which no call can mean."""
    checks.want_tensor(op, "weight", weight)
    assert weight is not None
    return weight


def _convolution(
    x: Tensor,
    rows: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    activation: str | None,
    state: Tensor | None,
    cu_seqlens: Tensor | None = None,
) -> Tensor:
    """The convolution of rows, which are x, and the residual, added before the only rounding."""
    if residual is not None:
        rows, weight = wide(rows), wide(weight)
        bias = None if bias is None else wide(bias)
    y = ops.short_convolution(
        rows,
        weight,
        bias,
        activation="none" if activation is None else "silu",
        cu_seqlens=cu_seqlens,
        initial_state=state,
    ).view(x.shape)
    return y if residual is None else (y + wide(residual)).to(x.dtype)


def causal_conv1d(
    x,
    weight=None,
    bias=None,
    residual=None,
    initial_state=None,
    output_final_state=False,
    activation=None,
    backend="triton",
    cu_seqlens=None,
    cu_seqlens_cpu=None,
    chunk_indices=None,
    cp_context=None,
    **kwargs,
):
    if cp_context is not None:
        raise want_none("causal_conv1d", "cp_context", cp_context)
    weight = _wanted("causal_conv1d", weight)
    rows = x.flatten(2)
    state = None if initial_state is None else wide(initial_state[..., 1:].transpose(1, 2))
    y = _convolution(x, rows, weight, bias, residual, activation, state, cu_seqlens)
    final_state = None
    if output_final_state:
        final_state = _last_inputs(rows, weight.shape[1], initial_state, cu_seqlens)
    return y, final_state


def causal_conv1d_update(x, cache, residual=None, weight=None, bias=None, activation=None):
    """One token of each of N sequences; cache [N, D, W] is changed in place."""
    weight = _wanted("causal_conv1d_update", weight)
    rows = x.reshape(cache.shape[0], 1, cache.shape[1])
    state = wide(cache[..., 1:].transpose(1, 2)).contiguous()
    y = _convolution(x, rows, weight, bias, residual, activation, state)
    cache.copy_(torch.cat([cache[..., 1:], rows.transpose(1, 2).to(cache.dtype)], -1))
    return y, cache


def token_shift(x, cu_seqlens=None, cache=None, output_cache=False, chunk_indices=None):
    """The token before each, less the token itself; before the first is `cache`
    [N, D] or zero. The new cache is the last token of each sequence."""
    count = x.shape[0] if cu_seqlens is None else len(cu_seqlens) - 1
    before = None if cache is None else cache.reshape(count, -1)
    change = ops.token_shift(x, before=before, cu_seqlens=cu_seqlens)
    if not output_cache:
        return change
    if cu_seqlens is None:
        return change, x[:, -1]
    start = None if before is None else before.unsqueeze(-1)
    return change, _last_inputs(x, 1, start, cu_seqlens)[..., 0]


# ---- RWKV-7's own.


def fused_addcmul_rwkv7(hidden_states, delta, xr, xw, xk, xv, xa, xg=None):
    mixes = (xr, xw, xk, xv, xa, xg)
    given = [one for one in mixes if one is not None]
    made = iter(torch.ops.tarn.row_mixes.default(hidden_states, delta, given))
    return tuple(None if one is None else next(made) for one in mixes)


def fused_k_rwkv7(k, a, ka, cu_seqlens=None, cu_seqlens_cpu=None):
    return torch.ops.tarn.entry_form.default(k, a, ka, "mixed_gate")


def gate_output_correction(o, r, k, r_k, v, g):
    return torch.ops.tarn.gate_correction.default(o, r, k, r_k, v, g)


def channel_mixing_rwkv7(x, x_prev, x_k, key_weight, value_weight, inplace=True):
    """relu((x + (token before - x) x_k) key_weight)^2 value_weight, and x[-1], the original's
    second result. x: [B, T, D]; the row before the first token is x_prev [B, D]."""
    op = "channel_mixing_rwkv7"
    for name, one in (("x", x), ("x_prev", x_prev), ("x_k", x_k)):
        checks.want_tensor(op, name, one)
    if x.dim() != 3:
        raise checks.value_error(op, "x", "[batch, seq_len, width]", checks.shape_text(x.shape))
    if x_prev.numel() != x.shape[0] * x.shape[2]:
        wanted = checks.shape_text([x.shape[0], x.shape[2]])
        raise checks.value_error(op, "x_prev", wanted, checks.shape_text(x_prev.shape))
    before = x_prev.reshape(x.shape[0], -1)
    mixed = ops.token_shift(x, x_k.flatten(), before=before)
    hidden = torch.ops.tarn.entry_form.default(mixed @ key_weight, None, None, "square_relu")
    return hidden @ value_weight, x[-1]
