"""A step of a language model in one call gives the same numbers as part by part, and
goes part by part wherever a caller could see the difference."""

import pytest
import torch

from tarn import recurrent
from tarn.events import EventDispatcher, IntermediateOutput, QKVEvent
from tarn.models import LanguageModel, generate

CALL = "tarn::language_step"


def calls_of(function, name=CALL):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        result = function()
    return sum(e.count for e in profile.key_averages() if e.key == name), result


def make(**keys):
    sizes = dict(vocab_size=31, d_model=16, n_layers=2, n_heads=2, d_ff=24)
    return LanguageModel(**sizes | keys).eval()


def run(model, tokens):
    """Logits of every token [B, T, V] and the last state."""
    state, rows = None, []
    for place in range(tokens.shape[1]):
        logits, state = model.step(tokens[:, place], state)
        rows.append(logits)
    return torch.stack(rows, dim=1), state


ONE_CALL = {
    "sinusoidal": dict(positions="sinusoidal"),
    "learned": dict(positions="learned", max_positions=8),
    "none": dict(positions="none"),
    "tied": dict(tied_head=True),
    "rms, swiglu": dict(norm_kind="rms", feed_forward="swiglu"),
    "post-norm": dict(norm="post"),
    "no last norm": dict(final_norm=False),
    "full": dict(attention="full"),
    "relu2": dict(feature_map="relu2"),
    "image": dict(
        task="image",
        vocab_size=256,
        n_mixtures=3,
        image_height=3,
        image_width=4,
        image_channels=1,
        max_positions=12,
    ),
}


@pytest.mark.parametrize("kind", ONE_CALL)
@pytest.mark.parametrize("batch", (1, 3))
def test_same_numbers_as_part_by_part(kind, batch):
    torch.manual_seed(3)
    model = make(**ONE_CALL[kind])
    tokens = torch.randint(31, (batch, 6))
    want, held = run(model, tokens)  # records gradients: part by part
    with torch.no_grad():
        count, (got, state) = calls_of(lambda: run(model, tokens))
    assert count == 6
    torch.testing.assert_close(got, want, atol=4e-6, rtol=4e-6)
    for one, other in zip(state, held, strict=True):
        assert one.facts == other.facts and torch.equal(one.steps, other.steps)
        for name, tensor in one.tensors.items():
            torch.testing.assert_close(tensor, other.tensors[name], atol=4e-6, rtol=4e-6)


PARTS = {
    "rotary": dict(positions="rotary"),
    "concat": dict(position_combine="concat", positions="sinusoidal"),
    "hybrid": dict(layers=["linear", "full"]),
    "local": dict(attention="local", local_context=3),
}


@pytest.mark.parametrize("kind", PARTS)
@torch.no_grad()
def test_other_models_go_part_by_part(kind):
    model, tokens = make(**PARTS[kind]), torch.randint(31, (2, 6))
    want, _ = model.prefill(tokens)
    count, (got, _) = calls_of(lambda: run(model, tokens))
    assert count == 0
    torch.testing.assert_close(got, want, atol=2e-5, rtol=2e-5)


def hook_embedding(model, calls):
    model.value_embedding.register_forward_hook(lambda *_: calls.append(1))


def hook_head(model, calls):
    model.predictor.register_forward_hook(lambda *_: calls.append(1))


def hook_norm(model, calls):
    model.norm.register_forward_hook(lambda *_: calls.append(1))


def own_head(model, calls):
    head = model.predictor

    class Head(torch.nn.Module):
        def forward(self, x, embedding):
            calls.append(1)
            return head(x, embedding)

    model.predictor = Head()


def own_class(model, calls):
    class Own(type(model)):
        def _head(self, x):
            calls.append(1)
            return super()._head(x)

    model.__class__ = Own


def own_norm_class(model, calls):
    class Norm(torch.nn.LayerNorm):
        def forward(self, x):
            calls.append(1)
            return super().forward(x)

    model.norm.__class__ = Norm


def listener(model, calls):
    stack = model._stack
    stack.event_dispatcher = EventDispatcher()
    stack.event_dispatcher.listen(IntermediateOutput, lambda event: calls.append(1))


def listener_of_queries(model, calls):
    attention = model.layers[0].attention
    attention.event_dispatcher = EventDispatcher()
    attention.event_dispatcher.listen(QKVEvent, lambda event: calls.append(1))


OWN_METHODS = {
    "_head": lambda model: model,
    "step of the stack": lambda model: model._stack,
    "row": lambda model: model._embed,
    "step of a layer": lambda model: model.layers[1],
}


@pytest.mark.parametrize("method", OWN_METHODS)
@pytest.mark.parametrize("stepped", (False, True))
@torch.no_grad()
def test_a_method_overridden_on_an_object_is_called(method, stepped):
    model, token, calls = make(), torch.tensor([3, 4]), []
    want, _ = model.step(token) if stepped else (None, None)
    owner, name = OWN_METHODS[method](model), method.split()[0]
    plain = getattr(owner, name)
    setattr(owner, name, lambda *arguments: (calls.append(1), plain(*arguments))[1])
    for _ in range(2):
        got, _ = model.step(token)
    assert len(calls) == 2
    if stepped:
        torch.testing.assert_close(got, want, atol=4e-6, rtol=4e-6)


@torch.no_grad()
def test_generate_calls_an_overridden_step():
    model, calls = make(), []
    plain = model.step
    model.step = lambda *arguments: (calls.append(1), plain(*arguments))[1]
    generate(model, torch.tensor([[3]]), 5)
    assert len(calls) == 5


@pytest.mark.parametrize("stepped", (False, True))
@torch.no_grad()
def test_who_listens_to_every_module_hears_all(stepped):
    model, token, calls = make(), torch.tensor([3, 4]), []
    if stepped:
        model.step(token)
    handle = torch.nn.modules.module.register_module_forward_hook(
        lambda module, *_: calls.append(type(module).__name__)
    )
    model.step(token)
    handle.remove()
    assert "Predictor" in calls


@pytest.mark.parametrize(
    "change, heard",
    ((hook_embedding, 1), (hook_head, 1), (hook_norm, 1), (own_head, 1),
     (own_class, 1), (own_norm_class, 1), (listener, 2), (listener_of_queries, 1)),
)  # fmt: skip
@pytest.mark.parametrize("stepped", (False, True))
@torch.no_grad()
def test_who_listens_hears_all(change, heard, stepped):
    model, token, calls = make(), torch.tensor([3, 4]), []
    with torch.enable_grad():
        want, _ = model.step(token)
    if stepped:
        model.step(token)
    change(model, calls)
    got, _ = model.step(token)
    assert len(calls) == heard
    torch.testing.assert_close(got, want, atol=4e-6, rtol=4e-6)


def new_embedding(model):
    model.value_embedding.weight = torch.nn.Parameter(torch.randn(31, 16))


def new_head(model):
    model.predictor.weight = torch.nn.Parameter(torch.randn(31, 16))


def head_in_place(model):
    model.predictor.weight.mul_(2.0)


def new_norm(model):
    model._stack.norm = torch.nn.LayerNorm(16, eps=0.3)


def no_bias(model):
    model.predictor.bias = None


def half(model):
    model.bfloat16()


@pytest.mark.parametrize("tied", (False, True))
@pytest.mark.parametrize(
    "change", (new_embedding, new_head, head_in_place, new_norm, no_bias, half)
)
@torch.no_grad()
def test_changes_between_steps_are_seen(tied, change):
    if tied and change is head_in_place:
        pytest.skip("a tied head has no separate weight")
    torch.manual_seed(5)
    model, token = make(tied_head=tied), torch.tensor([3, 4])
    before, _ = model.step(token)
    change(model)
    got, _ = model.step(token)
    with torch.enable_grad():  # part by part
        want, _ = model.step(token)
    near = 4e-6 if want.dtype == torch.float32 else 0.1
    torch.testing.assert_close(got, want, atol=near, rtol=near)
    assert got.dtype != before.dtype or not torch.equal(got, before)


@torch.no_grad()
def test_states_are_values_and_may_be_reordered():
    model, tokens = make(), torch.randint(31, (3, 4))
    _, state = run(model, tokens)
    token, rows = torch.tensor([1, 2, 3]), [2, 0, 0]
    want, _ = model.step(token, state)
    moved, _ = model.step(token, recurrent.reorder(state, rows))
    again, _ = model.step(token, state)
    assert torch.equal(want, again)
    alone, _ = run(model, torch.cat([tokens[rows], token[:, None]], dim=1))
    torch.testing.assert_close(moved, alone[:, -1], atol=4e-6, rtol=4e-6)


@torch.no_grad()
def test_errors_are_those_of_the_parts():
    model = make(positions="sinusoidal")
    _, state = model.step(torch.tensor([1, 2]))
    with pytest.raises(ValueError, match="want 3 sequences, as the input has, got 2"):
        model.step(torch.tensor([1, 2, 3]), state)
    with pytest.raises(ValueError, match="tokens: want 0 to 30, got 31"):
        model.step(torch.tensor([31]))
    with torch.autocast("cpu", torch.bfloat16):
        count, _ = calls_of(lambda: model.step(torch.tensor([1])))
    assert count == 0


class Fixed(torch.nn.Module):
    """A language model that gives these logits whatever it reads."""

    def __init__(self, logits):
        super().__init__()
        self.logits = logits

    def step(self, tokens, state=None):
        return self.logits.expand(len(tokens), -1), state

    def prefill(self, tokens):
        return self.logits.expand(*tokens.shape, -1), None


@pytest.mark.parametrize("temperature", (1.0, 0.5))
@pytest.mark.parametrize("prompt", (1, 2))
def test_generate_draws_by_the_softmax(temperature, prompt):
    logits = torch.tensor([0.0, 1.0, -1.0, 2.0, float("-inf")])
    drawn = generate(
        Fixed(logits), torch.zeros(500, prompt, dtype=torch.int64), 100,
        temperature=temperature, generator=torch.Generator().manual_seed(4),
    )  # fmt: skip
    found = torch.bincount(drawn.flatten(), minlength=5) / drawn.numel()
    want = torch.softmax(logits / temperature, dim=0)
    # Six standard deviations of the largest share.
    torch.testing.assert_close(found, want, atol=6 * 0.5 / drawn.numel() ** 0.5, rtol=0)
    assert found[4] == 0


@torch.no_grad()
def test_a_longer_text_begins_with_the_shorter_one():
    model, prompt = make(), torch.randint(31, (3, 2))
    short, long = (
        generate(model, prompt, count, generator=torch.manual_seed(8)) for count in (5, 90)
    )
    assert torch.equal(long[:, :5], short)
    assert generate(model, prompt, 0).shape == (3, 0)


@pytest.mark.parametrize("temperature", (0.0, 0.8))
@pytest.mark.parametrize("tokens", (1, 2, 63, 64, 65, 66, 150))
@torch.no_grad()
def test_generate_writes_many_tokens_in_one_call(temperature, tokens):
    """They are the same as token by token, which a listener enforces."""
    torch.manual_seed(6)
    model, prompt = make(max_positions=200), torch.randint(31, (2, 3))

    def write():
        generator = torch.Generator().manual_seed(8)
        return generate(model, prompt, tokens, temperature=temperature, generator=generator)

    count, got = calls_of(write)
    assert min(tokens - 1, 1) <= count <= (tokens + 61) // 62
    hook = model.predictor.register_forward_hook(lambda *_: None)
    count, want = calls_of(write)
    hook.remove()
    assert count == 0 and torch.equal(got, want)


def test_generate_refuses_logits_that_are_no_numbers():
    model = make()
    with torch.no_grad():
        model.predictor.bias[3] = float("nan")
    with pytest.raises(ValueError, match="logits: want finite numbers"):
        generate(model, torch.tensor([[1]]), 2)
    with pytest.raises(ValueError, match="logits: want finite numbers"):
        generate(model, torch.tensor([[1]]), 2, temperature=0)
