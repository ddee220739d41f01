"""How near random features come to the exponential kernel of softmax attention:
relative errors of phi(q).phi(k) over the number of features."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

import tarn.ops

JsonDict = dict[str, Any]
# For each name on the page: the map, whether it has exp(u) alone, and whether its
# directions are orthogonal within blocks of d_key.
_MAPS: dict[str, tuple[str, bool, bool]] = {
    "favor": ("favor", False, True),
    "favor, independent": ("favor", False, False),
    "favor-positive": ("favor-positive", True, True),
    "rff": ("rff", False, True),
}


def _estimates(
    name: str, queries: torch.Tensor, keys: torch.Tensor, features: int, seed: int, draw: int
) -> torch.Tensor:
    """phi(q).phi(k) of each pair, [pairs]. The mean of rff's is the Gaussian
    kernel; exp((|q|^2 + |k|^2) / (2 sqrt(d))) makes it the exponential one."""
    known, positive, orthogonal = _MAPS[name]
    d_key = queries.shape[-1]
    omega = tarn.ops.draw_omega(
        d_key,
        tarn.ops.feature_frequencies(known, d_key, features),
        orthogonal=orthogonal,
        seed=seed,
        layer=draw,
    )
    if known == "rff":
        phi_q, phi_k = (tarn.ops.rff(x, omega).double() for x in (queries, keys))
        norms = queries.double().square().sum(-1) + keys.double().square().sum(-1)
        return (phi_q * phi_k).sum(-1) * (norms / (2 * math.sqrt(d_key))).exp()
    phi_q, phi_k = (tarn.ops.favor(x, omega, positive=positive).double() for x in (queries, keys))
    return (phi_q * phi_k).sum(-1)


def kernel_errors(
    d_key: int,
    deviation: float,
    features: Sequence[int],
    pairs: int,
    draws: int,
    seed: int,
    told: Callable[[float], None],
) -> list[JsonDict]:
    """A row a map and number of features: the relative error, its mean over the
    pairs, and of that the mean over the draws and the lowest and highest tenth.
    Entries of queries and keys are normal, with this deviation."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # operators so small gain nothing by more
    try:
        return _rows(d_key, deviation, features, pairs, draws, seed, told)
    finally:
        torch.set_num_threads(threads)


def _rows(
    d_key: int,
    deviation: float,
    features: Sequence[int],
    pairs: int,
    draws: int,
    seed: int,
    told: Callable[[float], None],
) -> list[JsonDict]:
    random = torch.Generator().manual_seed(seed)
    queries, keys = (deviation * torch.randn(pairs, d_key, generator=random) for _ in range(2))
    exact = ((queries.double() * keys.double()).sum(-1) / math.sqrt(d_key)).exp()
    rows = []
    for done, name in enumerate(_MAPS):
        for count in features:
            errors = torch.stack(
                [
                    (
                        (_estimates(name, queries, keys, count, seed, draw) - exact).abs() / exact
                    ).mean()
                    for draw in range(draws)
                ]
            )
            low, high = errors.quantile(0.1).item(), errors.quantile(0.9).item()
            rows.append(
                {
                    "map": name,
                    "features": count,
                    "error": errors.mean().item(),
                    "low": low,
                    "high": high,
                }
            )
        told((done + 1) / len(_MAPS))
    return rows
