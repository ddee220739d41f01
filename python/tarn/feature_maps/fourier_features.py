"""Maps with a random matrix omega: random Fourier features (Rahimi and Recht
2007), FAVOR+ and generalised random features (Choromanski et al. 2020, arXiv
2009.14794). The mathematics is in `tarn.ops`; this module holds omega and decides
when it is drawn.
"""

from __future__ import annotations

from math import sqrt
from typing import Any, Callable

import torch

from tarn import ops
from tarn._randomness import ForwardCounter, draw_key
from tarn.feature_maps.base import FeatureMap


def orthogonal_random_matrix_(w: torch.Tensor) -> None:
    """Fills w [rows, columns] in place: columns orthogonal in blocks of `rows`,
    with the norms of Gaussian columns. Draws one seed from torch's default
    generator; the maps below use `tarn.ops.draw_omega` with seeds of their own.
    Raises ValueError."""
    if w.dim() != 2:
        raise ValueError(f"orthogonal_random_matrix_: w: want 2 axes, got {w.dim()}")
    rows, columns = w.shape
    with torch.no_grad():
        w.copy_(ops.draw_omega(rows, columns, orthogonal=True, seed=draw_key()))


class RandomFourierFeatures(FeatureMap):
    """[cos u, sin u] / sqrt(n_freq), u = omega^T x sqrt(softmax_temp): the mean
    of phi(x) . phi(y) is exp(-softmax_temp |x - y|^2 / 2).

    Args:
        query_dimensions: E.
        n_dims: features requested; 2 floor(n_dims / 2) are made. None: E.
        softmax_temp: None is 1/sqrt(E).
        orthogonal: whether columns of omega are orthogonal in blocks of E.
        redraw: forward calls in training from one draw of omega to the next; 0: never.
        deterministic_eval: used under redraw_in_eval and compat only; False there
            draws in evaluation as well, as fast-transformers does.
        seed: seed of omega. None: one from torch's generator, or the builder's.
        layer: number that tells layers with one seed apart.
        redraw_in_eval, compat: calls in evaluation count and draw as well, unless
            deterministic_eval.

    Buffer `omega` [E, n_freq], float32, drawn at construction from (seed, layer)
    and stored in checkpoints; the draw of the n-th training call is a function
    of (seed, layer, n). Evaluation does not draw otherwise, nor does the
    recomputation of activation checkpointing.
    """

    def __init__(
        self,
        query_dimensions: int,
        n_dims: int | None = None,
        softmax_temp: float | None = None,
        orthogonal: bool = False,
        redraw: int = 1,
        deterministic_eval: bool = False,
        *,
        seed: int | None = None,
        layer: int = 0,
        redraw_in_eval: bool = False,
    ):
        super().__init__(query_dimensions)
        self.query_dimensions = query_dimensions
        self.n_dims: int = query_dimensions if n_dims is None else n_dims
        self.softmax_temp: float = self._temperature(softmax_temp)
        self.orthogonal = orthogonal
        self.redraw = redraw
        self.deterministic_eval = deterministic_eval
        self.redraw_in_eval = redraw_in_eval
        if self._n_freq() < 1 or redraw < 0:
            raise ValueError(
                f"{type(self).__name__}: n_dims, redraw: want at least one frequency and "
                f"redraw >= 0, got {self.n_dims} and {redraw}"
            )
        self._seeded = seed is not None
        self._seed = draw_key() if seed is None else seed
        self._layer = layer
        self._calls = ForwardCounter()
        self.omega: torch.Tensor
        # Where torch makes tensors now, which may be the meta device.
        self.register_buffer("omega", self._draw(0).to(torch.get_default_device()))

    def _temperature(self, softmax_temp: float | None) -> float:
        return 1 / sqrt(self.query_dimensions) if softmax_temp is None else softmax_temp

    def _n_freq(self) -> int:
        """Columns of omega."""
        return self.n_dims // 2

    def _draw(self, step: int) -> torch.Tensor:
        return ops.draw_omega(
            self.query_dimensions,
            self._n_freq(),
            orthogonal=self.orthogonal,
            seed=self._seed,
            layer=self._layer,
            step=step,
        )

    def assign_layer(self, layer: int, seed: int | None = None) -> None:
        """Draws omega again, for this layer. A seed given to the constructor is
        kept."""
        if seed is not None and not self._seeded:
            self._seed = seed
        self._layer = layer
        self.redraw_at(0)

    def redraw_at(self, step: int) -> None:
        """Sets omega to the draw of this step, a function of (seed, layer, step).
        With redraw = 0 a training loop calls it with its optimiser steps."""
        # A new tensor: graphs of earlier calls keep theirs.
        self.omega = self._draw(step).to(self.omega)

    def new_feature_map(self, device: torch.device | str | None = None) -> None:
        """Counts a call of this map and draws omega where a new one is due."""
        in_eval = (self.compat or self.redraw_in_eval) and not self.deterministic_eval
        if not (self.training or in_eval):
            return
        call = self._calls.advance()
        # Call 0 uses the omega of the constructor or checkpoint.
        if call and self.redraw and call % self.redraw == 0:
            self.redraw_at(call)

    def _omega_of(self, x: torch.Tensor) -> torch.Tensor:
        return self.omega.to(x.dtype) if x.dtype == torch.float64 else self.omega

    def _normalised(self, features: torch.Tensor, n_dims: int) -> torch.Tensor:
        """The features, which compat divides by sqrt(n_dims) instead of by the square root of
        the number of columns actually made (they differ where n_dims is odd)."""
        made = 2 * self._n_freq()
        if not self.compat or made == n_dims:
            return features
        return features * sqrt(made / n_dims)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = ops.rff(x, self._omega_of(x), softmax_temp=self.softmax_temp)
        return self._normalised(features, self.n_dims)

    def _named_arguments(self) -> dict[str, Any] | None:
        return self._random_arguments("rff")

    def _random_arguments(self, name: str, **more: Any) -> dict[str, Any] | None:
        # The operators have no compat form.
        if self.compat:
            return None
        shared = {"omega": self.omega, "softmax_temp": self.softmax_temp}
        return {"feature_map": name, **shared, **more}

    def extra_repr(self) -> str:
        return f"n_dims={self.n_dims}, orthogonal={self.orthogonal}, redraw={self.redraw}"


class SmoothedRandomFourierFeatures(RandomFourierFeatures):
    """RandomFourierFeatures on n_dims - 1 features and the constant smoothing:
    adds smoothing^2 to the kernel. Makes 2 floor((n_dims - 1) / 2) + 1."""

    def __init__(
        self,
        query_dimensions: int,
        n_dims: int | None = None,
        softmax_temp: float | None = None,
        orthogonal: bool = False,
        smoothing: float = 1.0,
        redraw: int = 1,
        deterministic_eval: bool = False,
        **drawing: Any,
    ):
        self.smoothing = smoothing
        super().__init__(
            query_dimensions,
            n_dims,
            softmax_temp,
            orthogonal,
            redraw,
            deterministic_eval,
            **drawing,
        )

    def _n_freq(self) -> int:
        return (self.n_dims - 1) // 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = ops.smoothed_rff(
            x, self._omega_of(x), softmax_temp=self.softmax_temp, smoothing=self.smoothing
        )
        if not self.compat:
            return features
        waves, constant = features[..., :-1], features[..., -1:]
        return torch.cat([self._normalised(waves, self.n_dims - 1), constant], dim=-1)

    def _named_arguments(self) -> dict[str, Any] | None:
        return self._random_arguments("smoothed-rff", smoothing=self.smoothing)


class Favor(RandomFourierFeatures):
    """Positive random features of the softmax kernel:
    exp(-|x~|^2 / 2) / sqrt(C) [exp(u), exp(-u)], x~ = x sqrt(softmax_temp),
    u = omega^T x~; the mean of phi(x) . phi(y) is exp(softmax_temp x . y).

    stabilise: whether attention divides by a running maximum of the exponent,
        causally and equally in batch and recurrent form (`tarn.ops`). The map
        by itself does not depend on it, except under compat, where |x~|^2 has
        its maximum over axis 1 added to it, as in fast-transformers.
    stabilize: the same, as fast-transformers spells it; ValueError where the two
        differ.
    The rest as in RandomFourierFeatures, orthogonal by default.
    """

    signed = False
    positive = False

    def __init__(
        self,
        query_dimensions: int,
        n_dims: int | None = None,
        softmax_temp: float | None = None,
        orthogonal: bool = True,
        stabilize: bool | None = None,
        redraw: int = 1,
        deterministic_eval: bool = False,
        *,
        stabilise: bool | None = None,
        **drawing: Any,
    ):
        if None not in (stabilise, stabilize) and bool(stabilise) != bool(stabilize):
            raise ValueError(
                f"{type(self).__name__}: stabilise: want it as stabilize {stabilize!r}, "
                f"got {stabilise!r}"
            )
        super().__init__(
            query_dimensions,
            n_dims,
            softmax_temp,
            orthogonal,
            redraw,
            deterministic_eval,
            **drawing,
        )
        self.stabilise = bool(stabilize if stabilise is None else stabilise)

    @property
    def stabilize(self) -> bool:
        """`stabilise`, as fast-transformers spells it."""
        return self.stabilise

    @stabilize.setter
    def stabilize(self, value: bool) -> None:
        self.stabilise: bool = value

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = ops.favor(
            x, self._omega_of(x), softmax_temp=self.softmax_temp, positive=self.positive
        )
        if not self.compat:
            return features
        if not self.positive:
            features = self._normalised(features, self.n_dims)
        if self.stabilise:
            squares = x.square().sum(-1, keepdim=True) * self.softmax_temp
            features = features * torch.exp(-squares.amax(1, keepdim=True))
        return features

    def _named_arguments(self) -> dict[str, Any] | None:
        name = "favor-positive" if self.positive else "favor"
        return self._random_arguments(name, stabilise=self.stabilise)


class FavorPositive(Favor):
    """One positive feature per direction: exp(-|x~|^2 / 2) / sqrt(C) exp(u). It has
    the mean of Favor and more variance than its pairs, and makes n_dims features."""

    positive = True

    def _n_freq(self) -> int:
        return self.n_dims


class GeneralizedRandomFeatures(RandomFourierFeatures):
    """kernel_fn(omega^T x sqrt(softmax_temp)), n_dims features.

    softmax_temp: 1 by default. kernel_fn: a function on tensors. The rest as in
    RandomFourierFeatures, orthogonal by default.
    """

    def __init__(
        self,
        query_dimensions: int,
        n_dims: int | None = None,
        softmax_temp: float = 1.0,
        orthogonal: bool = True,
        kernel_fn: Callable[[torch.Tensor], torch.Tensor] = torch.relu,
        redraw: int = 1,
        deterministic_eval: bool = False,
        **drawing: Any,
    ):
        super().__init__(
            query_dimensions,
            n_dims,
            softmax_temp,
            orthogonal,
            redraw,
            deterministic_eval,
            **drawing,
        )
        self.kernel_fn = kernel_fn
        # relu is the only function known to give no negative features.
        self.signed: bool = kernel_fn is not torch.relu

    def _n_freq(self) -> int:
        return self.n_dims

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ops.grf(
            x, self._omega_of(x), softmax_temp=self.softmax_temp, kernel_fn=self.kernel_fn
        )

    def _named_arguments(self) -> dict[str, Any] | None:
        return self._random_arguments("grf") if self.kernel_fn is torch.relu else None
