"""The stacks of a model: every layer is built from the configuration as it sees it
(`layer_view`), so that one stack may mix kinds of attention."""

from __future__ import annotations

from typing import Any

import torch

from tarn._residual_layer import make_norm
from tarn.attention import AttentionLayer
from tarn.builders.attention_builders import AttentionBuilder
from tarn.feature_maps import by_name
from tarn.models._config import layer_view
from tarn.models._rotary import make_attention_layer
from tarn.nn._attention import attention_type
from tarn.transformers import (
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)

Config = dict[str, Any]


# Keys of the configuration that builders of attentions take under the same
# name, and those that are called otherwise there.
_SAME = (
    "local_context",
    "topk",
    "length_limit",
    "clusters",
    "iterations",
    "bits",
    "hash_bias",
    "rounds",
    "max_sequence_length",
    "aft_parameterization",
    "attention_dropout",
)
_RANDOM = ("favor", "favor-positive", "rff", "smoothed-rff", "grf")


def _settings(view: Config) -> dict[str, Any]:
    """Settings for the builder of one layer's attention, those of other kinds
    among them."""
    settings = {name: view[name] for name in _SAME}
    settings["query_dimensions"] = view["d_key"]
    settings["chunk_size"] = view["hash_chunk"]
    name = view["feature_map"]
    settings["feature_map"] = by_name(name)
    settings["denominator"] = view["denominator"]
    settings["eps"] = view["eps"]
    if name in _RANDOM:
        settings["n_dims"] = view["n_dims"] or None
        settings["redraw"] = view["redraw"]
    if name.startswith("favor"):
        settings["stabilise"] = view["stabilise"]
    return settings


def _attention(
    view: Config, causal: bool, number: int, kind: str | None = None
) -> AttentionLayer:
    """The attention layer of a view. number: its place in the model, by which what
    it draws differs from the others' draws. kind: that of cross attention, which
    has no positions; None: the view's own."""
    builder = AttentionBuilder()
    for name, value in _settings(view).items():
        if builder.takes(name):
            setattr(builder, name, value)
    inner = builder.get(attention_type(kind or view["attention"], causal))
    for module in inner.modules():
        assign = getattr(module, "assign_layer", None)
        if callable(assign):
            assign(number, seed=view["feature_seed"])
    return make_attention_layer(inner, view, kind is None and view["positions"] == "rotary")


def _block(config: Config) -> dict[str, Any]:
    """Arguments of a layer around its attentions."""
    same = ("d_model", "d_ff", "dropout", "activation", "norm", "norm_eps")
    kinds = ("norm_kind", "feed_forward")
    return {name: config[name] for name in (*same, *kinds)}


def _final_norm(config: Config) -> torch.nn.Module | None:
    if not config["final_norm"]:
        return None
    return make_norm(config["norm_kind"], config["d_model"], config["norm_eps"])


def make_encoder(config: Config, causal: bool) -> TransformerEncoder:
    """The stack of a decoder language model (causal) or of an encoder."""
    layers = [
        TransformerEncoderLayer(
            _attention(layer_view(config, index), causal, index), **_block(config)
        )
        for index in range(config["n_layers"])
    ]
    return TransformerEncoder(layers, _final_norm(config))


def make_decoder(config: Config) -> TransformerDecoder:
    """The decoder stack of a sequence-to-sequence model. Cross attention is that
    of the whole model: no pattern changes it."""
    layers = [
        TransformerDecoderLayer(
            _attention(layer_view(config, index), True, 2 * index),
            _attention(config, False, 2 * index + 1, config["cross_attention"]),
            **_block(config),
        )
        for index in range(config["n_decoder_layers"])
    ]
    return TransformerDecoder(layers, _final_norm(config))
