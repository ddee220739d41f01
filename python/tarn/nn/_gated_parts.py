"""What gated mixers do to rows and tensors around their recurrence."""

from __future__ import annotations

from typing import Any

import torch


def want_read(mixer: torch.nn.Module) -> None:
    """Raises ValueError or TypeError where a call of a child would do more than read its
    weights, as these mixers do: several products are one, so no child is called."""
    op = type(mixer).__name__
    for name, child in mixer._modules.items():
        if child is None:
            continue
        hooks = (
            child._forward_hooks or child._forward_pre_hooks
            or child._backward_hooks or child._backward_pre_hooks
        )  # fmt: skip
        if hooks:
            hook = next(iter(hooks.values()))
            given = getattr(hook, "__name__", type(hook).__name__)
            wanted = "no hooks, because its weights are read together with those of others"
            raise ValueError(f"{op}: {name}: want {wanted}, got {given}")
        kind = torch.nn.Linear if isinstance(child, torch.nn.Linear) else torch.nn.Module
        if type(child).forward is not kind.forward or "forward" in child.__dict__:
            wanted = "a torch.nn.Linear" if name.endswith("_projection") else "weights alone"
            given = type(child).__name__
            raise TypeError(f"{op}: {name}: want {wanted}, got {given} with an overridden forward")


def wide(x: torch.Tensor) -> torch.Tensor:
    """float32, float64 where it is that."""
    return x if x.dtype == torch.float64 else x.to(torch.float32)


def split(x: torch.Tensor, heads: int) -> torch.Tensor:
    """[B, T, heads * width] -> [B, T, heads, width]."""
    return x.unflatten(2, (heads, x.shape[2] // heads))


def kept_rows(x: Any, kept: torch.Tensor | None) -> Any:
    """x with zeros where kept [B, T] is False, NaN included."""
    if kept is None or x is None:
        return x
    return torch.where(kept.view(*kept.shape, *[1] * (x.dim() - 2)), x, x.new_zeros(()))
