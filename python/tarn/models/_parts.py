"""What the models share: checks, masks and means, embeddings with positions,
stacks from a configuration, the head."""

from __future__ import annotations

from typing import Any

import torch

from tarn.builders import TransformerDecoderBuilder, TransformerEncoderBuilder
from tarn.builders.attention_builders import BaseAttentionBuilder
from tarn.feature_maps import FeatureMap, by_name
from tarn.masking import LengthMask
from tarn.models._rotary import add_rotation

Config = dict[str, Any]

# A table as large as the tokens, and a head that reads such an embedding, learn
# later than small ones; tarn train begins the same way.
_SMALL = 0.02


class IdentityFeatureMap(FeatureMap):
    """phi(x) = x."""

    signed = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def _named_arguments(self) -> dict[str, Any] | None:
        return {"feature_map": "identity"}


def check_arch(cls: type, config: Config, archs: tuple[str, ...]) -> None:
    if config["arch"] not in archs:
        wanted = " or ".join(repr(arch) for arch in archs)
        raise ValueError(f"{cls.__name__}: arch: want {wanted}, got {config['arch']!r}")


def check_task(cls: type, config: Config, task: str) -> None:
    if config["task"] != task:
        raise ValueError(f"{cls.__name__}: task: want {task!r}, got {config['task']!r}")


def outputs_of(config: Config) -> int:
    """Rows of the head."""
    if config["task"] == "image":
        return 3 * config["n_mixtures"]
    return config["n_classes"] if config["task"] in ("classify", "ctc") else config["vocab_size"]


def valid_frames(
    name: str, config: Config, frames: torch.Tensor, lengths: torch.Tensor | None
) -> tuple[torch.Tensor, LengthMask]:
    """frames [B, T, input_dim] with zeros past the lengths [B] (None: T), so that
    what stands there, NaN included, touches neither results nor gradients."""
    if frames.dim() != 3 or frames.shape[2] != config["input_dim"]:
        raise ValueError(
            f"{name}: frames: want [B, T, {config['input_dim']}], got {list(frames.shape)}"
        )
    mask = mask_of(frames[..., 0], lengths)
    return torch.where(mask.bool_matrix[..., None], frames, 0.0), mask


def mask_of(tokens: torch.Tensor, lengths: torch.Tensor | None) -> LengthMask:
    """The mask of rows [B, T] by their lengths [B]; None: all T."""
    batch, seq_len = tokens.shape
    if lengths is None:
        lengths = torch.full((batch,), seq_len)
    return LengthMask(lengths, max_len=seq_len, device=tokens.device)


def mean_over_valid(x: torch.Tensor, mask: LengthMask) -> torch.Tensor:
    """[B, T, D] -> [B, D]; 0 for an empty row."""
    kept = torch.where(mask.bool_matrix[..., None], x, 0.0)
    return kept.sum(1) / mask.lengths.to(x.device).clamp(min=1)[:, None]


class Embedding(torch.nn.Module):
    """Tokens, or frames of numbers (task ctc), and their places -> [B, T, D]. Its
    parts are registered by the model that owns it, under the names of the weight
    file."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config["d_model"]
        self.concat = config["position_combine"] == "concat"
        self.positions = config["positions"]
        inner = width // 2 if self.concat else width
        self.tokens: torch.nn.Embedding | torch.nn.Linear
        if config["task"] == "ctc":
            self.tokens = torch.nn.Linear(config["input_dim"], inner)
        else:
            self.tokens = torch.nn.Embedding(config["vocab_size"], inner)
        self.table: torch.nn.Embedding | None = None
        if config["tied_head"]:
            torch.nn.init.normal_(self.tokens.weight, std=_SMALL)
        if self.positions == "learned":
            self.table = torch.nn.Embedding(config["max_positions"], width)
            torch.nn.init.normal_(self.table.weight, std=_SMALL)
        self.sinusoidal_width = width - inner if self.concat else width

    def forward(self, tokens: torch.Tensor, first: torch.Tensor | int = 0) -> torch.Tensor:
        """tokens [B, T] int64 (or frames [B, T, input_dim]), first: place of
        tokens[:, 0], one for all or [B] -> [B, T, D]."""
        x = self.tokens(tokens)
        seq_len = tokens.shape[1]
        places = torch.arange(seq_len, device=tokens.device)
        if isinstance(first, torch.Tensor):
            places = places + first.to(tokens.device)[:, None]
        else:
            places = places + first
        if self.table is not None:
            # Tokens past the table share its last row.
            return x + self.table(places.clamp(max=self.table.num_embeddings - 1))
        if self.positions == "sinusoidal":
            rows = int(places.max()) + 1 if places.numel() else 0
            table = torch.ops.tarn.sinusoidal_table(rows, self.sinusoidal_width)
            table = table.to(x.device, x.dtype)[places]
            if self.concat:
                return torch.cat([x, table.expand(*x.shape[:2], -1)], dim=-1)
            return x + table
        return x


class Predictor(torch.nn.Module):
    """The affine map to logits. Tied, it owns the bias alone and reads the
    token embedding."""

    def __init__(self, outputs: int, d_model: int, tied: bool) -> None:
        super().__init__()
        bound = d_model**-0.5
        if tied:
            self.register_parameter("weight", None)
        else:
            self.weight = torch.nn.Parameter(torch.empty(outputs, d_model).uniform_(-bound, bound))
        self.bias = torch.nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))

    def forward(self, x: torch.Tensor, embedding: torch.Tensor | None = None) -> torch.Tensor:
        weight = self.weight if self.weight is not None else embedding
        assert weight is not None
        return torch.nn.functional.linear(x, weight, self.bias)


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


def attention_type(kind: str, causal: bool) -> str:
    """The builders' name of a kind: linear attention under a causal mask and
    what conditional-full falls back to have names of their own."""
    linear = "causal-linear" if causal else "linear"
    if kind == "linear":
        return linear
    return f"conditional-full:{linear}" if kind == "conditional-full" else kind


def attention_settings(config: Config, kinds: tuple[str, ...]) -> dict[str, Any]:
    """Settings for the attentions of these kinds."""
    settings = {name: config[name] for name in _SAME}
    settings["chunk_size"] = config["hash_chunk"]
    if "linear" in kinds or "conditional-full" in kinds:
        name = config["feature_map"]
        settings["feature_map"] = (
            IdentityFeatureMap.factory() if name == "identity" else by_name(name)
        )
        settings["denominator"] = config["denominator"]
        settings["eps"] = config["eps"]
        if name in _RANDOM:
            settings["n_dims"] = config["n_dims"] or None
            settings["redraw"] = config["redraw"]
        if name.startswith("favor"):
            settings["stabilise"] = config["stabilise"]
    return settings


def _apply(settings: dict[str, Any], *parts: BaseAttentionBuilder) -> None:
    """Only what a kind takes is said to it."""
    for name, value in settings.items():
        for part in parts:
            if part.takes(name):
                setattr(part, name, value)


def _common(config: Config) -> dict[str, Any]:
    return {
        "n_heads": config["n_heads"],
        "query_dimensions": config["d_key"],
        "value_dimensions": config["d_value"],
        "model_dimensions": config["d_model"],
        "feed_forward_dimensions": config["d_ff"],
        "dropout": config["dropout"],
        "activation": config["activation"],
        "final_normalization": config["final_norm"],
        "norm": config["norm"],
        "norm_eps": config["norm_eps"],
        "feature_seed": config["feature_seed"],
    }


def make_encoder(config: Config, causal: bool):
    """The stack of a decoder language model (causal) or of an encoder."""
    kind = config["attention"]
    builder = TransformerEncoderBuilder.from_kwargs(
        n_layers=config["n_layers"],
        attention_type=attention_type(kind, causal),
        **_common(config),
    )
    _apply(attention_settings(config, (kind,)), builder.attention)
    encoder = builder.get()
    add_rotation(encoder, config)
    return encoder


def make_decoder(config: Config):
    """The decoder stack of a sequence-to-sequence model."""
    kind, cross = config["attention"], config["cross_attention"]
    builder = TransformerDecoderBuilder.from_kwargs(
        n_layers=config["n_decoder_layers"],
        self_attention_type=attention_type(kind, True),
        cross_attention_type=attention_type(cross, False),
        cross_model_dimensions=config["d_model"],
        **_common(config),
    )
    settings = attention_settings(config, (kind, cross))
    _apply(settings, builder.self_attention, builder.cross_attention)
    decoder = builder.get()
    add_rotation(decoder, config)
    return decoder
