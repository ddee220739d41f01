"""The stacks of a model: every layer is built from the configuration as it sees it
(`layer_views`), so that one stack may mix kinds of attention."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from tarn import _tables as tables
from tarn._configurations import layer_views
from tarn._moe_part import MixtureOptions
from tarn._token_shift import begin_shifts
from tarn.attention import AttentionLayer
from tarn.builders.attention_builders import AttentionBuilder
from tarn.feature_maps import by_name
from tarn.models._parts import norm_of
from tarn.models._rotary import make_attention_layer
from tarn.nn._attention import attention_type
from tarn.nn._mixer import Mixer, is_mixer, make_mixer
from tarn.nn._parallel import ParallelMixer
from tarn.transformers import (
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)

Config = dict[str, Any]


# Keys with another name in the builders of attentions, keys that only some feature
# maps have, and keys that act elsewhere.
_RENAMED = {"hash_chunk": "chunk_size"}
_OF_RANDOM = ("n_dims", "redraw")
_OF_STABILISED = ("stabilise",)
_ELSEWHERE = ("feature_map", "feature_seed")


# Added to the number of a mixer's draws for each parallel mixer before it, as in C++.
_MOST_MIXERS = 1 << 14


def _sections() -> set[str]:
    """The sections of a configuration that some mixer reads."""
    return {section for mixer in tables.mixers().values() for section in mixer["sections"]}


def _settings(view: Config, sections: set[str]) -> dict[str, Any]:
    """Settings for the builder of one layer's attention, those of other kinds
    among them."""
    traits = tables.feature_maps()[view["feature_map"]]
    left = {*_ELSEWHERE}
    if not traits["uses_omega"]:
        left.update(_OF_RANDOM)
    if not traits["can_stabilise"]:
        left.update(_OF_STABILISED)
    settings = {
        _RENAMED.get(name, name): view[name]
        for name, field in tables.config_fields().items()
        if field["section"] in sections and name in view and name not in left
    }
    settings["query_dimensions"] = view["d_key"]
    settings["feature_map"] = by_name(view["feature_map"])
    if "n_dims" in settings:
        settings["n_dims"] = settings["n_dims"] or None
    return settings


def _attention(
    view: Config,
    sections: set[str],
    causal: bool,
    number: int,
    kind: str | None = None,
    draw: int | None = None,
) -> AttentionLayer | Mixer | ParallelMixer:
    """The attention layer of a view. sections: of `_sections`. number: its place in the
    model. draw: the number that makes its random draws differ from those of the others;
    None: its place. kind: that of
    cross attention, which has no positions; None: the view's own."""
    if kind is None and "branches" in view:
        views = view["branches"]
        branches = [
            _attention(branch, sections, causal, number, draw=number + place * _MOST_MIXERS)
            for place, branch in enumerate(views)
        ]
        factors = [branch["branch_factor"] for branch in views]
        return ParallelMixer(view["attention"], branches, factors)
    if kind is None and is_mixer(view["attention"], view):
        return make_mixer(view, number)
    builder = AttentionBuilder()
    for name, value in _settings(view, sections).items():
        if builder.takes(name):
            setattr(builder, name, value)
    inner = builder.get(attention_type(kind or view["attention"], causal))
    for module in inner.modules():
        assign = getattr(module, "assign_layer", None)
        if callable(assign):
            assign(number if draw is None else draw, seed=view["feature_seed"])
    return make_attention_layer(inner, view, kind is None and view["positions"] == "rotary")


def _block(view: Config) -> dict[str, Any]:
    """Arguments of a layer around its attentions."""
    same = ("d_model", "d_ff", "dropout", "activation", "norm", "norm_eps")
    kinds = ("norm_kind", "feed_forward", "feed_forward_bias")
    factors = ("residual_factor", "norm_offset")
    arguments = {name: view[name] for name in (*same, *kinds, *factors)}
    if view["parallel_residual"]:  # of encoders' layers alone
        arguments["parallel_residual"] = True
    if view["feed_forward"] == "moe":
        names = (field.name for field in dataclasses.fields(MixtureOptions))
        arguments["moe"] = MixtureOptions(**{name: view[name] for name in names})
    return arguments


def _final_norm(config: Config) -> torch.nn.Module | None:
    return norm_of(config) if config["final_norm"] else None


def make_encoder(config: Config, causal: bool) -> TransformerEncoder:
    """The stack of a decoder language model (causal) or of an encoder."""
    sections = _sections()
    layers = [
        TransformerEncoderLayer(_attention(view, sections, causal, index), **_block(view))
        for index, view in enumerate(layer_views(config, config["n_layers"]))
    ]
    for index, layer in enumerate(layers):
        begin_shifts(layer, index, len(layers))
    return TransformerEncoder(layers, _final_norm(config))


def borrowing(stack: TransformerEncoder, owner: torch.nn.Module) -> TransformerEncoder:
    """The stack with the children `layers` and `norm` of the owner instead of its own:
    one registry of children for both, so that they never differ."""
    stack.__dict__.pop("norm", None)  # None, where there is no last norm
    stack._modules = owner._modules
    return stack


def make_decoder(config: Config) -> TransformerDecoder:
    """The decoder stack of a sequence-to-sequence model. All layers have the cross
    attention of the model: no pattern changes it."""
    sections = _sections()
    layers = [
        TransformerDecoderLayer(
            _attention(view, sections, True, 2 * index),
            _attention(config, sections, False, 2 * index + 1, config["cross_attention"]),
            **_block(view),
        )
        for index, view in enumerate(layer_views(config, config["n_decoder_layers"]))
    ]
    return TransformerDecoder(layers, _final_norm(config))
