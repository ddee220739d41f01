"""What mixers with a decaying state do to rows and tensors around their recurrence."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from tarn import ops
from tarn._fused import Branch

# The initial steps of a decay (Gu and Dao 2023, arXiv 2312.00752, section 3.6).
_STEPS, _STEP_FLOOR = (1e-3, 0.1), 1e-4
_MOST_MAPS = 4  # of tarn.ops.layer_heads


def is_read(child: torch.nn.Module) -> bool:
    """Whether a call of the child is its class's own, so that its weights are all of it.
    What takes a map's place, such as peft's adapters, is called."""
    kind = torch.nn.Linear if isinstance(child, torch.nn.Linear) else torch.nn.Module
    return type(child).forward is kind.forward and "forward" not in child.__dict__


def products(x: torch.Tensor, maps: list[Any]) -> torch.Tensor:
    """The maps of x [B, T, D] side by side: one product, or a call of each where one of them
    is not read. All have biases, or none has."""
    if not all(is_read(part) for part in maps):
        return torch.cat([part(x) for part in maps], 2)
    weights, biases = weights_and_biases(maps)
    return ops.layer_heads(x, weights, biases)


def left_to(last: Any, rows: torch.Tensor) -> Branch:
    """Rows whose last map is left to be applied, or has been where it is not read."""
    if not is_read(last):
        return Branch(last(rows))
    return Branch(rows, last.bias, last.weight)


def want_read(mixer: torch.nn.Module, called: Collection[str] = ()) -> None:
    """Raises ValueError or TypeError where a call of a child would do more than read its
    weights, as these mixers do: several products are one, so no child is called but
    replacements of those that `called` names."""
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
        if name not in called and not is_read(child):
            wanted = "a torch.nn.Linear" if name.endswith("_projection") else "weights alone"
            given = type(child).__name__
            raise TypeError(f"{op}: {name}: want {wanted}, got {given} with an overridden forward")


def weights_and_biases(
    maps: list[torch.nn.Linear],
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Those of maps that read the same rows, as ops.layer_heads takes them: the last ones,
    which are the narrow ones, as one. All maps have a bias or none has."""
    parts: list[list[torch.Tensor]] = [[part.weight for part in maps]]
    parts.append([part.bias for part in maps if part.bias is not None])
    for part in parts:
        if len(part) > _MOST_MAPS:
            part[_MOST_MAPS - 1 :] = [torch.cat(part[_MOST_MAPS - 1 :])]
    return parts[0], parts[1]


def wide(x: torch.Tensor) -> torch.Tensor:
    """float32, float64 where it is that."""
    return x if x.dtype == torch.float64 else x.to(torch.float32)


def split(x: torch.Tensor, heads: int) -> torch.Tensor:
    """[B, T, heads * width] -> [B, T, heads, width]."""
    return x.unflatten(2, (heads, x.shape[2] // heads))


def head_features(
    x: torch.Tensor, form: Mapping[str, Any], qk_map: str, maps: Sequence[Any], unit: bool
) -> torch.Tensor:
    """The features [B, T, H, C] of queries, or keys, [B, T, H, K]. qk_map: a word of that key
    (mixers/gated/form_features.h); maps: its Linear modules, none to two; unit: whether the
    features of a head are divided by their sum."""
    made = [ops.affine(x, one.weight, one.bias) for one in maps]
    if qk_map == "elu1":
        x = torch.where(x > 0, x + 1, x.clamp(max=0).exp())
    elif qk_map == "relu":
        x = x.relu()
    elif qk_map == "hadamard":
        x = made[0] * made[1]
    elif qk_map == "t2r":
        x = made[0].relu()
    elif qk_map == "hedgehog":
        x = torch.cat([2 * made[0], -2 * made[0]], -1).softmax(-1)
    elif qk_map == "dpfp":
        both = torch.cat([x.relu(), (-x).relu()], -1)
        x = torch.cat([both * both.roll(j, -1) for j in range(1, form["dpfp_rolls"] + 1)], -1)
    return x / (x.sum(-1, keepdim=True) + form["unit_sum_eps"]) if unit else x


def kept_rows(x: Any, kept: torch.Tensor | None) -> Any:
    """x with zeros where kept [B, T] is False, NaN included."""
    if kept is None or x is None:
        return x
    return torch.where(kept.view(*kept.shape, *[1] * (x.dim() - 2)), x, x.new_zeros(()))


def convolve(
    filters: Any,
    rows: torch.Tensor,
    lengths: torch.Tensor | None,
    window: torch.Tensor | None,
    activation: str = "silu",
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The short convolution of rows [B, T, C] with its activation, "silu" or "none", and its
    next window [B, W - 1, C]; without a window from zeros, and None. filters: a module with
    weight [C, W] and, or not, bias [C]."""
    bias = getattr(filters, "bias", None)
    if window is None:
        made = ops.short_convolution(
            rows, filters.weight, bias, activation=activation, lengths=lengths
        )
        return made, None
    return ops.short_convolution(
        rows,
        filters.weight,
        bias,
        activation=activation,
        lengths=lengths,
        initial_state=window,
        return_state=True,
    )


def add_weights(mixer: torch.nn.Module, shapes: Mapping[str, Sequence[int]]) -> None:
    """Adds parameters by their names in the weight file: a torch.nn.Linear for each
    projection, with a bias where there is one, and ones for the others."""
    for name, shape in shapes.items():
        owner, _, part = name.rpartition(".")
        if owner.endswith("_projection"):
            if part == "weight":
                bias = f"{owner}.bias" in shapes
                mixer.add_module(owner, torch.nn.Linear(shape[1], shape[0], bias=bias))
            continue
        if owner and not hasattr(mixer, owner):
            mixer.add_module(owner, torch.nn.Module())
        at = mixer.get_submodule(owner) if owner else mixer
        at.register_parameter(part, torch.nn.Parameter(torch.ones(*shape)))


@torch.no_grad()
def draw_filters(filters: torch.nn.Module) -> None:
    """Gives a convolution's parameters the first values of torch.nn.Conv1d."""
    weight = filters.get_parameter("weight")
    bound = weight.shape[1] ** -0.5
    for parameter in filters.parameters():
        parameter.uniform_(-bound, bound)


@torch.no_grad()
def draw_step_bias(bias: torch.Tensor) -> None:
    """Draws biases whose softplus is a step, even in its logarithm."""
    steps = bias.uniform_(*map(math.log, _STEPS)).exp().clamp(min=_STEP_FLOOR)
    bias.copy_(steps + torch.log(-torch.expm1(-steps)))
