"""Recurrences with decay, the delta rule or a low-rank change: one state S [K, V] a value head
that forgets, takes in a key and a value a token, and is read by a query.
Three operators compute all of them; the families below are their names for them."""

from typing import Any

import torch
from torch import Tensor

from tarn.ops import _checks as checks

__all__ = [
    "decay_attention",
    "delta_attention",
    "delta_rule",
    "dplr_attention",
    "gated_delta_rule",
    "gated_linear_attention",
    "kda",
    "lightning_attention",
    "lightning_gates",
    "retention",
    "retention_gates",
    "rwkv6",
    "rwkv7",
    "ssd",
]


def _call(op: str, operands: dict[str, Tensor], optional: dict[str, Tensor | None],
          scale: float | None, return_state: bool) -> Any:
    for name, tensor in operands.items():
        checks.want_tensor(op, name, tensor)
    for name, tensor in optional.items():
        if tensor is not None:
            checks.want_tensor(op, name, tensor)
    checks.warn_layout(op, operands["queries"])
    if scale is None:
        scale = operands["queries"].shape[-1] ** -0.5
    if not isinstance(scale, (int, float)):
        raise checks.type_error(op, "scale", "a number or None", type(scale).__name__)
    first = [operands["queries"], operands["keys"], operands["values"]]
    gates = optional["gates"]
    if "reads" in operands:
        function = torch.ops.tarn.dplr_attention
        first += [operands["reads"], operands["writes"], gates]
    elif "betas" in operands:
        function = torch.ops.tarn.delta_attention
        first += [gates, operands["betas"]]
    else:
        function = torch.ops.tarn.decay_attention
        first += [gates, optional["bonus"]]
    out, state, _ = function.default(
        *first, optional["lengths"], optional["cu_seqlens"], optional["initial_state"],
        float(scale), bool(return_state))
    return (out, state) if return_state else out


def decay_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    gates: Tensor | None = None,
    bonus: Tensor | None = None,
    lengths: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    initial_state: Tensor | None = None,
    scale: float | None = None,
    return_state: bool = False,
) -> Any:
    """Linear attention whose state decays, without a denominator:
    ``S_t = Diag(exp(g_t)) S_{t-1} + k_t v_t^T``, ``out_t = scale S_t^T q_t``.

    Args:
        queries, keys: [B, T, H, K]; values: [B, T, HV, V], HV a multiple of H, value
            head h reading queries and keys of head h // (HV / H). One dtype out of
            float32, bfloat16, float16 and float64.
        gates: natural logarithms of the decay factors: [HV], one a value head;
            [B, T, HV], one a token too; or [B, T, HV, K], one a channel of the keys.
            Any number; -inf forgets exactly. None: no decay.
        bonus: [HV, K]. With it a token is read before it is taken in, and adds
            itself by its own factor: ``out_t = scale (S_{t-1} + Diag(u) k_t v_t^T)^T q_t``.
        lengths: [B] int32 or int64, tokens in use at the front of each row. Pads
            touch no state, whatever they hold, and their outputs are 0.
        cu_seqlens: [N + 1], 0 = first, T = last: N sequences packed along T with
            B = 1. It excludes `lengths`.
        initial_state: [B, HV, K, V] or [N, HV, K, V], float32 (float64 with
            float64 queries). None: zeros. It receives a gradient.
        scale: factor of the queries; None: K^-1/2.
        return_state: whether to return the state behind the last token too.

    Returns:
        out [B, T, HV, V] in the dtype of values, or (out, state). T = 0 and B = 0
        are valid.

    Raises:
        ValueError: shapes, devices. TypeError: types and dtypes. Both before any work.

    O(B T HV K V) time; the gradient keeps the inputs and a state every 256 tokens.
    Kernels serve the three smaller dtypes on the CPU, with the same bits for any
    number of threads; the rest is composed from torch's operators. Differentiable to
    any order. Thread-safe. After Sun et al. 2023 (arXiv 2307.08621), Yang et al.
    2023 (arXiv 2312.06635), Dao and Gu 2024 (arXiv 2405.21060).
    """
    return _call(
        "decay_attention", {"queries": queries, "keys": keys, "values": values},
        {"gates": gates, "bonus": bonus, "lengths": lengths, "cu_seqlens": cu_seqlens,
         "initial_state": initial_state}, scale, return_state)


def delta_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    betas: Tensor,
    *,
    gates: Tensor | None = None,
    lengths: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    initial_state: Tensor | None = None,
    scale: float | None = None,
    return_state: bool = False,
) -> Any:
    """The delta rule: what the state holds at a key is replaced by the value, as far
    as beta says. ``W = Diag(exp(g_t)) S_{t-1}``,
    ``S_t = W + beta_t k_t (v_t - W^T k_t)^T``, ``out_t = scale S_t^T q_t``.

    betas: [B, T, HV], any number; keys are meant to have length 1
    (:func:`normalized`), where 0 to 1 forgets and up to 2 reflects. Everything else
    is as in :func:`decay_attention`. Differentiable to any order. After Yang et al. 2024 (arXiv 2406.06484, and
    2412.06464 with gates).
    """
    return _call(
        "delta_attention",
        {"queries": queries, "keys": keys, "values": values, "betas": betas},
        {"gates": gates, "lengths": lengths, "cu_seqlens": cu_seqlens,
         "initial_state": initial_state}, scale, return_state)


def dplr_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    reads: Tensor,
    writes: Tensor,
    *,
    gates: Tensor | None = None,
    lengths: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    initial_state: Tensor | None = None,
    scale: float | None = None,
    return_state: bool = False,
) -> Any:
    """A state that changes by a diagonal plus a low-rank matrix:
    ``S_t = Diag(exp(g_t)) S_{t-1} + b_t (S_{t-1}^T c_t)^T + k_t v_t^T``,
    ``out_t = scale S_t^T q_t``. It stays bounded only where the transition
    ``Diag(exp(g)) + b c^T`` does not grow.

    reads (c), writes (b): [B, T, H, K] in the dtype of queries; c meets the state before
    its decay. values have H heads. Everything else is as in :func:`decay_attention`.
    Differentiable to any order. After Peng et al. 2025 (arXiv 2503.14456).
    """
    return _call(
        "dplr_attention",
        {"queries": queries, "keys": keys, "values": values, "reads": reads, "writes": writes},
        {"gates": gates, "lengths": lengths, "cu_seqlens": cu_seqlens,
         "initial_state": initial_state}, scale, return_state)


def normalized(x: Tensor, eps: float = 1e-6) -> Tensor:
    """x [..., K] at length 1: ``x / sqrt(sum x^2 + eps)``, computed in float32 at least."""
    wide = x if x.dtype == torch.float64 else x.float()
    return (wide * (wide.square().sum(-1, keepdim=True) + eps).rsqrt()).to(x.dtype)


# --- Families: their gates, their defaults -------------------------------------------


def _as_gates(logarithms: Tensor, like: Tensor | None) -> Tensor:
    if like is None:
        return logarithms.float()
    dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
    return logarithms.to(like.device, dtype)


def retention_gates(heads: int, *, like: Tensor | None = None) -> Tensor:
    """[heads]: log(1 - 2^(-5 - h)), RetNet's decays (Sun et al. 2023, eq. 8). float32 on
    the CPU, or beside `like`: on its device, in float64 where it is that."""
    logarithms = torch.log1p(-torch.exp2(-5 - torch.arange(heads, dtype=torch.float64)))
    return _as_gates(logarithms, like)


def retention(queries: Tensor, keys: Tensor, values: Tensor, **options: Any) -> Any:
    """RetNet: :func:`decay_attention` with one constant decay a head. `gates` [HV] may
    be given; the default is :func:`retention_gates`. Rotary positions are the
    caller's. Differentiable to any order."""
    options.setdefault("gates", None)
    if options["gates"] is None:
        checks.want_tensor("retention", "values", values)
        options["gates"] = retention_gates(values.shape[2], like=values)
    return decay_attention(queries, keys, values, **options)


def lightning_gates(heads: int, layer: int, n_layers: int, *,
                    like: Tensor | None = None) -> Tensor:
    """[heads]: -2^(-8 (h + 1) / heads) (1 - layer / (n_layers - 1) + 1e-5), as
    MiniMax-01's models have it (arXiv 2501.08313); layer counts from 0. Dtype and device as in
    :func:`retention_gates`."""
    if not 0 <= layer < n_layers:
        raise checks.value_error("lightning_gates", "layer", f"0 to {n_layers - 1}", layer)
    slopes = torch.exp2(-8 * torch.arange(1, heads + 1, dtype=torch.float64) / heads)
    share = 1 - layer / (n_layers - 1 + 1e-5) + 1e-5
    return _as_gates(-slopes * share, like)


def lightning_attention(queries: Tensor, keys: Tensor, values: Tensor, layer: int,
                        n_layers: int, *, scale: float | None = 1.0, **options: Any) -> Any:
    """Lightning attention: :func:`decay_attention` with :func:`lightning_gates`. Its
    models apply silu to queries, keys and values themselves, and use no scale.
    Differentiable to any order."""
    checks.want_tensor("lightning_attention", "values", values)
    gates = lightning_gates(values.shape[2], layer, n_layers, like=values)
    return decay_attention(queries, keys, values, gates=gates, scale=scale, **options)


def gated_linear_attention(queries: Tensor, keys: Tensor, values: Tensor, gates: Tensor,
                           **options: Any) -> Any:
    """GLA and HGRN2 (keys 1 - exp(gates)): :func:`decay_attention` with a gate a
    channel, gates [B, T, HV, K]. Differentiable to any order."""
    return decay_attention(queries, keys, values, gates=gates, **options)


def rwkv6(queries: Tensor, keys: Tensor, values: Tensor, gates: Tensor, bonus: Tensor, *,
          scale: float | None = 1.0, **options: Any) -> Any:
    """RWKV-6 (Peng et al. 2024, arXiv 2404.05892): the read comes before the decay.
    queries are its receptance, gates [B, T, H, K] its -exp(w), bonus [H, K] its u.
    Differentiable to any order."""
    return decay_attention(queries, keys, values, gates=gates, bonus=bonus, scale=scale, **options)


def rwkv7(queries: Tensor, gates: Tensor, keys: Tensor, values: Tensor, reads: Tensor,
          writes: Tensor, *, scale: float | None = 1.0, **options: Any) -> Any:
    """RWKV-7 (Peng et al. 2025, arXiv 2503.14456): :func:`dplr_attention` with the order of
    its r, w, k, v, a, b: queries are its receptance, gates [B, T, H, K] its log decay, reads
    its -kappa and writes its kappa * alpha. Differentiable to any order."""
    return dplr_attention(queries, keys, values, reads, writes, gates=gates, scale=scale, **options)


def delta_rule(queries: Tensor, keys: Tensor, values: Tensor, betas: Tensor,
               **options: Any) -> Any:
    """DeltaNet: :func:`delta_attention` without gates. Differentiable to any order."""
    return delta_attention(queries, keys, values, betas, **options)


def gated_delta_rule(queries: Tensor, keys: Tensor, values: Tensor, gates: Tensor,
                     betas: Tensor, *, normalize: bool = False, **options: Any) -> Any:
    """Gated DeltaNet: :func:`delta_attention` with gates [B, T, HV]. normalize: queries
    and keys are brought to length 1 first. Differentiable to any order."""
    if normalize:
        queries, keys = normalized(queries), normalized(keys)
    return delta_attention(queries, keys, values, betas, gates=gates, **options)


def kda(queries: Tensor, keys: Tensor, values: Tensor, gates: Tensor, betas: Tensor, *,
        normalize: bool = False, **options: Any) -> Any:
    """Kimi delta attention (arXiv 2510.26692): :func:`gated_delta_rule` with a gate a
    channel, gates [B, T, HV, K]. Differentiable to any order."""
    return gated_delta_rule(queries, keys, values, gates, betas, normalize=normalize, **options)


def ssd(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    D: Tensor | None = None,
    **options: Any,
) -> Any:
    """Mamba-2's state space (Dao and Gu 2024, arXiv 2405.21060):
    ``S_t = exp(dt_t A) S_{t-1} + B_t (dt_t x_t)^T``, ``out_t = S_t^T C_t + D x_t``.

    x: [B, T, heads, P]; dt: [B, T, heads], after its softplus; A: [heads], negative;
    B, C: [B, T, groups, N], consecutive heads sharing a group; D: [heads] or None.
    The state is [B, heads, N, P]. `lengths`, `cu_seqlens`, `initial_state` and
    `return_state` are those of :func:`decay_attention`; there is no scale.
    Differentiable to any order.
    """
    for name, tensor in {"x": x, "dt": dt, "A": A, "B": B, "C": C, "D": D}.items():
        if tensor is not None or name != "D":
            checks.want_tensor("ssd", name, tensor)
    if "scale" in options or "gates" in options or "bonus" in options:
        raise checks.type_error("ssd", "options", "lengths, cu_seqlens, initial_state, return_state",
                                ", ".join(sorted(options)))
    values = (x * dt.unsqueeze(-1)).to(x.dtype)
    found = decay_attention(C, B, values, gates=dt * A, scale=1.0, **options)
    if D is None:
        return found
    out = found[0] if isinstance(found, tuple) else found
    summed = (out + x * D.view(-1, 1)).to(out.dtype)
    return (summed, found[1]) if isinstance(found, tuple) else summed
