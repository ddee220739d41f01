"""Families of :func:`decay_attention`: their gates, their defaults."""

from typing import Any, Literal, Unpack, overload

import torch
from torch import Tensor

from tarn.ops import _checks as checks
from tarn.ops._gated import GateOptions, ScaledOptions, SequenceOptions, decay_attention

__all__ = [
    "gated_linear_attention",
    "lightning_attention",
    "lightning_gates",
    "retention",
    "retention_gates",
    "rwkv6",
    "ssd",
]


def _as_gates(logarithms: Tensor, like: Tensor | None) -> Tensor:
    if like is None:
        return logarithms.float()
    dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
    return logarithms.to(like.device, dtype)


def retention_gates(heads: int, *, like: Tensor | None = None) -> Tensor:
    """[heads]: log(1 - 2^(-5 - h)), RetNet's decays (Sun et al. 2023, eq. 8). float32
    on the CPU; with `like`, on its device, and in float64 if it is float64.

    Examples:
        >>> ops.retention_gates(4).shape
        torch.Size([4])
    """
    logarithms = torch.log1p(-torch.exp2(-5 - torch.arange(heads, dtype=torch.float64)))
    return _as_gates(logarithms, like)


@overload
def retention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    return_state: Literal[False] = False,
    **options: Unpack[GateOptions],
) -> Tensor: ...


@overload
def retention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    return_state: Literal[True],
    **options: Unpack[GateOptions],
) -> tuple[Tensor, Tensor]: ...


@overload
def retention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    return_state: bool,
    **options: Unpack[GateOptions],
) -> Tensor | tuple[Tensor, Tensor]: ...


def retention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    **options: Any,
) -> Tensor | tuple[Tensor, Tensor]:
    """RetNet: :func:`decay_attention` with one constant decay a head. `gates` [HV] may
    be given; the default is :func:`retention_gates`. Rotary positions are the
    caller's. Differentiable to any order.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 5, 4, 8)
        >>> ops.retention(q, k, v).shape
        torch.Size([2, 5, 4, 8])
    """
    options.setdefault("gates", None)
    if options["gates"] is None:
        checks.want_tensor("retention", "values", values)
        options["gates"] = retention_gates(values.shape[2], like=values)
    return decay_attention(queries, keys, values, **options)


def lightning_gates(heads: int, layer: int, n_layers: int, *, like: Tensor | None = None) -> Tensor:
    """[heads]: -2^(-8 (h + 1) / heads) (1 - layer / (n_layers - 1) + 1e-5), as
    MiniMax-01's models have it (arXiv 2501.08313); layer counts from 0. Dtype and
    device as in :func:`retention_gates`.

    Examples:
        >>> ops.lightning_gates(4, layer=0, n_layers=12).shape
        torch.Size([4])
    """
    if not 0 <= layer < n_layers:
        raise checks.value_error("lightning_gates", "layer", f"0 to {n_layers - 1}", layer)
    slopes = torch.exp2(-8 * torch.arange(1, heads + 1, dtype=torch.float64) / heads)
    share = 1 - layer / (n_layers - 1 + 1e-5) + 1e-5
    return _as_gates(-slopes * share, like)


@overload
def lightning_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    layer: int,
    n_layers: int,
    *,
    scale: float | None = 1.0,
    return_state: Literal[False] = False,
    **options: Unpack[SequenceOptions],
) -> Tensor: ...


@overload
def lightning_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    layer: int,
    n_layers: int,
    *,
    scale: float | None = 1.0,
    return_state: Literal[True],
    **options: Unpack[SequenceOptions],
) -> tuple[Tensor, Tensor]: ...


@overload
def lightning_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    layer: int,
    n_layers: int,
    *,
    scale: float | None = 1.0,
    return_state: bool,
    **options: Unpack[SequenceOptions],
) -> Tensor | tuple[Tensor, Tensor]: ...


def lightning_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    layer: int,
    n_layers: int,
    *,
    scale: float | None = 1.0,
    **options: Any,
) -> Tensor | tuple[Tensor, Tensor]:
    """Lightning attention: :func:`decay_attention` with :func:`lightning_gates`. Its
    models apply silu to queries, keys and values themselves, and use no scale.
    Differentiable to any order.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 5, 4, 8)
        >>> ops.lightning_attention(q, k, v, layer=0, n_layers=12).shape
        torch.Size([2, 5, 4, 8])
    """
    checks.want_tensor("lightning_attention", "values", values)
    gates = lightning_gates(values.shape[2], layer, n_layers, like=values)
    return decay_attention(queries, keys, values, gates=gates, scale=scale, **options)


@overload
def gated_linear_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    gates: Tensor,
    *,
    return_state: Literal[False] = False,
    **options: Unpack[ScaledOptions],
) -> Tensor: ...


@overload
def gated_linear_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    gates: Tensor,
    *,
    return_state: Literal[True],
    **options: Unpack[ScaledOptions],
) -> tuple[Tensor, Tensor]: ...


@overload
def gated_linear_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    gates: Tensor,
    *,
    return_state: bool,
    **options: Unpack[ScaledOptions],
) -> Tensor | tuple[Tensor, Tensor]: ...


def gated_linear_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    gates: Tensor,
    **options: Any,
) -> Tensor | tuple[Tensor, Tensor]:
    """GLA and HGRN2 (keys 1 - exp(gates)): :func:`decay_attention` with a gate a
    channel, gates [B, T, HV, K]. Differentiable to any order.

    Examples:
        >>> q, k, v, x = torch.randn(4, 2, 5, 4, 8)
        >>> ops.gated_linear_attention(q, k, v, torch.nn.functional.logsigmoid(x)).shape
        torch.Size([2, 5, 4, 8])
    """
    return decay_attention(queries, keys, values, gates=gates, **options)


@overload
def rwkv6(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    gates: Tensor,
    bonus: Tensor,
    *,
    scale: float | None = 1.0,
    return_state: Literal[False] = False,
    **options: Unpack[SequenceOptions],
) -> Tensor: ...


@overload
def rwkv6(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    gates: Tensor,
    bonus: Tensor,
    *,
    scale: float | None = 1.0,
    return_state: Literal[True],
    **options: Unpack[SequenceOptions],
) -> tuple[Tensor, Tensor]: ...


@overload
def rwkv6(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    gates: Tensor,
    bonus: Tensor,
    *,
    scale: float | None = 1.0,
    return_state: bool,
    **options: Unpack[SequenceOptions],
) -> Tensor | tuple[Tensor, Tensor]: ...


def rwkv6(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    gates: Tensor,
    bonus: Tensor,
    *,
    scale: float | None = 1.0,
    **options: Any,
) -> Tensor | tuple[Tensor, Tensor]:
    """RWKV-6 (Peng et al. 2024, arXiv 2404.05892): the read comes before the decay.
    queries are its receptance, gates [B, T, H, K] its -exp(w), bonus [H, K] its u.
    Differentiable to any order.

    Examples:
        >>> q, k, v, w = torch.randn(4, 2, 5, 4, 8)
        >>> ops.rwkv6(q, k, v, gates=-w.exp(), bonus=torch.randn(4, 8)).shape
        torch.Size([2, 5, 4, 8])
    """
    return decay_attention(queries, keys, values, gates=gates, bonus=bonus, scale=scale, **options)


@overload
def ssd(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    D: Tensor | None = None,
    return_state: Literal[False] = False,
    **options: Unpack[SequenceOptions],
) -> Tensor: ...


@overload
def ssd(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    D: Tensor | None = None,
    return_state: Literal[True],
    **options: Unpack[SequenceOptions],
) -> tuple[Tensor, Tensor]: ...


@overload
def ssd(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    D: Tensor | None = None,
    return_state: bool,
    **options: Unpack[SequenceOptions],
) -> Tensor | tuple[Tensor, Tensor]: ...


def ssd(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    D: Tensor | None = None,
    **options: Any,
) -> Tensor | tuple[Tensor, Tensor]:
    """Mamba-2's state space (Dao and Gu 2024, arXiv 2405.21060):
    ``S_t = exp(dt_t A) S_{t-1} + B_t (dt_t x_t)^T``, ``out_t = S_t^T C_t + D x_t``.

    x: [B, T, heads, P]; dt: [B, T, heads], after its softplus; A: [heads], negative;
    B, C: [B, T, groups, N], consecutive heads sharing a group; D: [heads] or None.
    The state is [B, heads, N, P]. `lengths`, `cu_seqlens`, `initial_state` and
    `return_state` are those of :func:`decay_attention`; there is no scale.
    Differentiable to any order.

    Examples:
        >>> x, dt, A = torch.randn(2, 5, 4, 8), torch.rand(2, 5, 4), -torch.rand(4)
        >>> B, C = torch.randn(2, 2, 5, 1, 16)
        >>> out, state = ops.ssd(x, dt, A, B, C, return_state=True)
        >>> out.shape, state.shape
        (torch.Size([2, 5, 4, 8]), torch.Size([2, 4, 16, 8]))
    """
    for name, tensor in {"x": x, "dt": dt, "A": A, "B": B, "C": C, "D": D}.items():
        if tensor is not None or name != "D":
            checks.want_tensor("ssd", name, tensor)
    if "scale" in options or "gates" in options or "bonus" in options:
        wanted = "lengths, cu_seqlens, initial_state, return_state"
        raise checks.type_error("ssd", "options", wanted, ", ".join(sorted(options)))
    values = (x * dt.unsqueeze(-1)).to(x.dtype)
    found = decay_attention(C, B, values, gates=dt * A, scale=1.0, **options)
    if D is None:
        return found
    out = found[0] if isinstance(found, tuple) else found
    summed = (out + x * D.view(-1, 1)).to(out.dtype)
    return (summed, found[1]) if isinstance(found, tuple) else summed
