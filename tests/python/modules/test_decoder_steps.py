"""A step of a decoder in one call gives the same numbers as part by part, and goes part
by part wherever a caller could see the difference."""

import pytest
import torch
from test_one_call_steps import calls_of

from tarn.builders import RecurrentDecoderBuilder
from tarn.events import AttentionEvent, EventDispatcher, QKVEvent
from tarn.masking import LengthMask
from tarn.models import Seq2Seq

ONE_CALL = "tarn::decoder_layers_step"
KINDS = [(one, other) for one in ("linear", "full") for other in ("linear", "full")]


def decoder(kind="linear", cross="linear", **settings):
    builder = RecurrentDecoderBuilder.from_kwargs(
        n_layers=3,
        n_heads=2,
        query_dimensions=8,
        value_dimensions=8,
        feed_forward_dimensions=24,
        self_attention_type=kind,
        cross_attention_type=cross,
        **settings,
    )
    return builder.get().eval()


def run(model, x, memory, mask=None):
    state, outputs = None, []
    for token in x:
        out, state = model(token, memory, mask, state)
        outputs.append(out)
    return torch.stack(outputs), state


@pytest.mark.parametrize("kind, cross", KINDS)
@pytest.mark.parametrize("batch", (1, 3, 12))
@pytest.mark.parametrize("activation", ("relu", "gelu"))
def test_same_numbers_as_part_by_part(kind, cross, batch, activation):
    model, x = decoder(kind, cross, activation=activation), torch.randn(5, batch, 16)
    memory = torch.randn(batch, 7, 16)
    want, held = run(model, x, memory)  # records gradients: part by part
    with torch.no_grad():
        count, (got, state) = calls_of(lambda: run(model, x, memory), ONE_CALL)
    assert count == 4  # the first token reads the memory
    torch.testing.assert_close(got, want, atol=4e-6, rtol=4e-6)
    for parts, others in zip(state, held, strict=True):
        for part, other in zip(parts, others, strict=True):
            assert part.facts == other.facts and torch.equal(part.steps, other.steps)
            for name, tensor in part.tensors.items():
                torch.testing.assert_close(tensor, other.tensors[name], atol=4e-6, rtol=4e-6)


@pytest.mark.parametrize("cross", ("linear", "full"))
@torch.no_grad()
def test_memories_of_unequal_lengths(cross):
    """A linear memory has the mask applied; in a full one some keys are left out."""
    model, x, memory = decoder("linear", cross), torch.randn(4, 2, 16), torch.randn(2, 5, 16)
    mask = LengthMask(torch.tensor([5, 3]))
    count, (got, _) = calls_of(lambda: run(model, x, memory, mask), ONE_CALL)
    assert count == (3 if cross == "linear" else 0)
    for row, length in enumerate((5, 3)):
        rows = slice(row, row + 1)
        alone, _ = run(model, x[:, rows], memory[rows, :length])
        torch.testing.assert_close(got[:, rows], alone, atol=4e-6, rtol=4e-6)


@torch.no_grad()
def test_another_memory_is_refused():
    model, x, memory = decoder(), torch.randn(2, 16), torch.randn(2, 5, 16)
    _, state = model(x, memory)
    want, _ = model(x, None, state=state)
    assert torch.equal(model(x, memory, state=state)[0], want)
    with pytest.raises(ValueError, match="memory: want None, or the tensor"):
        model(x, memory.clone(), state=state)
    memory.add_(1.0)
    with pytest.raises(ValueError, match="memory: want None, or the tensor"):
        model(x, memory, state=state)


def listen_to_queries(model, heard):
    cross = model.layers[1].cross_attention
    cross.event_dispatcher = EventDispatcher()
    cross.event_dispatcher.listen(QKVEvent, heard.append)


def listen_to_weights(model, heard):
    inner = model.layers[1].cross_attention.inner_attention
    inner.event_dispatcher = EventDispatcher()
    inner.event_dispatcher.listen(AttentionEvent, heard.append)


def hook_map(model, heard):
    model.layers[1].cross_attention.query_projection.register_forward_hook(
        lambda *_: heard.append(1)
    )


def hook_norm(model, heard):
    model.layers[1].norm2.register_forward_hook(lambda *_: heard.append(1))


def own_layer(model, heard):
    class Layer(type(model.layers[1])):
        def forward(self, *arguments, **keywords):
            heard.append(1)
            return super().forward(*arguments, **keywords)

    model.layers[1].__class__ = Layer


@pytest.mark.parametrize(
    "change", (listen_to_queries, listen_to_weights, hook_map, hook_norm, own_layer)
)
@torch.no_grad()
def test_who_listens_hears_every_token(change):
    model, x, memory, heard = decoder("full", "full"), torch.randn(2, 16), torch.randn(2, 5, 16), []
    _, state = model(x, memory)
    want, _ = model(x, None, state=state)
    change(model, heard)
    count, (got, _) = calls_of(lambda: model(x, None, state=state), ONE_CALL)
    assert count == 0 and len(heard) == 1
    torch.testing.assert_close(got, want, atol=4e-6, rtol=4e-6)


@torch.no_grad()
def test_other_settings_are_seen():
    model, x, memory = decoder("full", "full"), torch.randn(2, 16), torch.randn(2, 5, 16)
    _, state = model(x, memory)
    before, _ = model(x, None, state=state)
    inner = model.layers[1].cross_attention.inner_attention
    inner.softmax_temp = 5.0  # unlike the self attention's
    count, (got, _) = calls_of(lambda: model(x, None, state=state), ONE_CALL)
    assert count == 0 and not torch.equal(before, got)
    inner.softmax_temp = None
    model.layers[1].cross_attention.query_projection.weight.mul_(2.0)
    assert not torch.equal(before, model(x, None, state=state)[0])


@pytest.mark.parametrize("keys", (dict(), dict(norm_kind="rms", feed_forward="swiglu")))
@pytest.mark.parametrize("kinds", KINDS)
@torch.no_grad()
def test_sequence_to_sequence(keys, kinds):
    sizes = dict(vocab_size=50, d_model=16, n_layers=1, n_decoder_layers=2, n_heads=2, d_ff=24)
    names = dict(zip(("attention", "cross_attention"), kinds, strict=True))
    model = Seq2Seq(**sizes, **names, **keys).eval()
    source, target = torch.randint(50, (3, 6)), torch.randint(50, (3, 5))
    want, _ = model.prefill(target, model.initial_state(source))
    state = model.initial_state(source)
    for place in range(5):
        count, (logits, state) = calls_of(
            lambda: model.step(target[:, place], state),
            ONE_CALL,  # noqa: B023
        )
        assert count == 1
        torch.testing.assert_close(logits, want[:, place], atol=2e-5, rtol=2e-5)
