"""Wrong tokens, lengths and states are errors that name the argument, what was wanted
and what was given, from every function of a model that takes them."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tarn import models

SIZES = dict(vocab_size=19, d_model=8, n_layers=1, n_heads=2, d_ff=12, max_positions=16)
LANGUAGE = {
    "one call": dict(),
    "sinusoidal": dict(positions="sinusoidal"),
    "rotary": dict(positions="rotary"),  # by parts
    "gated": dict(attention="gdn", positions="none"),
}
OTHERS = {
    "classifier": dict(arch="encoder", task="classify", n_classes=3),
    "lstm": dict(arch="lstm"),
    "rnn": dict(arch="rnn", task="classify", n_classes=3),
    "cnn": dict(arch="cnn"),
}
# What is wrong, and what the error says of it.
VALUES = {
    "large": (lambda x: x + 19, ValueError, "tokens: want 0 to 18, got "),
    "one large": (lambda x: torch.where(x == x.max(), 19, x), ValueError, "want 0 to 18, got 19"),
    "negative": (lambda x: -1 - x, ValueError, "tokens: want 0 to 18, got -"),
    "float": (lambda x: x.float(), TypeError, "want torch.int64 or torch.int32, got torch.float32"),
    "bool": (lambda x: x > 3, TypeError, "want torch.int64 or torch.int32, got torch.bool"),
    "list": (lambda x: x.tolist(), TypeError, "tokens: want a tensor, got list"),
}
RANKS = {
    "fewer axes": lambda x: x[0],
    "more axes": lambda x: x[..., None],
}


@pytest.fixture(params=(True, False), ids=("gradients", "no gradients"))
def recording(request):
    with torch.set_grad_enabled(request.param):
        yield


def tokens(*shape):
    return torch.randint(19, shape, generator=torch.Generator().manual_seed(1))


def make(**keys):
    torch.manual_seed(2)
    return models.make_model(**SIZES | keys).eval()


def language_calls(kind):
    """What takes tokens of a language model, with right ones."""
    model = make(arch="decoder", **LANGUAGE[kind])
    with torch.no_grad():
        _, state = model.prefill(tokens(2, 3))
    return {
        "forward": (lambda x: model(x), tokens(2, 3), "[B, T]"),
        "prefill": (lambda x: model.prefill(x), tokens(2, 3), "[B, T]"),
        "prefill after": (lambda x: model.prefill(x, state=state), tokens(2, 3), "[B, T]"),
        "step": (lambda x: model.step(x), tokens(2), "[B]"),
        "step after": (lambda x: model.step(x, state), tokens(2), "[B]"),
    }


def pair_calls():
    model = make(arch="seq2seq", n_decoder_layers=1)
    with torch.no_grad():
        state = model.initial_state(tokens(2, 3))
    return {
        "source": (lambda x: model(x, tokens(2, 2)), tokens(2, 3), "[B, T]"),
        "initial_state": (lambda x: model.initial_state(x), tokens(2, 3), "[B, T]"),
        "encode": (lambda x: model.encode(x), tokens(2, 3), "[B, T]"),
        "prefill": (lambda x: model.prefill(x, state), tokens(2, 3), "[B, T]"),
        "step": (lambda x: model.step(x, state), tokens(2), "[B]"),
    }


def all_calls():
    for kind in LANGUAGE:
        for name, call in language_calls(kind).items():
            yield pytest.param(*call, id=f"{kind}-{name}")
    for name, call in pair_calls().items():
        yield pytest.param(*call, id=f"pairs-{name}")
    for kind, keys in OTHERS.items():
        yield pytest.param(make(**keys), tokens(2, 3), "[B, T]", id=kind)


CALLS = list(all_calls())


@pytest.mark.parametrize("call, right, axes", CALLS)
@pytest.mark.parametrize("wrong", VALUES)
def test_wrong_values_and_types(call, right, axes, wrong, recording):
    change, error, text = VALUES[wrong]
    call(right)
    call(right.int())
    with pytest.raises(error) as raised:
        call(change(right))
    assert text in str(raised.value) and "tokens: " in str(raised.value)


@pytest.mark.parametrize("call, right, axes", CALLS)
@pytest.mark.parametrize("wrong", RANKS)
def test_wrong_numbers_of_axes(call, right, axes, wrong, recording):
    given = RANKS[wrong](right)
    with pytest.raises(ValueError) as raised:
        call(given)
    assert f"tokens: want {axes}, got {list(given.shape)}" in str(raised.value)


@pytest.mark.parametrize("wrong", VALUES)
def test_a_wrong_target_is_found_before_the_source_is_read(wrong):
    model, read = make(arch="seq2seq", n_decoder_layers=1), []
    model.encoder.register_forward_hook(lambda *_: read.append(1))
    change, error, text = VALUES[wrong]
    with pytest.raises(error, match="Seq2Seq: target_in: "):
        model(tokens(2, 3), change(tokens(2, 3)))
    assert not read
    with pytest.raises(ValueError, match="target_in: want 2 sequences, as tokens has, got 3"):
        model(tokens(2, 3), tokens(3, 3))


def test_generation_names_its_arguments():
    model, pairs = make(arch="decoder"), make(arch="seq2seq", n_decoder_layers=1)
    for call, error, text in (
        (lambda: models.generate(model, tokens(3), 2), ValueError, r"prompt: want \[B, T\]"),
        (lambda: models.generate(model, [[1]], 2), TypeError, "prompt: want a tensor, got list"),
        (lambda: models.generate(model, tokens(1, 0), 2), ValueError, "want at least one token"),
        (lambda: models.generate(model, tokens(1, 1) + 19, 2), ValueError, "want 0 to 18"),
        (lambda: models.generate(model, tokens(1, 2) + 19, 2), ValueError, "want 0 to 18"),
        (lambda: models.greedy(pairs, tokens(3), end=0), ValueError, r"tokens: want \[B, T\]"),
        (lambda: models.greedy(pairs, tokens(1, 3), end=19), ValueError, "end: want 0 to 18"),
        (lambda: models.beam_search(pairs, tokens(1, 3), end=0), ValueError, r"want \[T\]"),
        (lambda: models.beam_search(pairs, tokens(3), end=-1), ValueError, "end: want 0 to 18"),
    ):
        with pytest.raises(error, match=text):
            call()


@pytest.mark.parametrize("keys", (dict(arch="encoder"), dict(arch="lstm")), ids=str)
def test_wrong_frames(keys):
    model = make(task="ctc", n_classes=3, input_dim=5, **keys)
    frames = torch.zeros(2, 3, 5)
    for wrong, error, text in (
        (frames[0], ValueError, r"frames: want \[B, T, 5\], got \[3, 5\]"),
        (frames[..., :4], ValueError, r"frames: want \[B, T, 5\], got \[2, 3, 4\]"),
        (frames.long(), TypeError, "frames: want torch.float32, got torch.int64"),
        (frames.double(), TypeError, "frames: want torch.float32, got torch.float64"),
        ([[0.0]], TypeError, "frames: want a tensor, got list"),
    ):
        with pytest.raises(error, match=text):
            model(wrong)


def test_lengths_of_another_batch():
    for keys in (dict(arch="decoder"), *OTHERS.values()):
        with pytest.raises(ValueError, match=r"lengths: want \[2\], got \[3\]"):
            make(**keys)(tokens(2, 3), torch.tensor([1, 2, 3]))


@pytest.mark.parametrize("state", ([], "abc", [1], {}, [[torch.ones(2)]]), ids=str)
def test_what_is_no_state(state, recording):
    model, pairs = make(arch="decoder"), make(arch="seq2seq", n_decoder_layers=1)
    for call in (model.step, pairs.step):
        with pytest.raises((TypeError, ValueError), match="state: want "):
            call(tokens(2), state)
    with pytest.raises(TypeError, match="state: want what initial_state returned, got None"):
        pairs.step(tokens(2), None)


def test_an_embedding_of_another_class_says_itself_what_it_takes():
    class Rows(torch.nn.Module):
        def forward(self, x):
            return x if x.dim() == 3 else x[:, 0]

    model = make(arch="decoder", positions="none")
    model.value_embedding = Rows()
    assert model(torch.zeros(2, 3, 8)).shape == (2, 3, 19)


class Counting(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.name())
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", LANGUAGE)
@torch.no_grad()
def test_right_tokens_are_not_read_twice(kind):
    """The checks add no operator to a step nor to a whole sequence."""
    for call, right, _ in language_calls(kind).values():
        call(right)
        with Counting() as counting:
            call(right)
        assert not [name for name in counting.names if "aminmax" in name]
