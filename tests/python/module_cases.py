"""Small instances of every public module, and inputs of a batch and a length: what the
tests of construction and of exported programs share."""

from typing import Any, Callable, NamedTuple

import torch

from tarn import _tables as tables
from tarn import attention, builders, feature_maps, models, nn
from tarn.masking import TriangularCausalMask

D, HEADS, E = 12, 2, 6
WORDS, FRAME = 32, 5
MIXERS = tables.mixers()
# What a mixer needs besides the sizes, small enough for short rows; and the same as keys of
# a model.
OPTIONS: dict[str, dict[str, Any]] = {
    "local": {"local_context": 5},
    "exact-topk": {"topk": 3},
    "conditional-full": {"length_limit": 16},
    "clustered": {"clusters": 3, "bits": 8},
    "improved-clustered": {"clusters": 3, "bits": 8, "topk": 3},
    "causal-improved-clustered": {"clusters": 3, "bits": 8, "topk": 3},
    "reformer": {"chunk_size": 8, "bits": 8, "rounds": 2},
    "aft-full": {"max_sequence_length": 300, "aft_parameterization": 4},
}
_KEYS = {"chunk_size": "hash_chunk"}


class Case(NamedTuple):
    """make(): a new module. inputs(batch, seq_len): the tensors of a call."""

    make: Callable[[], torch.nn.Module]
    inputs: Callable[[int, int], tuple[torch.Tensor, ...]]


class Masked(torch.nn.Module):
    """A module that is called with a causal mask after its tensors, or with none."""

    def __init__(self, inner: torch.nn.Module, causal: bool) -> None:
        super().__init__()
        self.inner, self.causal = inner, causal

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        seq_len = tensors[0].shape[1]
        mask = TriangularCausalMask(seq_len) if self.causal else None
        return self.inner(*tensors, mask)


def heads(batch: int, seq_len: int) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(batch, seq_len, HEADS, E) for _ in range(3))


def one_heads(batch: int, seq_len: int) -> tuple[torch.Tensor, ...]:
    return heads(batch, seq_len)[:1]


def rows(batch: int, seq_len: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(batch, seq_len, D),)


def three_rows(batch: int, seq_len: int) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(batch, seq_len, D) for _ in range(3))


def two_rows(batch: int, seq_len: int) -> tuple[torch.Tensor, ...]:
    return rows(batch, seq_len) + rows(batch, seq_len + 2)


def tokens(batch: int, seq_len: int) -> tuple[torch.Tensor, ...]:
    return (torch.randint(WORDS, (batch, seq_len)),)


def two_texts(batch: int, seq_len: int) -> tuple[torch.Tensor, ...]:
    return tokens(batch, seq_len) + tokens(batch, seq_len + 2)


def frames(batch: int, seq_len: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(batch, seq_len, FRAME),)


def model_keys(layer: str) -> dict[str, Any]:
    """The keys of a model of one layer of a mixer."""
    options = {_KEYS.get(name, name): value for name, value in OPTIONS.get(layer, {}).items()}
    sizes = {"vocab_size": WORDS, "d_model": D, "n_heads": HEADS, "d_ff": 16, "n_layers": 1}
    return {**sizes, "max_positions": 4096, "attention": layer, **options}


def _maps() -> dict[str, Case]:
    named = {name: getattr(feature_maps, name) for name in feature_maps.__all__}
    own: dict[str, Callable[[], torch.nn.Module]] = {
        "ActivationFunctionFeatureMap": lambda: feature_maps.ActivationFunctionFeatureMap(
            E, torch.sigmoid
        ),
        "ElementwiseFeatureMap": lambda: feature_maps.ElementwiseFeatureMap(E, "softplus"),
    }
    return {
        name: Case(own.get(name, lambda made=made: made(E)), one_heads)
        for name, made in named.items()
        if isinstance(made, type) and name != "FeatureMap"
    }


def _attentions() -> dict[str, Case]:
    kinds = {name: getattr(attention, name) for name in attention.__all__}
    clusters = {"clusters": 3, "bits": 8, "attention_dropout": 0.0}
    arguments: dict[str, dict[str, Any]] = {
        "AFTFullAttention": OPTIONS["aft-full"],
        "CausalLinearAttention": {"query_dimensions": E},
        "ClusteredAttention": clusters,
        "ExactTopKAttention": {"topk": 3},
        "ImprovedClusteredAttention": {**clusters, "topk": 3},
        "ImprovedClusteredCausalAttention": {**clusters, "topk": 3},
        "LinearAttention": {"query_dimensions": E},
        "LocalAttention": {"local_context": 5},
        "ReformerAttention": OPTIONS["reformer"],
    }
    causal = {"CausalLinearAttention", "ImprovedClusteredCausalAttention"}
    found = {
        name: Case(
            lambda name=name, kind=kind: Masked(kind(**arguments.get(name, {})), name in causal),
            heads,
        )
        for name, kind in kinds.items()
        if name not in ("AttentionLayer", "ConditionalFullAttention")
    }

    def conditional() -> torch.nn.Module:
        inner = attention.LinearAttention(E)
        return Masked(attention.ConditionalFullAttention(inner, length_limit=16), False)

    def layer() -> torch.nn.Module:
        inner = attention.LinearAttention(E, "favor")
        return Masked(attention.AttentionLayer(inner, D, HEADS), False)

    found["ConditionalFullAttention"] = Case(conditional, heads)
    found["AttentionLayer"] = Case(layer, three_rows)
    return found


def _layers() -> dict[str, Case]:
    found: dict[str, Case] = {}
    for kind, row in MIXERS.items():
        options = {"causal": row["causal"], **OPTIONS.get(kind, {})}
        if row["bidirectional"] and row["causal"]:
            found[f"{kind}, all keys"] = Case(
                lambda kind=kind, options={**options, "causal": False}: nn.make_attention(
                    D, HEADS, kind, **options
                ),
                rows,
            )
        found[kind] = Case(
            lambda kind=kind, options=options: nn.make_attention(D, HEADS, kind, **options), rows
        )
    for name in tables.feature_maps():
        found[f"linear, {name}"] = Case(
            lambda name=name: nn.make_attention(D, HEADS, feature_map=name), rows
        )
    found["ParallelMixer"] = Case(lambda: nn.make_attention(D, HEADS, "mamba2+full"), rows)
    found["EncoderLayer"] = Case(
        lambda: nn.EncoderLayer(D, HEADS, feed_forward="channel-mix", norm="pre"), rows
    )
    found["Encoder"] = Case(
        lambda: nn.Encoder(2, D, HEADS, feed_forward="swiglu", feature_map="favor"), rows
    )
    return found


def _model(cls: type[torch.nn.Module], layer: str = "linear", **keys: Any) -> Callable[[], Any]:
    return lambda: cls(**{**model_keys(layer), **keys})


def _models() -> dict[str, Case]:
    plain = models.LanguageModel
    rotary = {"positions": "rotary", "rotary_place": "after"}
    ctc = {"task": "ctc", "input_dim": FRAME, "n_classes": 4}
    found = {
        f"LanguageModel {kind}": Case(_model(plain, kind), tokens)
        for kind, row in MIXERS.items()
        if row["causal"]
    }
    classify = {"task": "classify", "n_classes": 3}
    found |= {
        "LanguageModel sinusoidal": Case(_model(plain, positions="sinusoidal"), tokens),
        "LanguageModel tied": Case(_model(plain, tied_head=True), tokens),
        "LanguageModel rotary": Case(_model(plain, "full", positions="rotary"), tokens),
        "LanguageModel rotary features": Case(_model(plain, **rotary), tokens),
        "LanguageModel retnet rotary": Case(_model(plain, "retnet", positions="rotary"), tokens),
        "LanguageModel gated-full rotary": Case(
            _model(plain, "gated-full", positions="rotary"), tokens
        ),
        "LanguageModel latent": Case(
            _model(
                plain,
                "full",
                latent_width=6,
                shared_key_width=4,
                rotary_width=4,
                positions="rotary",
                qkv_bias=False,
                out_bias=False,
            ),
            tokens,
        ),
        "LanguageModel softmax forms": Case(
            _model(plain, "full", window=5, softcap=9.0, sinks=True, head_norm="head"), tokens
        ),
        "LanguageModel mixture of experts": Case(
            _model(plain, feed_forward="moe", experts=3, d_expert=8, d_shared=8), tokens
        ),
        "LanguageModel biased router": Case(
            _model(plain, feed_forward="moe", experts=3, d_expert=8, router="biased-sigmoid"),
            tokens,
        ),
        "LanguageModel mamba1 norms": Case(_model(plain, "mamba1", selection_norm=True), tokens),
        "LanguageModel mamba2 limits": Case(
            _model(plain, "mamba2", mamba2_norm=False, least_step=0.1, most_step=0.5), tokens
        ),
        "LanguageModel mamba2 norm first": Case(
            _model(plain, "mamba2", mamba2_norm_first=True), tokens
        ),
        "LanguageModel favor": Case(_model(plain, feature_map="favor", stabilise=True), tokens),
        "LanguageModel swiglu": Case(_model(plain, norm_kind="rms", feed_forward="swiglu"), tokens),
        "LanguageModel channel-mix": Case(
            _model(plain, "rwkv7", feed_forward="channel-mix", norm="post"), tokens
        ),
        "Classifier": Case(_model(models.Classifier, **classify), tokens),
        "Classifier clustered": Case(_model(models.Classifier, "clustered", **classify), tokens),
        "FrameClassifier": Case(_model(models.FrameClassifier, **ctc), frames),
        "Seq2Seq": Case(_model(models.Seq2Seq, n_decoder_layers=1), two_texts),
        "CnnModel": Case(_model(models.CnnModel), tokens),
        "RecurrentModel": Case(_model(models.RecurrentModel, arch="rnn"), tokens),
        "RecurrentModel frames": Case(
            _model(models.RecurrentModel, arch="lstm", bidirectional=True, **ctc), frames
        ),
    }
    return found


def _stacks() -> dict[str, Case]:
    shared: dict[str, Any] = {
        "n_layers": 1, "n_heads": HEADS, "feed_forward_dimensions": 16, "dropout": 0.0,
        "query_dimensions": E, "value_dimensions": E,
    }  # fmt: skip

    def encoder(kind: str, causal: bool) -> torch.nn.Module:
        build = builders.TransformerEncoderBuilder
        return Masked(build.from_kwargs(attention_type=kind, **shared).get(), causal)

    def decoder() -> torch.nn.Module:
        kinds = {"self_attention_type": "causal-linear", "cross_attention_type": "full"}
        build = builders.TransformerDecoderBuilder
        return Masked(build.from_kwargs(**kinds, attention_dropout=0.0, **shared).get(), True)

    return {
        "TransformerEncoder": Case(lambda: encoder("linear", False), rows),
        "TransformerEncoder causal": Case(lambda: encoder("causal-linear", True), rows),
        "TransformerDecoder": Case(decoder, two_rows),
    }


MAPS = _maps()
ATTENTIONS = _attentions()
LAYERS = _layers()
MODELS = _models()
STACKS = _stacks()
CASES: dict[str, Case] = {**MAPS, **ATTENTIONS, **LAYERS, **MODELS, **STACKS}
