"""Registry and builders: settings, errors, composition, and what is built."""

import argparse
import copy
import inspect
import pickle

import pytest
import torch

from tarn import attention_registry as registry
from tarn.attention import ConditionalFullAttention, LinearAttention
from tarn.attention_registry import AttentionRegistry, Registry
from tarn.builders import (
    AttentionBuilder,
    RecurrentAttentionBuilder,
    RecurrentCrossAttentionBuilder,
    RecurrentDecoderBuilder,
    RecurrentEncoderBuilder,
    TransformerDecoderBuilder,
    TransformerEncoderBuilder,
)
from tarn.events import EventDispatcher

KINDS = [
    "full",
    "linear",
    "causal-linear",
    "local",
    "exact-topk",
    "conditional-full",
    "clustered",
    "improved-clustered",
    "causal-improved-clustered",
    "reformer",
    "aft-full",
    "aft-simple",
]
SMALL = dict(
    n_layers=2, n_heads=2, query_dimensions=4, value_dimensions=3, feed_forward_dimensions=8
)


def test_specs():
    assert registry.Int.get("3") == 3 and registry.Float.get(1) == 1.0
    assert registry.Optional(registry.Int, 5).get(None) == 5
    assert registry.Choice([1, 2]).check(2) and not registry.Choice([1, 2]).check(3)
    assert not registry.Int.check("three") and not registry.Callable.check(3)
    assert registry.EventDispatcherInstance.get("") == ""
    assert not registry.EventDispatcherInstance.check(4)
    same = registry.Optional(registry.Int, 5)
    assert same == registry.Optional(registry.Int, 5) != registry.Optional(registry.Int, 6)
    assert registry.Choice([1]) == registry.Choice([1]) != registry.Choice([2])
    assert registry.Optional(registry.Float) != registry.Float


def test_registry():
    table = Registry()
    table.register("a", dict, [("x", registry.Int)])
    assert "a" in table and table.keys == ["a"] and table["a"] == (dict, ["x"])
    with pytest.raises(ValueError, match="'a'"):
        table.register("a", dict, [])
    with pytest.raises(ValueError, match="x: want Int"):
        table.register("b", dict, [("y", registry.Int), ("x", registry.Float)])
    assert "b" not in table and not table.contains_parameter("y"), "nothing half done"
    with pytest.raises(ValueError, match="x: want Int, got 'three'"):
        table.validate_parameter("x", "three")


def test_all_kinds_are_registered():
    assert set(KINDS) <= set(AttentionRegistry.keys)
    assert set(AttentionBuilder().available_attentions) == set(AttentionRegistry.keys)
    assert {"full", "linear"} <= set(RecurrentCrossAttentionBuilder().available_attentions)


def build_arguments(kind):
    if "clustered" in kind:
        return {"clusters": 3}
    return {"local_context": 3} if kind == "local" else {}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_builds_and_copies(kind):
    name = "conditional-full:linear" if kind == "conditional-full" else kind
    builder = TransformerEncoderBuilder.from_kwargs(
        attention_type=name, **SMALL, **build_arguments(kind)
    )
    model = builder.get()
    twin = copy.deepcopy(model)
    pickled = pickle.loads(pickle.dumps(model))
    for other in (twin, pickled):
        assert list(other.state_dict()) == list(model.state_dict())
        for name, tensor in model.state_dict().items():
            assert torch.equal(other.state_dict()[name], tensor)
        assert all(a is not b for a, b in zip(other.parameters(), model.parameters()))
    # The list of the layer's own names; kinds add theirs under inner_attention.
    own = [n for n in model.state_dict() if "inner_attention" not in n]
    linear = [f"{m}.{p}" for m in ("linear1", "linear2", "norm1", "norm2") for p in "wb"]
    projections = [f"attention.{p}_projection" for p in ("query", "key", "value", "out")]
    wanted = [f"{m}.{p}" for m in projections for p in ("weight", "bias")]
    wanted += [n[:-1] + {"w": "weight", "b": "bias"}[n[-1]] for n in linear]
    layers = [f"layers.{i}.{n}" for i in range(2) for n in wanted]
    assert own == [*layers, "norm.weight", "norm.bias"]


def test_keys_of_kinds_with_tensors_of_their_own():
    builder = TransformerEncoderBuilder.from_kwargs(attention_type="aft-full", **SMALL)
    builder.aft_parameterization = 5
    state = builder.get().state_dict()
    inner = "layers.1.attention.inner_attention"
    assert state[f"{inner}.u"].shape == state[f"{inner}.v"].shape == (1024, 5)


def test_settings_and_defaults():
    builder = TransformerEncoderBuilder()
    defaults = dict(
        n_layers=4,
        n_heads=4,
        query_dimensions=64,
        value_dimensions=64,
        model_dimensions=256,
        feed_forward_dimensions=1024,
        dropout=0.1,
        activation="relu",
        final_normalization=True,
        attention_type="full",
        event_dispatcher="",
        norm="post",
        compat=False,
    )
    for name, value in defaults.items():
        assert getattr(builder, name) == value
    builder.value_dimensions = 10
    assert builder.model_dimensions == 40
    decoder = TransformerDecoderBuilder.from_kwargs(**SMALL)
    assert decoder.cross_n_heads == 2 and decoder.cross_query_dimensions == 4
    assert decoder.cross_model_dimensions == 6
    assert decoder.self_attention_type == decoder.cross_attention_type == "full"


def test_attention_settings_go_through():
    builder = TransformerEncoderBuilder.from_kwargs(**SMALL, attention_type="full")
    builder.softmax_temp, builder.attention_dropout = 0.5, 0.25
    dispatcher = EventDispatcher()
    builder.event_dispatcher = dispatcher
    model = builder.get()
    inner = model.layers[1].attention.inner_attention
    assert inner.softmax_temp == 0.5 and inner.dropout.p == 0.25
    for module in (model, model.layers[0], model.layers[0].attention, inner):
        assert module.event_dispatcher is dispatcher


def test_conditional_full_hands_on_the_dispatcher():
    """Defect 12 of docs/migration.md."""
    dispatcher = EventDispatcher()
    builder = AttentionBuilder.from_kwargs(query_dimensions=4, event_dispatcher=dispatcher)
    made = builder.get("conditional-full:linear")
    assert isinstance(made, ConditionalFullAttention)
    assert isinstance(made.other_attention, LinearAttention)
    assert made.full_attention.event_dispatcher is dispatcher


def test_softmax_temp_of_zero_is_kept():
    """Defect 12 of docs/migration.md: an explicit 0 is not the default."""
    made = AttentionBuilder.from_kwargs(softmax_temp=0).get("full")
    assert made.softmax_temp == 0.0 and AttentionBuilder().get("full").softmax_temp is None


def test_composition_and_its_errors():
    builder = AttentionBuilder.from_kwargs(query_dimensions=4, length_limit=7)
    nested = builder.get("conditional-full:conditional-full:full")
    assert nested.length_limit == nested.other_attention.length_limit == 7
    assert builder.validate_attention_type("conditional-full:linear,full")
    assert not builder.validate_attention_type("conditional-full:none")
    with pytest.raises(ValueError, match="one outermost"):
        builder.get("full,linear")
    with pytest.raises(ValueError, match="'softmax'"):
        builder.get("softmax")


def test_wrong_settings_name_themselves():
    builder = TransformerEncoderBuilder()
    for name, value in (("activation", "tanh"), ("attention_type", "none"), ("norm", "no")):
        with pytest.raises(ValueError, match=name):
            setattr(builder, name, value)
    with pytest.raises(AttributeError, match="n_layer'"):
        builder.n_layer = 3
    with pytest.raises(AttributeError, match="n_layer'"):
        _ = builder.n_layer
    with pytest.raises(ValueError, match="topk: want Optional"):
        builder.topk = "many"
    with pytest.raises(ValueError, match="feature_map"):
        builder.feature_map = "sine"
    with pytest.raises(ValueError, match="local_context"):
        AttentionBuilder().get("local")


@pytest.mark.parametrize(
    "name, value",
    [
        ("n_heads", 0),
        ("n_layers", -1),
        ("query_dimensions", 0),
        ("value_dimensions", 2.5),
        ("feed_forward_dimensions", "wide"),
        ("model_dimensions", -8),
    ],
)
def test_sizes_out_of_range_are_errors(name, value):
    with pytest.raises(ValueError, match=f"{name}: want an integer from [01], got"):
        TransformerEncoderBuilder.from_kwargs(**{name: value})
    assert len(TransformerEncoderBuilder.from_kwargs(**{**SMALL, "n_layers": 0}).get().layers) == 0


@pytest.mark.parametrize(
    "kind, name, value",
    [
        ("clustered", "bits", 64),
        ("clustered", "clusters", 0),
        ("improved-clustered", "topk", 0),
        ("causal-improved-clustered", "iterations", 0),
        ("exact-topk", "topk", 0),
        ("reformer", "bits", 0),
        ("reformer", "chunk_size", 0),
        ("reformer", "rounds", -1),
    ],
)
def test_settings_out_of_range_are_errors_of_the_constructor(kind, name, value):
    builder = AttentionBuilder.from_kwargs(**{"clusters": 2, name: value})
    with pytest.raises(ValueError, match=f"{name}: want an integer from 1"):
        builder.get(kind)


@pytest.mark.parametrize(
    "kind", ["conditional-full", "full:linear", "linear:full", "conditional-full:full,linear"]
)
def test_wrong_nesting_is_an_error(kind):
    builder = AttentionBuilder.from_kwargs(query_dimensions=4)
    for error in (TypeError, ValueError):  # the first is fast-transformers' own
        with pytest.raises(error, match="attention_type: .*: want as many attentions inside"):
            builder.get(kind)


def test_none_is_kept_until_something_needs_it():
    """A namespace holds None for options that were not given."""
    names = ("n_layers", "n_heads", "value_dimensions", "dropout")
    given = argparse.Namespace(**dict.fromkeys(names), clusters=None, softmax_temp=None)
    builder = TransformerEncoderBuilder.from_namespace(given)
    for name in names:
        assert getattr(builder, name) is None
        with pytest.raises(ValueError, match=f"^{name}: want a value before get"):
            builder.get()
        setattr(builder, name, SMALL.get(name, 0))
    assert builder.attention.clusters is None and builder.attention.softmax_temp is None
    assert len(builder.get().layers) == SMALL["n_layers"]
    builder.attention_type = "clustered"
    with pytest.raises(ValueError, match="clusters: want Int, got None"):
        builder.get()
    builder.clusters = 3
    assert builder.get().layers[0].attention.inner_attention.clusters == 3


@pytest.mark.parametrize("kind", ["full", "linear"])
def test_widths_of_none_follow_the_model(kind):
    settings = dict(SMALL, attention_type=kind, event_dispatcher=None)
    settings.update(query_dimensions=None, feed_forward_dimensions=None)
    builder = TransformerEncoderBuilder.from_kwargs(**settings)
    assert builder.query_dimensions is None and builder.feed_forward_dimensions is None
    layer = builder.get().layers[0]
    width = SMALL["n_heads"] * SMALL["value_dimensions"]
    assert layer.linear1.out_features == 4 * width
    assert layer.attention.query_projection.out_features == width
    assert layer.event_dispatcher is EventDispatcher.get("")


@pytest.fixture
def registered():
    """Registers a kind for one test."""
    names = []

    def register(name, factory, parameters=()):
        AttentionRegistry.register(name, factory, parameters)
        names.append(name)

    yield register
    for name in names:
        AttentionRegistry._factories.pop(name)
        AttentionRegistry._specs.pop(name)


@pytest.mark.parametrize("nested", [False, True])
def test_a_registered_attention_need_not_be_a_module(registered, nested):
    class Mean:
        """It is also given the number of its layer, like tarn's own kinds."""

        layer = None

        def assign_layer(self, layer, seed=None):
            self.layer = layer

        def __call__(self, queries, keys, values, attn_mask, query_lengths, key_lengths):
            return values.mean(1, keepdim=True).expand_as(values)

    registered("mean-of-values", Mean)
    kind = "conditional-full:mean-of-values" if nested else "mean-of-values"
    builder = TransformerEncoderBuilder.from_kwargs(**SMALL, attention_type=kind, length_limit=1)
    model = builder.get()
    width = SMALL["n_heads"] * SMALL["value_dimensions"]
    assert model(torch.randn(2, 5, width)).shape == (2, 5, width)
    if not nested:
        inner = [layer.attention.inner_attention for layer in model.layers]
        assert [each.layer for each in inner] == list(range(SMALL["n_layers"]))


def test_names_of_tarns_own_parameters_are_free(registered):
    """A kind written for fast-transformers may use them for its own parameters; names
    that it shares with kinds of fast-transformers have one Spec, as there."""

    class Kind:
        def __init__(self, eps, n_dims, query_dimensions):
            self.given = eps, n_dims, query_dimensions

    parameters = [
        ("eps", registry.Optional(registry.Float, 0.5)),
        ("n_dims", registry.Choice(["few", "many"])),
        ("query_dimensions", registry.Int),
    ]
    registered("own", Kind, parameters)
    builder = AttentionBuilder.from_kwargs(query_dimensions=4, n_dims="few")
    assert builder.get("own").given == (0.5, "few", 4)
    assert AttentionBuilder.from_kwargs(query_dimensions=4).get("linear").eps == 1e-6
    with pytest.raises(ValueError, match="n_dims: want Choice"):
        AttentionBuilder.from_kwargs(query_dimensions=4, n_dims=8).get("own")
    with pytest.raises(ValueError, match="n_dims: want Optional.* or Choice.*, got 'none'"):
        builder.n_dims = "none"
    with pytest.raises(ValueError, match="topk: want Optional.*as registered before"):
        registered("other", Kind, [("topk", registry.Int)])


def test_a_factory_without_a_signature_can_be_registered(registered):
    """Python cannot tell which arguments functions written in C take."""
    with pytest.raises(ValueError):
        inspect.signature(type)
    registered("typed", type)
    with pytest.raises(TypeError, match="type"):
        AttentionBuilder().get("typed")


def test_attentions_can_be_imported_from_the_builders():
    from tarn import attention, builders

    names = [name for name in attention.__all__ if name.endswith(("Attention", "AttentionLayer"))]
    assert len(names) >= 12
    for name in names:
        assert getattr(builders, name) is getattr(attention, name)


def test_from_dictionary_is_strict():
    settings = {"n_layers": 1, "colour": "red"}
    with pytest.raises(ValueError, match="colour"):
        TransformerEncoderBuilder.from_dictionary(settings)
    with pytest.raises(ValueError, match="colour"):
        TransformerEncoderBuilder.from_kwargs(**settings)
    for builder in (
        TransformerEncoderBuilder.from_kwargs(**settings, strict=False),
        TransformerEncoderBuilder.from_dictionary(settings, strict=False),
        TransformerEncoderBuilder.from_namespace(argparse.Namespace(**settings)),
    ):
        assert builder.n_layers == 1
    with pytest.raises(ValueError, match="activation"):
        TransformerEncoderBuilder.from_dictionary({"activation": "tanh"}, strict=False)


@pytest.mark.parametrize("kind", ["linear", "causal-linear"])
def test_query_dimensions_reach_the_attention(kind):
    """They are never set by hand; fast-transformers then fails to build."""
    builder = TransformerEncoderBuilder.from_kwargs(n_layers=1, attention_type=kind)
    assert builder.get().layers[0].attention.inner_attention.feature_map.query_dims == 64
    decoder = TransformerDecoderBuilder.from_kwargs(
        n_layers=1, cross_attention_type=kind, cross_query_dimensions=7
    )
    layer = decoder.get().layers[0]
    assert layer.cross_attention.inner_attention.feature_map.query_dims == 7


def test_linear_parameters_are_registered():
    builder = TransformerEncoderBuilder.from_kwargs(
        **SMALL, attention_type="linear", eps=0.5, denominator="compat", feature_map="relu"
    )
    inner = builder.get().layers[0].attention.inner_attention
    assert (inner.eps, inner.denominator, inner.compat) == (0.5, "compat", False)
    assert type(inner.feature_map).__name__ == "ReluFeatureMap"
    with pytest.raises(ValueError, match="denominator"):
        builder.denominator = "sum"
    builder.compat = True
    inner = builder.get().layers[0].attention.inner_attention
    assert inner.compat and inner.feature_map.compat


def test_recurrent_builders_take_the_same_settings():
    settings = dict(**SMALL, eps=0.5, compat=True, feature_map="relu")
    batch = TransformerEncoderBuilder.from_kwargs(**settings, attention_type="causal-linear")
    twin = RecurrentEncoderBuilder.from_kwargs(**settings, attention_type="causal-linear")
    assert list(batch.get().state_dict()) == list(twin.get().state_dict())
    both = dict(self_attention_type="causal-linear", cross_attention_type="linear")
    batch = TransformerDecoderBuilder.from_kwargs(**settings, **both)
    twin = RecurrentDecoderBuilder.from_kwargs(**settings, **both)
    assert list(batch.get().state_dict()) == list(twin.get().state_dict())


def test_decoder_widths():
    builder = TransformerDecoderBuilder.from_kwargs(
        **SMALL, cross_n_heads=3, cross_value_dimensions=5, cross_query_dimensions=2
    )
    builder.cross_model_dimensions = 11
    layer = builder.get().layers[0]
    assert layer.cross_attention.key_projection.weight.shape == (6, 11)
    assert layer.cross_attention.value_projection.weight.shape == (15, 11)
    assert layer.cross_attention.out_projection.weight.shape == (6, 15)
    names = [n for n, _ in layer.named_children()]
    assert names[:2] == ["self_attention", "cross_attention"] and "norm3" in names


def test_kinds_without_a_recurrent_form_say_why():
    for kind in ("clustered", "reformer"):
        with pytest.raises(ValueError, match="later|after"):
            RecurrentAttentionBuilder().get(kind)


def test_a_custom_kind():
    class Mean(torch.nn.Module):
        def __init__(self, shift):
            super().__init__()
            self.shift = shift

        def forward(self, queries, keys, values, attn_mask, query_lengths, key_lengths):
            assert attn_mask.all_ones and key_lengths.all_ones and query_lengths.all_ones
            return values.mean(1, keepdim=True).expand_as(values) + self.shift

    AttentionRegistry.register("test-mean", Mean, [("shift", registry.Optional(registry.Float, 1))])
    model = TransformerEncoderBuilder.from_kwargs(**SMALL, attention_type="test-mean").get()
    assert model(torch.randn(2, 5, 6)).shape == (2, 5, 6)


def test_builders_print_copy_and_pickle():
    builder = TransformerEncoderBuilder.from_kwargs(**SMALL, topk=3)
    assert "n_heads=2" in repr(builder) and "topk=3" in repr(builder.attention)
    twin = copy.deepcopy(builder)
    twin.n_heads = 5
    assert builder.n_heads == 2 and twin.model_dimensions == 15
