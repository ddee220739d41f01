"""One token through a whole layer with linear attention in one call
(`torch.ops.tarn.linear_layer_step`): a recurrent step costs less than the dozen
operators that it is made of take to be called. Only where nobody could tell: no
gradient is recorded, float32 on the CPU, modules of the classes that this package
builds, no listener, no dropout. Anything else goes part by part."""

from __future__ import annotations

from typing import Any

import torch

from tarn import _tables as tables
from tarn._fused import dropout_of, linears, plain_norm, serves, unheard
from tarn.events import QKVEvent
from tarn.recurrent._state import AttentionState

_DENOMINATORS = ("exact", "compat", "none")


def own(module: Any) -> bool:
    """Whether a module's class, not one derived from it, says that its step may be
    part of one call, and nobody listens to the module."""
    return "_one_call" in type(module).__dict__ and unheard(module)


def linear_layer_step(
    layer: Any, x: torch.Tensor, state: Any
) -> tuple[torch.Tensor, AttentionState] | None:
    """x [N, D] and the state of an encoder layer -> ([N, D], new state); None where
    the layer must go part by part."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or x.dim() != 2:
        return None
    attention, inner = layer.attention, getattr(layer.attention, "inner_attention", None)
    if not (serves(x) and own(attention) and own(inner)) or dropout_of(layer.dropout) != 0:
        return None
    arguments = inner.arguments()
    name = arguments["feature_map"]
    if len(arguments) != 3 or arguments["denominator"] not in _DENOMINATORS:
        return None
    if not isinstance(name, str) or not tables.feature_maps()[name]["elementwise"]:
        return None
    if attention.event_dispatcher.has_listeners(QKVEvent, attention):
        return None
    weights = _weights(layer, attention)
    if weights is None or layer.activation_name is None:
        return None
    heads = attention.n_heads
    widths = (weights[0].shape[0] // heads, weights[4].shape[0] // heads)
    facts = inner.facts_of(arguments, heads, *widths)
    S = z = None
    if state is not None:
        fits = isinstance(state, AttentionState) and state.fits(inner.kind, x.shape[0], facts)
        if not fits:
            return None  # a pair, or an error that the parts know how to tell
        S, z = state.tensors["S"], state.tensors["z"]
        if not serves(S, z):
            return None
    out, S, z = torch.ops.tarn.linear_layer_step.default(
        x,
        S,
        z,
        weights,
        heads,
        name,
        arguments["denominator"],
        arguments["eps"],
        layer.activation_name,
        layer.norm_kind,
        layer.norm1.eps,
        layer.pre_norm,
    )
    steps = state.steps + 1 if state is not None else torch.ones(x.shape[0], dtype=torch.int64)
    return out, AttentionState(inner.kind, {"S": S, "z": z}, steps, facts)


def _weights(layer: Any, attention: Any) -> list[torch.Tensor | None] | None:
    """The tensors in the operator's order; None unless every part is plain."""
    projections = linears(
        attention.query_projection,
        attention.key_projection,
        attention.value_projection,
        attention.out_projection,
    )
    gated = layer.linear3 is not None
    parts = (layer.linear1, layer.linear2, *((layer.linear3,) if gated else ()))
    forward = linears(*parts, bias=not gated)
    norms = [plain_norm(norm) for norm in (layer.norm1, layer.norm2)]
    if not projections or not forward or None in norms or norms[0]["eps"] != norms[1]["eps"]:
        return None
    if any(norm["kind"] != layer.norm_kind for norm in norms):
        return None
    first, second = norms
    weights = [tensor for part in projections for tensor in (part.weight, part.bias)]
    weights += [first["gamma"], first["beta"]]
    weights += [tensor for part in forward[:2] for tensor in (part.weight, part.bias)]
    return weights + [forward[2].weight if gated else None, second["gamma"], second["beta"]]
