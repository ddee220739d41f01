"""Argument checks of the operators, made before any work; errors name the argument,
what was wanted and what was given. The kernels check the values of lengths."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from tarn import _tables as tables
from tarn import _warnings
from tarn.ops._state import LinearState, StateLike

# The maps inside the kernels; mapped_linear_attention takes more.
FEATURE_MAPS = tables.elementwise_maps()
DENOMINATORS = tables.words_of("denominator")
# The denominators that are one division; None is the map's own.
DIVIDED = (None, *(word for word in DENOMINATORS if word != "signed"))
# None lets the kernel choose the best; the others are the tiles that the kernels have.
CHUNK_SIZES = (None, 16, 32, 64)
_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def value_error(op: str, argument: str, wanted: object, given: object) -> ValueError:
    return ValueError(f"{op}: {argument}: want {wanted}, got {given}")


def type_error(op: str, argument: str, wanted: object, given: object) -> TypeError:
    return TypeError(f"{op}: {argument}: want {wanted}, got {given}")


def shape_text(shape: Iterable[object]) -> str:
    return "[" + ", ".join(str(size) for size in shape) + "]"


def want_shape(op: str, argument: str, tensor: Tensor, wanted: Sequence[object]) -> None:
    if tuple(tensor.shape) != tuple(wanted):
        raise value_error(op, argument, shape_text(wanted), shape_text(tensor.shape))


def want_tensor(op: str, argument: str, value: object, like: Tensor | None = None) -> None:
    """Checks that value is a tensor, on the device of `like`."""
    if not isinstance(value, torch.Tensor):
        raise type_error(op, argument, "a tensor", type(value).__name__)
    if like is not None and value.device != like.device:
        raise value_error(op, argument, f"a tensor on {like.device}", f"one on {value.device}")


def _autocast_unites(*tensors: Tensor) -> bool:
    """Whether autocast will cast these to one dtype."""
    return torch.is_autocast_enabled(tensors[0].device.type) and all(
        tensor.dtype in (torch.float32, torch.bfloat16, torch.float16) for tensor in tensors
    )


def want_operands(
    op: str, axes: Sequence[str], queries: Tensor, keys: Tensor, values: Tensor
) -> None:
    """Checks types, dtypes and numbers of axes of the three main arguments."""
    operands = (("queries", queries), ("keys", keys), ("values", values))
    for argument, tensor in operands:
        want_tensor(op, argument, tensor, queries if tensor is not queries else None)
    if queries.dtype not in _DTYPES:
        names = ", ".join(str(dtype) for dtype in _DTYPES)
        raise type_error(op, "queries", f"one of {names}", queries.dtype)
    for argument, tensor in operands:
        if tensor.dtype != queries.dtype and not _autocast_unites(queries, tensor):
            wanted = f"{queries.dtype} as queries"
            raise type_error(op, argument, wanted, tensor.dtype)
        if tensor.dim() != len(axes):
            wanted = f"{len(axes)} axes {shape_text(axes)}"
            raise value_error(op, argument, wanted, shape_text(tensor.shape))
    if axes[:3] == ("B", "T", "H"):
        warn_layout(op, queries)


def warn_layout(op: str, queries: Tensor) -> None:
    """Warns once of queries [B, T, H, ...] that look like [B, H, T, ...]."""
    if _looks_transposed(queries.shape):
        _warnings.warn_layout(op, *queries.shape[1:3])


def _looks_transposed(shape: Sequence[int]) -> bool:
    return (
        len(shape) == 4
        and not torch.compiler.is_compiling()
        and _warnings.looks_transposed(shape[1], shape[2])
    )


def want_heads(op: str, queries: Tensor, keys: Tensor, values: Tensor) -> None:
    """Checks that axes -2 and -1 of the three main arguments fit together."""
    heads, d_key = queries.shape[-2:]
    if heads < 1 or d_key < 1:
        wanted = "at least one head and a width of at least 1"
        raise value_error(op, "queries", wanted, shape_text(queries.shape))
    if tuple(keys.shape[-2:]) != (heads, d_key):
        wanted = shape_text((*keys.shape[:-2], heads, d_key))
        if keys.dim() == 4:
            wanted += " (time comes before heads)"
        raise value_error(op, "keys", wanted, shape_text(keys.shape))
    value_heads, d_value = values.shape[-2:]
    if value_heads < 1 or value_heads % heads != 0 or d_value < 1:
        wanted = f"value heads a multiple of {heads} and a width of at least 1"
        raise value_error(op, "values", wanted, shape_text(values.shape))


def want_choice(op: str, argument: str, value: object, choices: Sequence[object]) -> None:
    if value not in choices:
        names = ", ".join(repr(choice) for choice in choices)
        raise value_error(op, argument, f"one of {names}", repr(value))


def want_number(op: str, argument: str, value: object, positive: bool = False) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise type_error(op, argument, "a number", type(value).__name__)
    if not abs(value) < float("inf"):
        raise value_error(op, argument, "a finite number", value)
    if positive and not value > 0:
        raise value_error(op, argument, "a positive number", value)


def want_map(op: str, feature_map: object, elsewhere: str) -> None:
    """elsewhere: what takes all maps, and functions."""
    if not isinstance(feature_map, str) or feature_map not in FEATURE_MAPS:
        names = ", ".join(repr(name) for name in FEATURE_MAPS)
        given = "a function" if callable(feature_map) else repr(feature_map)
        wanted = f"one of {names} ({elsewhere} takes the others)"
        raise value_error(op, "feature_map", wanted, given)


def want_options(op: str, feature_map: str, denominator: str, eps: float, scale: float) -> None:
    want_map(op, feature_map, f"mapped_{op}")
    want_choice(op, "denominator", denominator, DENOMINATORS)
    want_number(op, "eps", eps, positive=denominator == "compat")
    want_number(op, "scale", scale, positive=True)


def want_lengths(op: str, argument: str, tensor: Tensor, like: Tensor) -> None:
    want_tensor(op, argument, tensor, like)
    if tensor.dtype not in (torch.int32, torch.int64):
        wanted = "torch.int32 or torch.int64"
        raise type_error(op, argument, wanted, tensor.dtype)
    if tensor.dim() != 1:
        raise value_error(op, argument, "1 axis", shape_text(tensor.shape))


def is_fast_path(queries: Tensor, keys: Tensor, values: Tensor) -> bool:
    """Whether the operands are plain tensors of one shape [B, T, H, K] and dtype on
    the CPU, which need no further checks; most calls skip the long checks this way.
    False does not mean that the operands are wrong."""
    shape = queries.shape if type(queries) is torch.Tensor else ()
    return (
        len(shape) == 4
        and type(keys) is type(values) is torch.Tensor
        and shape == keys.shape == values.shape
        and shape[2] > 0 < shape[3]
        and queries.dtype is keys.dtype is values.dtype
        and queries.dtype in _DTYPES
        and queries.is_cpu
        and keys.is_cpu
        and values.is_cpu
        and (shape[2] <= _warnings.MOST_HEADS or not _looks_transposed(shape))
    )


def has_default_options(
    feature_map: object, denominator: object, eps: object, scale: object
) -> bool:
    """Whether the options are the operators' defaults; False does not mean that they are
    wrong."""
    return (
        type(feature_map) is type(denominator) is str
        and feature_map == "elu1"
        and denominator == "exact"
        and type(eps) is type(scale) is float
        and eps == 1e-6
        and scale == 1.0
    )


def want_sequence_call(
    op: str,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    causal_offset: int,
    key_mask: Tensor | None,
    key_lengths: Tensor | None,
    cu_seqlens: Tensor | None,
) -> int:
    """Checks everything about the tensors of a whole-sequence call but the state;
    returns the number of sequences, which is that of states."""
    plain = key_mask is None and key_lengths is None and cu_seqlens is None
    if plain and type(causal_offset) is int and is_fast_path(queries, keys, values):
        return queries.shape[0]
    want_operands(op, ("B", "T", "H", "K"), queries, keys, values)
    batch, seq_len_k = queries.shape[0], keys.shape[1]
    if keys.shape[0] != batch:
        want_shape(op, "keys", keys, (batch, *keys.shape[1:]))
    want_heads(op, queries, keys, values)
    want_shape(op, "values", values, (batch, seq_len_k, *values.shape[2:]))
    if not isinstance(causal_offset, (int, torch.SymInt)):
        raise type_error(op, "causal_offset", "an integer", type(causal_offset).__name__)
    if key_mask is not None:
        want_tensor(op, "key_mask", key_mask, queries)
        if key_mask.dtype != torch.bool:
            raise type_error(op, "key_mask", "torch.bool", key_mask.dtype)
        want_shape(op, "key_mask", key_mask, (batch, seq_len_k))
    if key_lengths is not None:
        want_lengths(op, "key_lengths", key_lengths, queries)
        want_shape(op, "key_lengths", key_lengths, (batch,))
    if cu_seqlens is None:
        return batch
    return _packed_sequences(op, queries, keys, key_lengths, cu_seqlens)


def _packed_sequences(
    op: str, queries: Tensor, keys: Tensor, key_lengths: Tensor | None, cu_seqlens: Tensor
) -> int:
    """Checks what packing requires; returns the number of sequences."""
    want_lengths(op, "cu_seqlens", cu_seqlens, queries)
    if cu_seqlens.shape[0] < 1:
        raise value_error(op, "cu_seqlens", "[N + 1] with N >= 0", "[0]")
    if key_lengths is not None:
        raise value_error(op, "key_lengths", "None with cu_seqlens", "a tensor")
    if queries.shape[0] != 1 or queries.shape[1] != keys.shape[1]:
        wanted = f"B = 1 and T = S = {keys.shape[1]}"
        given = shape_text(queries.shape)
        raise value_error(op, "queries (with cu_seqlens)", wanted, given)
    return cu_seqlens.shape[0] - 1


def want_step_call(op: str, queries: Tensor, keys: Tensor, values: Tensor) -> None:
    """Checks everything about the tensors of a call of one token but the state."""
    want_operands(op, ("B", "H", "K"), queries, keys, values)
    batch = queries.shape[0]
    want_shape(op, "keys", keys, (batch, *keys.shape[1:]))
    want_shape(op, "values", values, (batch, *values.shape[1:]))
    want_heads(op, queries, keys, values)


def state_of(
    op: str, argument: str, state: StateLike | None, shape: Sequence[int], like: Tensor
) -> LinearState | tuple[None, None, None]:
    """`state` (None, LinearState or a pair) as (S, z, None), checked against the
    shape [rows, HV, C, V]."""
    if state is None:
        return None, None, None
    if not isinstance(state, (tuple, list)) or len(state) not in (2, 3):
        wanted = "None, a LinearState or a pair (S, z)"
        raise type_error(op, argument, wanted, type(state).__name__)
    state = LinearState(state[0], state[1], state[2] if len(state) == 3 else None)
    if state.extra is not None:
        given = type(state.extra).__name__
        raise value_error(op, f"{argument}.extra", "None", given)
    dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
    for name, part, wanted in (("S", state.S, shape), ("z", state.z, shape[:3])):
        want_tensor(op, f"{argument}.{name}", part, like)
        if part.dtype != dtype:
            raise type_error(op, f"{argument}.{name}", dtype, part.dtype)
        want_shape(op, f"{argument}.{name}", part, wanted)
    return state


def kept_keys(keys: Tensor, key_mask: Tensor | None, key_lengths: Tensor | None) -> Tensor | None:
    """[B, S] bool of the keys that both masks keep; None: all."""
    kept = key_mask
    if key_lengths is not None:
        places = torch.arange(keys.shape[1], device=keys.device)
        within = places < key_lengths[:, None]
        kept = within if kept is None else kept & within
    return kept
