"""What the functions of this package share: the arguments that all of them take, and
the way from them to `tarn.ops`. Names and layouts are flash-linear-attention's."""

import warnings
from typing import Any

import torch
from torch import Tensor

from tarn import ops
from tarn.fla import _value_gates
from tarn.ops import _checks as checks

# Arguments that are taken and ignored wherever a function takes further arguments by name:
# they choose kernels, or repeat on the host what is on a device.
HINTS = (
    "chunk_indices",
    "chunk_size",
    "cu_seqlens_cpu",
    "disable_recompute",
    "max_num_seqs",
    "safe_gate",
    "use_graph",
)


def refuse_unknown(op: str, given: dict[str, Any]) -> None:
    """What is left of a call's **kwargs: hints pass. Time comes before heads in every
    function; the exception for `head_first` is the one that callers know."""
    if "head_first" in given:
        raise DeprecationWarning(
            f"{op}: head_first: want tensors [batch, seq_len, heads, width], "
            "got the argument that asked for another layout"
        )
    if given.get("cp_context") is not None:
        raise want_none(op, "cp_context", given["cp_context"])
    for name in given:
        if name not in HINTS and name != "cp_context":
            raise TypeError(f"{op}: got an unexpected keyword argument {name!r}")


def want_none(op: str, name: str, given: Any) -> ValueError:
    return checks.value_error(op, name, "None (not supported here)", type(given).__name__)


def v_first(op: str, state_v_first: bool, given: dict[str, Any]) -> bool:
    """Whether states are [V, K]; takes the flag's former name out of `given`."""
    if "transpose_state_layout" not in given:
        return bool(state_v_first)
    if state_v_first:
        raise ValueError(f"{op}: state_v_first: want it alone, got transpose_state_layout as well")
    warnings.warn(
        f"{op}: transpose_state_layout is now called state_v_first",
        DeprecationWarning,
        stacklevel=3,
    )
    return bool(given.pop("transpose_state_layout"))


def want_chunk_size(op: str, given: dict[str, Any], sizes: tuple[int, ...] | None) -> None:
    """chunk_size is a hint that must still be a size the original has; None: powers of 2."""
    size = given.pop("chunk_size", None)
    if size is None:
        return
    if (size < 1 or size & (size - 1)) if sizes is None else size not in sizes:
        wanted = "a power of 2" if sizes is None else "one of " + ", ".join(map(str, sizes))
        raise checks.value_error(op, "chunk_size", wanted, size)


def want_axes(op: str, name: str, x: Tensor, axes: int, wanted: str) -> None:
    checks.want_tensor(op, name, x)
    if x.dim() < axes:
        raise checks.value_error(op, name, wanted, checks.shape_text(x.shape))


def wide(x: Tensor) -> Tensor:
    """x in float32, or float64 where it is that."""
    return x if x.dtype == torch.float64 else x.float()


def gates_of(head: Tensor | None, token: Tensor | None, channel: Tensor | None) -> Tensor | None:
    """One tensor of gates from those of heads [HV], tokens [B, T, HV] and channels
    [B, T, HV, K]: logarithms of factors that multiply."""
    if head is not None and token is not None:
        head, token = None, wide(token) + wide(head)
    found = head if token is None else token
    if channel is None or found is None:
        return found if channel is None else channel
    return wide(channel) + wide(found).unsqueeze(-1)


def _want_call(op, q, k, v, initial_state, v_first, cu_seqlens, grouped):
    """Checks what the original checks; returns the number of states."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        checks.want_tensor(op, name, x)
        if x.dim() != 4:
            wanted = "[batch, seq_len, heads, width]"
            raise checks.value_error(op, name, wanted, checks.shape_text(x.shape))
    checks.want_shape(op, "k", k, q.shape)
    heads = v.shape[2] if grouped and v.shape[2] % max(q.shape[2], 1) == 0 else q.shape[2]
    checks.want_shape(op, "v", v, (*q.shape[:2], heads, v.shape[3]))
    states = q.shape[0]
    if cu_seqlens is not None:
        checks.want_tensor(op, "cu_seqlens", cu_seqlens)
        if q.shape[0] != 1:
            raise checks.value_error(op, "q (with cu_seqlens)", "a batch of 1", q.shape[0])
        states = cu_seqlens.shape[0] - 1
    if initial_state is not None:
        checks.want_tensor(op, "initial_state", initial_state)
        widths = (v.shape[3], q.shape[3]) if v_first else (q.shape[3], v.shape[3])
        checks.want_shape(op, "initial_state", initial_state, (states, heads, *widths))


def _by_channel(v, gates, value_gates, betas, state):
    """Columns of a state are independent: each value channel, as a separate value head
    of width 1, may have its own decay and its own beta."""
    tokens, (heads, width) = v.shape[:2], v.shape[2:]
    total = wide(v.new_zeros(())) if value_gates is None else wide(value_gates)
    total = total.expand(*tokens, heads, width)
    if gates is not None and gates.dim() == 4:
        total = (total.unsqueeze(-1) + wide(gates).unsqueeze(3)).flatten(2, 3)
    else:
        total = (total if gates is None else total + wide(gates).unsqueeze(-1)).flatten(2)
    if betas is not None:
        betas = (betas if betas.dim() == 4 else betas.unsqueeze(-1).expand(v.shape)).flatten(2)
    if state is not None:
        state = state.transpose(-1, -2).flatten(1, 2).unsqueeze(-1)
    return v.flatten(2).unsqueeze(-1), total, betas, state


def _flipped(bounds, *tensors):
    """The tokens in reverse, and with them packed sequences."""
    turned = [x if x is None or x.dim() == 1 else x.flip(1) for x in tensors]
    return (None if bounds is None else bounds[-1] - bounds.flip(0)), turned


def recurrence(
    op: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    gates: Tensor | None = None,
    value_gates: Tensor | None = None,
    betas: Tensor | None = None,
    bonus: Tensor | None = None,
    pair: tuple[Tensor, Tensor] | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    reverse: bool = False,
    grouped: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """pair: what the low-rank change reads and writes. (o, final_state): o in the dtype of v; the state in float32 (float64 for float64),
    None unless asked for. q, k and v may differ in dtype; the widest is computed with."""
    _want_call(op, q, k, v, initial_state, state_v_first, cu_seqlens, grouped)
    dtype = torch.promote_types(torch.promote_types(q.dtype, k.dtype), v.dtype)
    heads, width = v.shape[2:]
    state = None
    if initial_state is not None:
        state = initial_state.to(torch.float64 if dtype == torch.float64 else torch.float32)
        state = state.transpose(-1, -2) if state_v_first else state
    values, by_channel = v, value_gates is not None or (betas is not None and betas.dim() == 4)
    plain = betas is None and (gates is None or gates.dim() < 4)
    by_values = plain and value_gates is not None and _value_gates.serves(q, v)
    if by_values and value_gates is not None:
        by_channel, total = False, wide(value_gates)
        gates = total if gates is None else total + wide(gates).unsqueeze(-1)
    elif by_channel:
        values, gates, betas, state = _by_channel(v, gates, value_gates, betas, state)
    if reverse:
        cu_seqlens, turned = _flipped(cu_seqlens, q, k, values, gates, betas)
        q, k, values, gates, betas = turned
        pair = None if pair is None else (pair[0].flip(1), pair[1].flip(1))
        state = state if cu_seqlens is None or state is None else state.flip(0)
    options: dict[str, Any] = dict(
        gates=gates, scale=scale, initial_state=state, cu_seqlens=cu_seqlens, return_state=True
    )
    main = (q.to(dtype), k.to(dtype), values.to(dtype))
    if by_values and gates is not None:
        factor = q.shape[3] ** -0.5 if scale is None else scale
        out, state = _value_gates.recurrence(
            factor * wide(q), wide(k), wide(values), gates, state, cu_seqlens
        )
    elif pair is not None:
        reads, writes = (x.to(dtype) for x in pair)
        out, state = ops.dplr_attention(*main, reads, writes, **options)
    elif betas is None:
        out, state = ops.decay_attention(*main, bonus=bonus, **options)
    else:
        out, state = ops.delta_attention(*main, betas, **options)
    if reverse:
        out = out.flip(1)
        state = state if cu_seqlens is None else state.flip(0)
    if by_channel:
        out = out.squeeze(-1).unflatten(2, (heads, width))
        state = state.squeeze(-1).unflatten(1, (heads, width)).transpose(-1, -2)
    if not output_final_state:
        return out.to(v.dtype), None
    return out.to(v.dtype), (state.transpose(-1, -2) if state_v_first else state).contiguous()
