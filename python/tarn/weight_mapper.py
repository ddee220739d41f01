"""Weights of other encoders under tarn's names, and back.

A mapper is a list of rules; each key of a state dict goes to the first rule
that matches it. `PytorchMapper` and `HugginfaceBertEncoderMapper` (spelled as
in fast-transformers) read the two common layouts; `to_pytorch` and
`to_bert_encoder` write them; `encoder_from_pytorch` builds the module as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.serialization import MAP_LOCATION
from torch.types import FileLike

Item = tuple[str, Any]


class MappingRule:
    """A rule that replaces one key and value by others."""

    def matches(self, key: str) -> bool:
        """Whether the rule takes this key."""
        raise NotImplementedError

    def apply(self, key: str, value: Any) -> list[Item]:
        """The keys and values that stand for this one; none drops it."""
        raise NotImplementedError


class IdentityRule(MappingRule):
    """Takes every key and leaves it as it is."""

    def matches(self, key: str) -> bool:
        return True

    def apply(self, key: str, value: Any) -> list[Item]:
        return [(key, value)]


class NotRule(MappingRule):
    """Takes the keys another rule does not, and leaves them as they are."""

    def __init__(self, rule: MappingRule) -> None:
        self.rule = rule

    def matches(self, key: str) -> bool:
        return not self.rule.matches(key)

    def apply(self, key: str, value: Any) -> list[Item]:
        return [(key, value)]


class OrRule(MappingRule):
    """Takes a key when any of its rules does, and applies those that match one
    after the other."""

    def __init__(self, *rules: MappingRule) -> None:
        self.rules = rules

    def matches(self, key: str) -> bool:
        return any(rule.matches(key) for rule in self.rules)

    def apply(self, key: str, value: Any) -> list[Item]:
        items = [(key, value)]
        for rule in self.rules:
            items = [
                new
                for old_key, old in items
                for new in (rule.apply(old_key, old) if rule.matches(old_key) else [(old_key, old)])
            ]
        return items


class RegexRule(MappingRule):
    """Takes keys in which `search` is found and replaces it there.

    search: a regular expression. replace: text or function, as in re.sub.
    """

    def __init__(self, search: str, replace: str | Callable[[re.Match[str]], str]) -> None:
        self.pattern: re.Pattern[str] = re.compile(search)
        self.replace = replace

    def matches(self, key: str) -> bool:
        return self.pattern.search(key) is not None

    def apply(self, key: str, value: Any) -> list[Item]:
        return [(self.pattern.sub(self.replace, key), value)]


class DropRule(RegexRule):
    """Takes keys in which `search` is found and leaves them out."""

    def __init__(self, search: str) -> None:
        super().__init__(search, "")

    def apply(self, key: str, value: Any) -> list[Item]:
        return []


class PytorchAttentionWeightsRule(MappingRule):
    """Splits torch.nn.MultiheadAttention's one tensor for queries, keys and values
    into three: rows [q; k; v] in thirds."""

    _PATTERN = re.compile(r"self_attn\.in_proj_(weight|bias)")

    def matches(self, key: str) -> bool:
        return self._PATTERN.search(key) is not None

    def apply(self, key: str, value: Any) -> list[Item]:
        if value.shape[0] % 3 != 0:
            raise ValueError(f"{key}: want three blocks of rows, got {value.shape[0]} rows")
        return [
            (self._PATTERN.sub(rf"attention.{part}_projection.\1", key), rows)
            for part, rows in zip(("query", "key", "value"), value.chunk(3), strict=True)
        ]


class SimpleMapper:
    """Maps the keys of a state dict by the first rule that takes each.

    Args:
        rules: tried in order. add_identity: whether keys no rule takes stay;
            else they are left out.
    """

    def __init__(self, rules: Iterable[MappingRule] = (), add_identity: bool = True) -> None:
        self._rules = [*rules, *([IdentityRule()] if add_identity else [])]

    def map(self, state_dict: Mapping[str, Any]) -> dict[str, Any]:
        """The state dict under its new names; the given one is not changed.
        Raises ValueError when two keys come to the same name."""
        mapped: dict[str, Any] = {}
        for key, value in state_dict.items():
            rule = next((rule for rule in self._rules if rule.matches(key)), None)
            for new_key, new_value in rule.apply(key, value) if rule else ():
                if new_key in mapped:
                    raise ValueError(f"{key}: want a unique name, got {new_key} twice")
                mapped[new_key] = new_value
        return mapped

    @classmethod
    def load_file(
        cls,
        filepath: FileLike,
        model_root: str | None = None,
        map_location: MAP_LOCATION = None,
        **other_args: Any,
    ) -> dict[str, Any]:
        """Loads a file with torch.load and maps its state dict. model_root: the key
        that holds it; None: the whole file. Tensors only (weights_only) unless
        other_args say otherwise."""
        other_args.setdefault("weights_only", True)
        state = torch.load(filepath, map_location=map_location, **other_args)
        if model_root is None:
            return cls().map(state)
        return {**state, model_root: cls().map(state[model_root])}


class PytorchMapper(SimpleMapper):
    """torch.nn.TransformerEncoder -> tarn.transformers.TransformerEncoder."""

    def __init__(self) -> None:
        super().__init__(
            [
                PytorchAttentionWeightsRule(),
                RegexRule(
                    r"layers\.(\d+)\.self_attn\.([a-z]+)_proj(ection)?\.",
                    r"layers.\1.attention.\2_projection.",
                ),
                DropRule(r"\.softmax_temp$"),
            ]
        )


_BERT = [
    (r"layer\.(\d+)\.attention\.self\.(query|key|value)\.", r"layers.\1.attention.\2_projection."),
    (r"layer\.(\d+)\.attention\.output\.dense\.", r"layers.\1.attention.out_projection."),
    (r"layer\.(\d+)\.attention\.output\.LayerNorm\.", r"layers.\1.norm1."),
    (r"layer\.(\d+)\.intermediate\.dense\.", r"layers.\1.linear1."),
    (r"layer\.(\d+)\.output\.dense\.", r"layers.\1.linear2."),
    (r"layer\.(\d+)\.output\.LayerNorm\.", r"layers.\1.norm2."),
]


class HugginfaceBertEncoderMapper(SimpleMapper):
    """A BertEncoder (Hugging Face layout) -> tarn.transformers.TransformerEncoder.
    Its norms have eps 1e-12: build the encoder with `norm_eps=1e-12` and
    activation "gelu". RULES: what it maps, for custom mappers."""

    RULES: list[RegexRule] = [RegexRule(*rule) for rule in _BERT]

    def __init__(self) -> None:
        super().__init__(self.RULES)


class LongformerMapper(SimpleMapper):
    """A Longformer encoder; the projections of its global attention are left
    out."""

    def __init__(self) -> None:
        drop = DropRule(r"layer\.(\d+)\.attention\.self\.(query|key|value)_global")
        super().__init__([drop, *HugginfaceBertEncoderMapper.RULES])


def to_pytorch(state_dict: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Weights of a TransformerEncoder under the names of
    torch.nn.TransformerEncoder. Raises ValueError for kinds with parameters of
    their own, which it cannot hold, and KeyError for a projection that is not
    there."""
    mapped = {}
    for key, value in state_dict.items():
        if ".inner_attention." in key:
            raise ValueError(f"{key}: want softmax attention, got a type with its own weights")
        found = re.search(r"attention\.(query|key|value|out)_projection\.(weight|bias)$", key)
        if found is None:
            mapped[key] = value
            continue
        stem, part, kind = key[: found.start()], found[1], found[2]
        if part == "out":
            mapped[f"{stem}self_attn.out_proj.{kind}"] = value
        elif part == "query":
            parts = [
                state_dict[f"{stem}attention.{name}_projection.{kind}"]
                for name in ("query", "key", "value")
            ]
            mapped[f"{stem}self_attn.in_proj_{kind}"] = torch.cat(parts)
    return mapped


_TO_BERT = [
    (r"layers\.(\d+)\.attention\.(query|key|value)_projection\.", r"layer.\1.attention.self.\2."),
    (r"layers\.(\d+)\.attention\.out_projection\.", r"layer.\1.attention.output.dense."),
    (r"layers\.(\d+)\.norm1\.", r"layer.\1.attention.output.LayerNorm."),
    (r"layers\.(\d+)\.linear1\.", r"layer.\1.intermediate.dense."),
    (r"layers\.(\d+)\.linear2\.", r"layer.\1.output.dense."),
    (r"layers\.(\d+)\.norm2\.", r"layer.\1.output.LayerNorm."),
]


def to_bert_encoder(state_dict: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Weights of a TransformerEncoder under the names of a BertEncoder. A final
    norm, which that layout does not have, raises ValueError."""
    if "norm.weight" in state_dict:
        raise ValueError("norm.weight: want an encoder without a final norm, got one with it")
    return SimpleMapper([RegexRule(*rule) for rule in _TO_BERT]).map(state_dict)


def encoder_from_pytorch(encoder: torch.nn.TransformerEncoder) -> torch.nn.Module:
    """A TransformerEncoder with full attention that computes what a
    torch.nn.TransformerEncoder (batch_first or not; tarn's is batch first)
    does, with copies of its weights, in its mode. Raises ValueError for a layer
    that has no counterpart: other activations, biases left out; TypeError for
    another module."""
    from tarn.attention import AttentionLayer, FullAttention
    from tarn.transformers import TransformerEncoder, TransformerEncoderLayer

    if not isinstance(encoder, torch.nn.TransformerEncoder):
        raise TypeError(
            f"encoder: want a torch.nn.TransformerEncoder, got {type(encoder).__name__}"
        )
    layers = []
    for layer in encoder.layers:
        if not isinstance(layer, torch.nn.TransformerEncoderLayer):
            raise ValueError(
                f"encoder: want layers of torch.nn.TransformerEncoderLayer, got {type(layer).__name__}"
            )
        if layer.linear1.bias is None:
            raise ValueError("encoder: bias: want True, got False")
        attention = layer.self_attn
        inner = FullAttention(attention_dropout=attention.dropout)
        layers.append(
            TransformerEncoderLayer(
                AttentionLayer(inner, attention.embed_dim, attention.num_heads),
                attention.embed_dim,
                layer.linear1.out_features,
                dropout=layer.dropout.p,
                activation=_activation(layer.activation),
                norm="pre" if layer.norm_first else "post",
                norm_eps=layer.norm1.eps,
            )
        )
    norm: Any = encoder.norm
    if norm is not None:
        norm = torch.nn.LayerNorm(norm.normalized_shape, eps=norm.eps)
    built = TransformerEncoder(layers, norm)
    built.load_state_dict(PytorchMapper().map(encoder.state_dict()))
    first = next(encoder.parameters())
    return built.to(first.device, first.dtype).train(encoder.training)


def _activation(function: Any) -> str:
    known = {torch.nn.functional.relu: "relu", torch.nn.functional.gelu: "gelu"}
    if function in known:
        return known[function]
    if isinstance(function, torch.nn.ReLU):
        return "relu"
    if isinstance(function, torch.nn.GELU) and function.approximate == "none":
        return "gelu"
    raise ValueError(f"encoder: activation: want relu or exact gelu, got {function!r}")
