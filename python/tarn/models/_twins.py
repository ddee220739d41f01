"""Recurrent twins of a model's stacks: the same projections, norms and feature
maps, whoever replaced them, around recurrent attentions."""

from __future__ import annotations

from typing import Any

import torch

from tarn.attention._linear import LinearAttentionBase
from tarn.models._config import layer_view
from tarn.models._rotary import (
    RecurrentRotation,
    RecurrentTurnedLinearAttention,
    TurnedLinearAttention,
)
from tarn.recurrent.attention import (
    RecurrentAFTFullAttention,
    RecurrentAFTSimpleAttention,
    RecurrentAttentionLayer,
    RecurrentCrossAttentionLayer,
    RecurrentCrossFullAttention,
    RecurrentCrossLinearAttention,
    RecurrentExactTopKAttention,
    RecurrentFullAttention,
    RecurrentLinearAttention,
    RecurrentLocalAttention,
)
from tarn.recurrent.transformers import (
    RecurrentTransformerDecoder,
    RecurrentTransformerDecoderLayer,
    RecurrentTransformerEncoder,
    RecurrentTransformerEncoderLayer,
)

Config = dict[str, Any]


def first_places(state) -> torch.Tensor | int:
    """Tokens each row has consumed, [B], of a model's state; 0 before the
    first."""
    if state is None:
        return 0
    part = state[0]
    if isinstance(part, (list, tuple)):  # a decoder layer: self and cross
        part = part[0]
    return 0 if part is None else part.steps


def _refuse(kind: str) -> ValueError:
    return ValueError(
        f"attention: want a kind with a recurrent form (linear, full, local, exact-topk, "
        f"aft-full, aft-simple), got {kind!r}"
    )


def _inner(inner: Any, kind: str, cross: bool) -> torch.nn.Module:
    """The recurrent attention that shares `inner`'s parameters."""
    if isinstance(inner, LinearAttentionBase):
        cls = RecurrentCrossLinearAttention if cross else RecurrentLinearAttention
        return cls(
            inner.feature_map.query_dims,
            inner.feature_map,
            eps=inner.eps,
            event_dispatcher=inner.event_dispatcher,
            denominator=inner.denominator,
            compat=inner.compat,
        )
    shared: dict[str, Any] = {"event_dispatcher": inner.event_dispatcher}
    if kind == "aft-simple":
        return RecurrentAFTSimpleAttention(**shared)
    if kind == "aft-full":
        aft = RecurrentAFTFullAttention(1, 1, **shared)
        aft.max_sequence_length = inner.u.shape[0]
        aft.u, aft.v = inner.u, inner.v
        return aft
    shared.update(softmax_temp=inner.softmax_temp, attention_dropout=inner.dropout.p)
    if kind == "full":
        return (RecurrentCrossFullAttention if cross else RecurrentFullAttention)(**shared)
    if kind == "local" and not cross:
        return RecurrentLocalAttention(inner.local_context, **shared)
    if kind == "exact-topk" and not cross:
        return RecurrentExactTopKAttention(inner.topk, **shared)
    raise _refuse(kind)


_PROJECTIONS = ("query_projection", "key_projection", "value_projection", "out_projection")


def _attention(layer: Any, config: Config, kind: str, cross: bool) -> torch.nn.Module:
    if isinstance(layer.inner_attention, TurnedLinearAttention):
        inner: torch.nn.Module = RecurrentTurnedLinearAttention(layer.inner_attention)
    else:
        inner = _inner(layer.inner_attention, kind, cross)
        if not cross and config["positions"] == "rotary":
            inner = RecurrentRotation(inner, config["d_key"], config["rotary_base"])
    cls: Any = RecurrentCrossAttentionLayer if cross else RecurrentAttentionLayer
    with torch.device("meta"):  # sizes do not matter: everything is replaced
        twin = cls(inner, 1, 1)
    twin.n_heads = layer.n_heads
    for name in _PROJECTIONS:
        setattr(twin, name, getattr(layer, name))
    return twin


def _finish(twin: torch.nn.Module, layer: torch.nn.Module, names: tuple[str, ...]):
    for name in (*names, "linear1", "linear2", "linear3", "norm1", "norm2", "dropout"):
        setattr(twin, name, getattr(layer, name))
    twin.activation = layer.activation
    twin.pre_norm = layer.pre_norm
    return twin.train(layer.training)


def encoder_twin(stack: torch.nn.Module, config: Config) -> RecurrentTransformerEncoder:
    """Built at every call from the stack as it is: microseconds a layer."""
    layers = []
    for index, layer in enumerate(stack.layers):  # type: ignore[union-attr,arg-type]
        kind = layer_view(config, index)["attention"]
        attention = _attention(layer.attention, config, kind, False)
        with torch.device("meta"):
            twin = RecurrentTransformerEncoderLayer(attention, 1, 1)
        layers.append(_finish(twin, layer, ()))
    return RecurrentTransformerEncoder(layers, stack.norm, stack.event_dispatcher)  # type: ignore[arg-type]


def decoder_twin(stack: torch.nn.Module, config: Config) -> RecurrentTransformerDecoder:
    """As encoder_twin, of a decoder with cross attention."""
    layers = []
    for index, layer in enumerate(stack.layers):  # type: ignore[union-attr,arg-type]
        kind = layer_view(config, index)["attention"]
        past = _attention(layer.self_attention, config, kind, False)
        cross = _attention(layer.cross_attention, config, config["cross_attention"], True)
        with torch.device("meta"):
            twin = RecurrentTransformerDecoderLayer(past, cross, 1, 1)
        layers.append(_finish(twin, layer, ("norm3",)))
    return RecurrentTransformerDecoder(layers, stack.norm, stack.event_dispatcher)  # type: ignore[arg-type]
