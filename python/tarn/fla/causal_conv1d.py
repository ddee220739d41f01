"""causal_conv1d's two functions, by its names and layouts: channels come before time,
and a step changes its window in place."""

from typing import Any

import torch
from torch import Tensor

from tarn import ops
from tarn.fla import _call
from tarn.ops import _checks as checks

__all__ = ["causal_conv1d_fn", "causal_conv1d_update"]

_WORDS = {None: "none", "silu": "silu", "swish": "silu"}


def _activation(op: str, word: str | None) -> str:
    if word not in _WORDS:
        raise checks.value_error(op, "activation", "None, silu or swish", word)
    return _WORDS[word]


def _want(op: str, x: Tensor, weight: Tensor) -> None:
    checks.want_tensor(op, "x", x)
    checks.want_tensor(op, "weight", weight)
    if x.dim() != 3:
        raise checks.value_error(op, "x", "[batch, channels, seq_len]", checks.shape_text(x.shape))
    if weight.dim() != 2 or weight.shape[0] != x.shape[1]:
        wanted = f"[{x.shape[1]}, width]"
        raise checks.value_error(op, "weight", wanted, checks.shape_text(weight.shape))


def _starts(seq_idx: Tensor) -> Tensor:
    """Bounds of the sequences of [B, T] numbers, rows one after the other."""
    new = torch.ones_like(seq_idx, dtype=torch.bool)
    new[:, 1:] = seq_idx[:, 1:] != seq_idx[:, :-1]
    first = new.flatten().nonzero().squeeze(1)
    return torch.cat([first, first.new_full((1,), seq_idx.numel())])


def causal_conv1d_fn(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    seq_idx: Tensor | None = None,
    initial_states: Tensor | None = None,
    return_final_states: bool = False,
    final_states_out: Tensor | None = None,
    activation: str | None = None,
) -> Any:
    """:func:`tarn.ops.short_convolution` of x [B, D, T] by weight [D, W], W from 2 to 8.

    seq_idx: [B, T] integers; a token sees only those with the same number. It excludes
    states. initial_states: [B, D, W - 1], the oldest first. Returns out [B, D, T] in
    the dtype of x, or (out, final states [B, D, W - 1]), written to final_states_out
    where that is given."""
    op = "causal_conv1d_fn"
    _want(op, x, weight)
    word = _activation(op, activation)
    rows = x.transpose(1, 2)
    if seq_idx is not None:
        checks.want_shape(op, "seq_idx", seq_idx, rows.shape[:2])
        if initial_states is not None or return_final_states:
            name = "initial_states" if initial_states is not None else "return_final_states"
            raise checks.value_error(op, name, "none with seq_idx", "both")
        out = ops.short_convolution(
            rows.reshape(1, -1, x.shape[1]),
            weight,
            bias,
            activation=word,
            cu_seqlens=_starts(seq_idx),
        )
        return out.view(rows.shape).transpose(1, 2)
    state = None
    if initial_states is not None:
        checks.want_shape(
            op, "initial_states", initial_states, (x.shape[0], x.shape[1], weight.shape[1] - 1)
        )
        state = _call.wide(initial_states).transpose(1, 2)
        state = state.to(torch.float64 if x.dtype == torch.float64 else torch.float32)
    found = ops.short_convolution(
        rows, weight, bias, activation=word, initial_state=state, return_state=return_final_states
    )
    if isinstance(found, Tensor):
        return found.transpose(1, 2)
    final = found[1].transpose(1, 2).to(x.dtype)
    if final_states_out is not None:
        checks.want_shape(op, "final_states_out", final_states_out, final.shape)
        final = final_states_out.copy_(final)
    return found[0].transpose(1, 2), final


def causal_conv1d_update(
    x: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    cache_seqlens: Tensor | None = None,
    conv_state_indices: Tensor | None = None,
) -> Tensor:
    """One or a few tokens: `conv_state` takes them in, in place.

    x: [B, D] or [B, D, T]; conv_state: [B, D, L] with L >= W - 1, the last inputs, the
    newest last; with conv_state_indices [B], row b is that row of it. Circular
    windows (cache_seqlens) are refused. Returns out in the shape and dtype of x."""
    op = "causal_conv1d_update"
    if cache_seqlens is not None:
        raise _call.want_none(op, "cache_seqlens", cache_seqlens)
    checks.want_tensor(op, "x", x)
    given = x.unsqueeze(-1) if x.dim() == 2 else x
    _want(op, given, weight)
    word = _activation(op, activation)
    kept = weight.shape[1] - 1
    window = conv_state if conv_state_indices is None else conv_state[conv_state_indices]
    length = window.shape[-1]
    if window.shape[:2] != given.shape[:2] or length < kept:
        wanted = f"[{given.shape[0]}, {given.shape[1]}, {kept} or more]"
        raise checks.value_error(op, "conv_state", wanted, checks.shape_text(window.shape))
    if (
        conv_state_indices is None
        and not torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
    ):
        out = torch.ops.tarn.short_convolution_step_.default(window, given, weight, bias, word)
        return out.reshape(x.shape)
    state = window[..., length - kept :].transpose(1, 2)
    state = state.to(torch.float64 if x.dtype == torch.float64 else torch.float32)
    out = ops.short_convolution(
        given.transpose(1, 2), weight, bias, activation=word, initial_state=state
    )
    seen = torch.cat([window, given.to(window.dtype)], -1)[..., -length:]
    if conv_state_indices is None:
        conv_state.copy_(seen)
    else:
        conv_state[conv_state_indices] = seen
    return out.transpose(1, 2).reshape(x.shape)
