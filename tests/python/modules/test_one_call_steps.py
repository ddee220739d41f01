"""A step of layers in one call gives the same numbers as part by part, and goes part by
part wherever a caller could see the difference."""

import pytest
import torch

from tarn.builders import RecurrentEncoderBuilder, TransformerEncoderBuilder
from tarn import recurrent
from tarn.events import AttentionEvent, EventDispatcher, IntermediateOutput, QKVEvent
from tarn.feature_maps import by_name
from tarn.models import LanguageModel

ONE_CALLS = {"linear": "tarn::linear_layers_step", "full": "tarn::full_layers_step"}
ONE_CALL = ONE_CALLS["linear"]


def calls_of(function, name=ONE_CALL):
    """How often a step was made in one call, or another operator was called."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        result = function()
    return sum(e.count for e in profile.key_averages() if e.key == name), result


def encoder(attention_type="linear", **settings):
    builder = RecurrentEncoderBuilder.from_kwargs(
        n_layers=3,
        n_heads=2,
        query_dimensions=8,
        value_dimensions=8,
        feed_forward_dimensions=24,
        attention_type=attention_type,
        **settings,
    )
    return builder.get().eval()


def run(model, x):
    state, outputs = None, []
    for token in x:
        out, state = model(token, state)
        outputs.append(out)
    return torch.stack(outputs), state


@pytest.mark.parametrize("kind", ONE_CALLS)
@pytest.mark.parametrize("batch", (1, 3, 20))
@pytest.mark.parametrize("activation", ("relu", "gelu"))
def test_same_numbers_as_part_by_part(kind, batch, activation):
    model, x = encoder(kind, activation=activation), torch.randn(5, batch, 16)
    want, held = run(model, x)  # records gradients: part by part
    with torch.no_grad():
        count, (got, state) = calls_of(lambda: run(model, x), ONE_CALLS[kind])
    assert count == 5  # three layers per call
    torch.testing.assert_close(got, want, atol=2e-6, rtol=2e-6)
    for part, other in zip(state, held, strict=True):
        assert part.facts == other.facts and torch.equal(part.steps, other.steps)
        for name, tensor in part.tensors.items():
            torch.testing.assert_close(tensor, other.tensors[name], atol=2e-6, rtol=2e-6)


KINDS = {
    "exact-topk": dict(topk=3),
    "local": dict(local_context=4),
    "aft-simple": {},
    "linear": dict(feature_map="favor"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", (1, 9))
def test_other_kinds_take_three_calls(kind, batch):
    settings = dict(KINDS[kind])
    if "feature_map" in settings:
        settings["feature_map"] = by_name(settings["feature_map"])
    model, x = encoder(kind, **settings), torch.randn(5, batch, 16)
    want, held = run(model, x)
    with torch.no_grad():
        count, (got, state) = calls_of(lambda: run(model, x), "tarn::layer_step_rest")
    assert count == 15
    torch.testing.assert_close(got, want, atol=4e-6, rtol=4e-6)
    for part, other in zip(state, held, strict=True):
        assert part.facts == other.facts and torch.equal(part.steps, other.steps)
        assert part.tensors.keys() == other.tensors.keys()


@torch.no_grad()
def test_custom_attentions_are_called_once():
    calls = []

    def attention(query, key, value, state=None):
        calls.append(query.shape)
        return value, None

    model = encoder()
    del model.layers[1].attention.inner_attention
    model.layers[1].attention.inner_attention = attention
    model(torch.randn(2, 16))
    assert calls == [(2, 2, 8)]


@torch.no_grad()
def test_states_go_on_either_way():
    model, x = encoder(), torch.randn(6, 2, 16)
    want, _ = run(model, x)
    state = None
    for index, token in enumerate(x):
        if index == 3:
            state = [[part["S"], part["z"]] for part in state]  # as fast-transformers has it
        out, state = model(token, state)
        torch.testing.assert_close(out, want[index], atol=2e-6, rtol=2e-6)


def break_hook(model):
    model.layers[1].linear1.register_forward_hook(lambda *_: None)


def break_class(model):
    class Norm(torch.nn.LayerNorm):
        pass

    model.layers[1].norm1 = Norm(16)


def break_dropout(model):
    model.layers[1].dropout.train().p = 0.5


def break_activation(model):
    model.layers[1].activation = torch.tanh


def break_dtype(model):
    model.layers[1].linear2.double().register_forward_pre_hook(lambda m, a: (a[0].double(),))
    model.layers[1].linear2.register_forward_hook(lambda m, a, out: out.float())


def break_attention(model):
    inner = model.layers[1].attention.inner_attention

    class Inner(type(inner)):
        pass

    inner.__class__ = Inner


def break_feature_map(model):
    model.layers[1].attention.inner_attention.feature_map = by_name("favor")(8)


def break_listener(model):
    dispatcher = EventDispatcher()
    model.layers[1].attention.event_dispatcher = dispatcher
    dispatcher.listen(QKVEvent, lambda event: None)


@pytest.mark.parametrize(
    "change",
    (break_hook, break_class, break_dropout, break_activation, break_dtype, break_attention,
     break_feature_map, break_listener),
)  # fmt: skip
@pytest.mark.parametrize("stepped", (False, True))
@torch.no_grad()
def test_what_is_not_plain_goes_part_by_part(change, stepped):
    model, x = encoder(), torch.randn(2, 16)
    if stepped:
        model(x)  # the plan of the layers no longer holds
    change(model)
    count, _ = calls_of(lambda: model(x))
    assert count == 2  # of three layers


def own_layer_hook(model, calls):
    model.layers[1].register_forward_hook(lambda *_: calls.append(1))


def own_layer_class(model, calls):
    class Layer(type(model.layers[1])):
        def forward(self, *arguments, **keywords):
            calls.append(1)
            return super().forward(*arguments, **keywords)

    model.layers[1].__class__ = Layer


def own_layer_forward(model, calls):
    layer = model.layers[1]
    layer.forward = lambda *args: (calls.append(1), type(layer).forward(layer, *args))[1]


def own_norm_hook(model, calls):
    model.norm.register_forward_hook(lambda *_: calls.append(1))


def own_listener(model, calls):
    model.event_dispatcher = EventDispatcher()
    model.event_dispatcher.listen(IntermediateOutput, lambda event: calls.append(1))


@pytest.mark.parametrize(
    "change, heard",
    ((own_layer_hook, 1), (own_layer_class, 1), (own_layer_forward, 1), (own_norm_hook, 1),
     (own_listener, 3)),
)  # fmt: skip
@pytest.mark.parametrize("stepped", (False, True))
@torch.no_grad()
def test_who_listens_to_layers_or_norm_hears_all(change, heard, stepped):
    model, x, calls = encoder(), torch.randn(2, 16), []
    with torch.enable_grad():  # part by part
        want, _ = model(x)
    if stepped:
        model(x)
    change(model, calls)
    out, _ = model(x)
    assert len(calls) == heard
    torch.testing.assert_close(out, want, atol=2e-6, rtol=2e-6)


@torch.no_grad()
def test_another_feature_map_is_seen():
    model, x = encoder(), torch.randn(2, 16)
    model(x)
    inner = model.layers[1].attention.inner_attention
    inner.feature_map = by_name("relu")(8)
    got, _ = model(x)
    with torch.enable_grad():  # part by part
        want, _ = model(x)
    torch.testing.assert_close(got, want, atol=2e-6, rtol=2e-6)


@torch.no_grad()
def test_a_layer_in_anothers_place_is_seen():
    model, other, x = encoder(), encoder(), torch.randn(2, 16)
    model(x)
    model.layers[1] = other.layers[1]
    got, _ = model(x)
    with torch.enable_grad():  # part by part
        want, _ = model(x)
    torch.testing.assert_close(got, want, atol=2e-6, rtol=2e-6)
    model.layers.append(other.layers[2])
    count, (out, state) = calls_of(lambda: model(x))
    assert count == 1 and len(state) == 4 and not torch.allclose(out, got)


@torch.no_grad()
def test_full_attention_of_sequences_apart():
    """Forked, reordered and of unequal lengths: they go part by part where one call
    would read missing tokens, with the same numbers everywhere."""
    model, x = encoder("full"), torch.randn(6, 3, 16)
    _, state = run(model, x)
    rows = [2, 0, 0]
    got, _ = model(x[0], recurrent.reorder(state, rows))
    want, _ = model(x[0], state)
    moved, _ = run(model, torch.cat([x[:, rows], x[:1]]))
    torch.testing.assert_close(got, moved[-1], atol=4e-6, rtol=4e-6)
    again, _ = model(x[0], state)  # a state is a value
    assert torch.equal(want, again)
    lengths = torch.tensor([6, 2, 4])
    _, state = model.prefill(x.transpose(0, 1), lengths)
    count, (got, _) = calls_of(lambda: model(x[0], state), ONE_CALLS["full"])
    assert count == 0
    for row, length in enumerate(lengths.tolist()):
        alone, _ = run(model, torch.cat([x[:length, row : row + 1], x[:1, row : row + 1]]))
        torch.testing.assert_close(got[row], alone[-1, 0], atol=4e-6, rtol=4e-6)


@torch.no_grad()
def test_who_listens_to_weights_or_drops_them_goes_part_by_part():
    model, heard, x = encoder("full"), [], torch.randn(2, 16)
    model(x)
    inner = model.layers[1].attention.inner_attention
    inner.train()
    count, _ = calls_of(lambda: model(x), ONE_CALLS["full"])
    assert count == 2  # of three layers
    inner.eval().event_dispatcher = EventDispatcher()
    inner.event_dispatcher.listen(AttentionEvent, heard.append)
    run(model, torch.randn(4, 1, 16))
    assert len(heard) == 4
    inner.event_dispatcher.clear()
    y = torch.randn(2, 16)
    before, _ = model(y, model(x)[1])
    inner.softmax_temp = 5.0
    assert not torch.equal(before, model(y, model(x)[1])[0])


@torch.no_grad()
def test_listeners_hear_every_token():
    model, heard = encoder(), []
    dispatcher = EventDispatcher()
    model.layers[0].attention.event_dispatcher = dispatcher
    dispatcher.listen(QKVEvent, heard.append)
    run(model, torch.randn(4, 1, 16))
    assert len(heard) == 4


@torch.no_grad()
def test_weights_may_change_between_steps():
    model, x = encoder(), torch.randn(1, 16)
    first, _ = model(x)
    model.layers[0].linear1.weight.mul_(2.0)
    second, _ = model(x)
    assert not torch.equal(first, second)


@torch.no_grad()
def test_errors_are_those_of_the_parts():
    model = encoder()
    _, state = model(torch.randn(2, 16))
    with pytest.raises(ValueError, match="want 3 sequences, as the input has, got 2"):
        model(torch.randn(3, 16), state)
    with pytest.raises(ValueError, match="x|want|shape|size"):
        model(torch.randn(2, 15))


@pytest.mark.parametrize("keys", (dict(), dict(norm_kind="rms", feed_forward="swiglu")))
@torch.no_grad()
def test_language_models_and_batch_encoders(keys):
    model = LanguageModel(vocab_size=50, d_model=16, n_layers=2, n_heads=2, d_ff=24, **keys).eval()
    tokens = torch.randint(50, (3, 6))
    want, _ = model.prefill(tokens)
    state = None
    for place in range(6):
        count, (logits, state) = calls_of(
            lambda: model.step(tokens[:, place], state),
            "tarn::language_step",  # noqa: B023
        )
        assert count == 1
        torch.testing.assert_close(logits, want[:, place], atol=2e-5, rtol=2e-5)
    batch = TransformerEncoderBuilder.from_kwargs(
        n_layers=1, n_heads=2, query_dimensions=8, value_dimensions=8,
        feed_forward_dimensions=24, attention_type="causal-linear",
    ).get().eval()  # fmt: skip
    count, _ = calls_of(lambda: batch.step(torch.randn(2, 16)))
    assert count == 1
