"""Optimisers whose step is one pass over all parameters. The arithmetic is
`torch.ops.tarn.adam_step_`; these classes hold the state."""

from collections.abc import Callable, Sequence
from typing import Any, overload

import torch
from torch.optim.optimizer import ParamsT

from tarn import _library

_library.ensure()  # registers torch.ops.tarn

__all__ = ["AdamW", "RAdam"]


class _Adam(torch.optim.Optimizer):
    """What both optimisers share. Parameters are dense float32 or float64, and those of a
    group are on one device. In float32 on the CPU a step is one pass; elsewhere it
    takes torch's operators, one parameter at a time. Clipping reads the norms, which
    waits for the device.

    lr, betas, eps, weight_decay: as in torch.optim.AdamW; the decay is
    decoupled. clip: 0 turns clipping off.
    """

    _kind: str | None = None

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: Sequence[float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        clip: float = 0.0,
    ) -> None:
        if not clip >= 0:
            raise ValueError(f"{type(self).__name__}: clip: want a number >= 0, got {clip}")
        defaults = dict(
            lr=lr, betas=tuple(betas), eps=eps, weight_decay=weight_decay, clip=clip, updates=0
        )
        super().__init__(params, defaults)

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Applies the gradients of all parameters that have one. Raises ValueError,
        TypeError."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            self._step_group(group)
        return loss

    def _step_group(self, group: dict[str, Any]) -> None:
        params = [p for p in group["params"] if p.grad is not None]
        if not params:
            return
        states = [self.state[p] for p in params]
        for p, state in zip(params, states):
            if not state:
                state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
        grads = [p.grad for p in params]
        group["updates"] += 1
        torch.ops.tarn.adam_step_.default(
            params,
            grads,
            [state["m"] for state in states],
            [state["v"] for state in states],
            self._scales(grads, group["clip"]),
            self._kind,
            group["updates"],
            float(group["lr"]),
            *map(float, group["betas"]),
            float(group["eps"]),
            float(group["weight_decay"]),
        )

    def _scales(self, grads: list[torch.Tensor], clip: float) -> list[float]:
        """One factor for each gradient; [] if all are 1."""
        if clip == 0:
            return []
        norms = torch.ops.tarn.gradient_norms.default(grads)
        return (clip / self._clipped(norms).clamp_min(clip)).cpu().tolist()

    def _clipped(self, norms: torch.Tensor) -> torch.Tensor:
        """The norm that clip bounds, for each gradient."""
        raise NotImplementedError(f"{type(self).__name__}: _clipped is not defined")


class AdamW(_Adam):
    """AdamW (Loshchilov and Hutter 2019, algorithm 2). clip bounds the norm over all
    gradients of a group."""

    _kind = "adamw"

    def _clipped(self, norms: torch.Tensor) -> torch.Tensor:
        return norms.norm().expand(norms.shape)


class RAdam(_Adam):
    """RAdam (Liu et al. 2020, algorithm 2), in the variant of the linear transformer
    paper's code (eps is added to sqrt(v) before its bias is corrected). clip bounds
    the norm of each tensor's gradient, as in that code."""

    _kind = "radam"

    def _clipped(self, norms: torch.Tensor) -> torch.Tensor:
        return norms
