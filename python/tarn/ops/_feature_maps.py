"""Feature maps besides those inside the kernels; formulas and sources are in
docs/feature-maps.md. All act on the last axis, accept float32, float64 and, in
float32 arithmetic, bfloat16 and float16, and are differentiable."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tarn.ops import _checks as checks

__all__ = [
    "draw_omega",
    "favor",
    "feature_frequencies",
    "feature_width",
    "grf",
    "poly2",
    "rff",
    "smoothed_rff",
]


def feature_width(
    name: str,
    d_key: int,
    n_dims: int | None = None,
    *,
    coefficients: Sequence[float] = (1.0, 2.0, 1.0),
) -> int:
    """C, the width of phi(x) for x of width d_key.

    Args:
        name: a feature map's name, "elu1" to "grf".
        n_dims: width requested of a random map; None: d_key. Pairs of features
            round it down to even (favor, rff) or odd (smoothed-rff).
        coefficients: those of poly2, which has no features where one is 0.

    Raises: ValueError for unknown names and an n_dims that leaves no feature.

    Examples:
        >>> ops.feature_width("elu1", 8), ops.feature_width("poly2", 8)
        (8, 45)
    """
    return torch.ops.tarn.feature_width(name, d_key, _dims(n_dims), list(coefficients))


def feature_frequencies(name: str, d_key: int, n_dims: int | None = None) -> int:
    """Columns of the omega that the map wants; 0 for maps without one.

    Examples:
        >>> ops.feature_frequencies("favor", 8, n_dims=32), ops.feature_frequencies("elu1", 8)
        (16, 0)
    """
    return torch.ops.tarn.feature_frequencies(name, d_key, _dims(n_dims))


def draw_omega(
    d_key: int,
    n_freq: int,
    *,
    orthogonal: bool,
    seed: int,
    layer: int = 0,
    step: int = 0,
) -> Tensor:
    """Random directions of favor, rff, smoothed-rff and grf: [d_key, n_freq]
    float32, a pure function of the arguments (Philox).

    Args:
        orthogonal: columns orthogonal within blocks of d_key (Haar), with
            independent chi(d_key) norms; otherwise N(0, 1) entries.
        seed: any integer from 0 to 2^63 - 1.
        layer, step: make the draws of one seed independent: one for each layer,
            redrawn at a step of training. Below 2^24 and 2^40.

    Raises: ValueError for sizes below 1 and indices out of range.
    O(n_freq d_key^2) time if orthogonal. Thread-safe.
    Source: Choromanski et al. 2021 (arXiv 2009.14794), section 2.4.

    Examples:
        >>> ops.draw_omega(8, 16, orthogonal=True, seed=1).shape
        torch.Size([8, 16])
    """
    return torch.ops.tarn.draw_omega(d_key, n_freq, bool(orthogonal), seed, layer, step)


def poly2(
    x: Tensor,
    *,
    softmax_temp: float | None = None,
    coefficients: Sequence[float] = (1.0, 2.0, 1.0),
) -> Tensor:
    """Features of the kernel a0 + a1 y + a2 y^2, y = softmax_temp q.k.

    Args:
        x: [..., K].
        softmax_temp: >= 0; None: 1 / sqrt(K).
        coefficients: (a0, a1, a2), each >= 0, not all 0; features of those
            that are 0 are left out.

    Returns: [..., C], C = 1 + K + K (K + 1) / 2, dtype of x: sqrt(a0), then
        sqrt(a1) x~, sqrt(a2) x~_i^2, sqrt(2 a2) x~_i x~_l for i < l in
        lexicographic order, with x~ = sqrt(softmax_temp) x.
    Raises: ValueError, TypeError. Thread-safe.

    Examples:
        >>> ops.poly2(torch.randn(2, 5, 4, 8)).shape
        torch.Size([2, 5, 4, 45])
    """
    _want_rows("poly2", x)
    return torch.ops.tarn.poly2(x, softmax_temp, [float(a) for a in coefficients])


def favor(
    x: Tensor,
    omega: Tensor,
    *,
    softmax_temp: float | None = None,
    positive: bool = False,
    stabilise: bool = False,
) -> Tensor:
    """Positive random features (FAVOR+): the mean of phi(x).phi(y) over omega is
    exp(softmax_temp x.y). With u = omega^T x~,
    ``phi = exp(-|x~|^2 / 2) [exp(u); exp(-u)] / sqrt(C)``.

    Args:
        x: [..., K]. omega: [K, n_freq], see draw_omega.
        softmax_temp: >= 0; None: 1 / sqrt(K).
        positive: exp(u) only, C = n_freq instead of 2 n_freq.
        stabilise: the largest exponent of each row is taken off. That cancels
            for queries only: for keys use mapped_linear_attention, which keeps
            a running maximum instead.

    Returns: [..., C], dtype of x, all positive.
    Raises: ValueError, TypeError. Thread-safe.
    Source: Choromanski et al. 2021 (arXiv 2009.14794), lemma 1.

    Examples:
        >>> omega = ops.draw_omega(8, 16, orthogonal=True, seed=1)
        >>> ops.favor(torch.randn(2, 5, 4, 8), omega).shape
        torch.Size([2, 5, 4, 32])
    """
    _want_rows("favor", x)
    return torch.ops.tarn.favor(x, omega, softmax_temp, bool(positive), bool(stabilise))


def rff(x: Tensor, omega: Tensor, *, softmax_temp: float | None = None) -> Tensor:
    """Random Fourier features: phi(x).phi(y) approximates
    exp(-softmax_temp |x - y|^2 / 2). ``phi = [cos u; sin u] / sqrt(n_freq)``.

    Args: x: [..., K]. omega: [K, n_freq]. softmax_temp: as in favor.
    Returns: [..., 2 n_freq] of both signs and unit norm, dtype of x.
    Raises: ValueError, TypeError. Thread-safe.
    Source: Rahimi and Recht 2007, algorithm 1.

    Examples:
        >>> omega = ops.draw_omega(8, 16, orthogonal=False, seed=1)
        >>> ops.rff(torch.randn(2, 5, 4, 8), omega).shape
        torch.Size([2, 5, 4, 32])
    """
    _want_rows("rff", x)
    return torch.ops.tarn.rff(x, omega, softmax_temp)


def smoothed_rff(
    x: Tensor,
    omega: Tensor,
    *,
    softmax_temp: float | None = None,
    smoothing: float = 1.0,
) -> Tensor:
    """`rff` and one constant feature, which adds smoothing^2 to the kernel.

    Args: x, omega, softmax_temp: as in rff. smoothing: finite.
    Returns: [..., 2 n_freq + 1], dtype of x.
    Raises: ValueError, TypeError. Thread-safe.

    Examples:
        >>> omega = ops.draw_omega(8, 16, orthogonal=False, seed=1)
        >>> ops.smoothed_rff(torch.randn(2, 5, 4, 8), omega, smoothing=0.5).shape
        torch.Size([2, 5, 4, 33])
    """
    _want_rows("smoothed_rff", x)
    return torch.ops.tarn.smoothed_rff(x, omega, softmax_temp, float(smoothing))


def grf(
    x: Tensor,
    omega: Tensor,
    *,
    softmax_temp: float | None = 1.0,
    kernel_fn: str | Callable[[Tensor], Tensor] = "relu",
) -> Tensor:
    """Generalised random features f(omega^T x~), without a factor.

    Args:
        x: [..., K]. omega: [K, n_freq].
        softmax_temp: >= 0; None: 1 / sqrt(K).
        kernel_fn: f, "relu" or a function of a tensor, entry by entry.

    Returns: [..., n_freq], dtype of x.
    Raises: ValueError, TypeError. Thread-safe.
    Source: Choromanski et al. 2021 (arXiv 2009.14794), section 2.2.

    Examples:
        >>> omega = ops.draw_omega(8, 16, orthogonal=True, seed=1)
        >>> ops.grf(torch.randn(2, 5, 4, 8), omega, kernel_fn=torch.sigmoid).shape
        torch.Size([2, 5, 4, 16])
    """
    _want_rows("grf", x)
    if callable(kernel_fn):
        return projected(x, omega, softmax_temp, kernel_fn)
    checks.want_choice("grf", "kernel_fn", kernel_fn, ("relu",))
    return torch.ops.tarn.grf(x, omega, softmax_temp)


def projected(
    x: Tensor,
    omega: Tensor,
    softmax_temp: float | None,
    kernel_fn: Callable[[Tensor], Tensor],
) -> Tensor:
    """kernel_fn(omega^T x~), dtype of x; kernel_fn sees float32 or float64."""
    wide = x if x.dtype == torch.float64 else x.float()
    return kernel_fn(torch.ops.tarn.random_projection(wide, omega, softmax_temp)).to(x.dtype)


def _dims(n_dims: int | None) -> int:
    if n_dims == 0:
        raise checks.value_error("feature_width", "n_dims", "at least 1 or None", 0)
    return 0 if n_dims is None else n_dims


def _want_rows(op: str, x: Tensor) -> None:
    checks.want_tensor(op, "x", x)
