"""`prefill` and `step` of the layers, stacks and models themselves: they are one
function with the whole-sequence form, build nothing on the way, and do the same work
at every token. Work is counted, not timed."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tarn import models
from tarn.builders import TransformerDecoderBuilder, TransformerEncoderBuilder
from tarn.masking import LengthMask, TriangularCausalMask

SMALL = dict(vocab_size=256, d_model=24, n_heads=3, d_ff=40, max_positions=64)
N, L, D = 3, 9, 24


class Counted(TorchDispatchMode):
    """Operators that are called inside."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls += 1
        return func(*args, **(kwargs or {}))


def work_of_step(model, token, state):
    with Counted() as counted, torch.no_grad():
        _, state = model.step(token, state)
    return counted.calls, state


@pytest.fixture
def built(monkeypatch):
    """Names of modules in the order in which they are made."""
    names = []
    plain = torch.nn.Module.__init__

    def init(self, *args, **kwargs):
        names.append(type(self).__name__)
        plain(self, *args, **kwargs)

    monkeypatch.setattr(torch.nn.Module, "__init__", init)
    return names


@pytest.mark.parametrize(
    "keys",
    [
        dict(attention="linear"),
        dict(layers=["linear", "full"], positions="rotary"),
        dict(layers=["linear", "aft-simple"], norm_kind="rms", feed_forward="swiglu"),
        dict(positions="rotary", rotary_place="after"),
    ],
    ids=lambda keys: "-".join(map(str, keys.values())),
)
def test_a_language_model_builds_nothing_at_a_step(keys, built):
    model = models.LanguageModel(**SMALL, n_layers=2, **keys).eval()
    tokens = torch.randint(256, (N, L))
    assert built  # control: making the model was seen
    built.clear()
    _, state = model.prefill(tokens)
    for t in range(3):
        _, state = model.step(tokens[:, t], state)
    assert built == []


def test_a_seq2seq_builds_nothing_at_a_step(built):
    model = models.Seq2Seq(**SMALL, n_layers=2).eval()
    tokens = torch.randint(256, (N, L))
    built.clear()
    state = model.initial_state(tokens)
    _, state = model.prefill(tokens[:, :2], state)
    model.step(tokens[:, 2], state)
    # The masks of the source are no part of the model.
    assert built == []


def test_a_step_of_linear_attention_is_the_same_work_at_every_token():
    token = torch.randint(256, (N,))
    per_model = []
    for n_layers in (2, 4):
        model = models.LanguageModel(**SMALL, n_layers=n_layers).eval()
        _, state = work_of_step(model, token, None)
        calls = []
        for _ in range(20):
            count, state = work_of_step(model, token, state)
            calls.append(count)
        assert len(set(calls)) == 1
        per_model.append(calls[0])
    per_layer = (per_model[1] - per_model[0]) / 2
    print(f"{per_layer} operators a layer, {per_model[0] - 2 * per_layer} besides the layers")
    assert per_layer <= MOST_OPERATORS_A_LAYER


# Views and transposes of weights are included.
MOST_OPERATORS_A_LAYER = 20

KINDS = [
    ("causal-linear", {}),
    ("causal-linear", {"feature_map": "favor", "stabilise": True}),
    ("full", {}),
    ("local", {"local_context": 4}),
    ("exact-topk", {"topk": 3}),
    ("aft-full", {"max_sequence_length": 20, "aft_parameterization": 3}),
    ("aft-simple", {}),
]


@pytest.mark.parametrize("kind, options", KINDS, ids=[f"{k}-{len(o)}" for k, o in KINDS])
def test_encoders_of_every_kind_run_as_recurrences(kind, options):
    settings = dict(n_layers=2, n_heads=3, query_dimensions=8, value_dimensions=8, dropout=0.0)
    settings.update(feed_forward_dimensions=40, attention_type=kind, **options)
    encoder = TransformerEncoderBuilder.from_kwargs(**settings).get().eval()
    x = torch.randn(N, L, D)
    wanted = encoder(x, TriangularCausalMask(L))
    first, state = encoder.prefill(x[:, :4])
    kept = [part.clone() for part in state]
    rest, _ = encoder.prefill(x[:, 4:], state=state)
    torch.testing.assert_close(torch.cat([first, rest], 1), wanted, rtol=0, atol=2e-5)
    stepped = []
    for t in range(4, L):
        y, state = encoder.step(x[:, t], state)
        stepped.append(y)
    torch.testing.assert_close(torch.stack(stepped, 1), wanted[:, 4:], rtol=0, atol=2e-5)
    # States are values: nothing changed the one in the middle.
    _, again = encoder.prefill(x[:, :4])
    assert again == kept
    # Rows of different lengths; each continues from its own end.
    lengths = torch.tensor([4, 1, 2])
    _, ragged = encoder.prefill(x[:, :4], lengths)
    given, _ = encoder.step(x[torch.arange(N), lengths], ragged)
    torch.testing.assert_close(given, wanted[torch.arange(N), lengths], rtol=0, atol=2e-5)


@pytest.mark.parametrize("kind", ["linear", "full"])
def test_decoders_read_their_memory_once(kind):
    settings = dict(n_layers=2, n_heads=3, query_dimensions=8, value_dimensions=8, dropout=0.0)
    own = "causal-linear" if kind == "linear" else kind
    settings.update(self_attention_type=own, cross_attention_type=kind)
    decoder = TransformerDecoderBuilder.from_kwargs(**settings).get().eval()
    x, memory = torch.randn(N, L, D), torch.randn(N, 5, D)
    mask = LengthMask(torch.tensor([5, 3, 1]), max_len=5)
    wanted = decoder(x, memory, TriangularCausalMask(L), memory_length_mask=mask)
    state = decoder.initial_state(memory, mask)
    first, state = decoder.prefill(x[:, :4], state)
    torch.testing.assert_close(first, wanted[:, :4], rtol=0, atol=2e-5)
    for t in range(4, L):
        y, state = decoder.step(x[:, t], state)
        torch.testing.assert_close(y, wanted[:, t], rtol=0, atol=2e-5)


def test_kinds_without_a_recurrent_form_are_named():
    model = models.LanguageModel(**SMALL, n_layers=2, attention="reformer")
    with pytest.raises(ValueError, match="attention: want one with a recurrent form.*Reformer"):
        model.step(torch.tensor([1]))
    encoder = TransformerEncoderBuilder.from_kwargs(attention_type="linear").get()
    with pytest.raises(ValueError, match="recurrent form .causal-linear.*got LinearAttention"):
        encoder.step(torch.randn(2, 256))
    local = TransformerDecoderBuilder.from_kwargs(
        cross_attention_type="local", local_context=3
    ).get()
    with pytest.raises(ValueError, match="want linear or full to read a memory.*got LocalAtt"):
        local.initial_state(torch.randn(2, 5, 256))
    with pytest.raises(ValueError, match="state: want a list of 4 states, one a layer, got 1"):
        encoder.step(torch.randn(2, 256), [None])
