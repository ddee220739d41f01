"""What state_dict holds is what runs: a child that is replaced at any depth, in a model
that has run before, is the one that forward, prefill, step and generate use."""

import copy
import functools
import pickle

import pytest
import torch

from tarn import attention, models

SIZES = dict(vocab_size=19, d_model=8, n_layers=2, n_heads=2, d_ff=12, max_positions=16)
LEARNED = dict(positions="learned")
MODELS = {
    "learned": dict(arch="decoder", **LEARNED),
    "sinusoidal": dict(arch="decoder", positions="sinusoidal"),
    "tied": dict(arch="decoder", tied_head=True, **LEARNED),
    "full": dict(arch="decoder", attention="full", norm="post"),
    "swiglu": dict(arch="decoder", norm_kind="rms", feed_forward="swiglu"),
    "gdn": dict(arch="decoder", layers=["gdn", "full"]),
    "rwkv": dict(arch="decoder", attention="rwkv7", feed_forward="channel-mix"),
    "classifier": dict(arch="encoder", task="classify", n_classes=3, **LEARNED),
    "conditional": dict(arch="encoder", task="ctc", n_classes=3, input_dim=5, length_limit=2,
                        attention="conditional-full", positions="rotary", rotary_place="after"),
    "frames": dict(arch="encoder", task="ctc", n_classes=3, input_dim=5),
    "pairs": dict(arch="seq2seq", n_decoder_layers=2, **LEARNED),
    "tied pairs": dict(arch="seq2seq", n_decoder_layers=1, tied_head=True),
    "lstm": dict(arch="lstm"),
    "cnn": dict(arch="cnn", kernel_size=3, tied_head=True),
}  # fmt: skip


# Enough to continue a state twice; more would only take time.
TOKENS = 3


def make(kind):
    torch.manual_seed(3)
    return models.make_model(**SIZES | MODELS[kind]).eval()


@functools.cache
def shared(kind):
    """A model that tests only load weights into."""
    return make(kind)


def inputs_of(model):
    generator = torch.Generator().manual_seed(5)
    if model.config["task"] == "ctc":
        return torch.randn(2, TOKENS, 5, generator=generator)
    return torch.randint(19, (2, TOKENS), generator=generator)


def results(model):
    """Everything that a model computes, by name."""
    x = inputs_of(model)
    if isinstance(model, models.Seq2Seq):
        return {"forward": model(x, x), **recurrent_results(model, model.initial_state(x), x)}
    found = {"forward": model(x)}
    if isinstance(model, models.LanguageModel):
        found |= recurrent_results(model, None, x)
        if not torch.is_grad_enabled():  # it never records gradients
            found["generate"] = models.generate(model, x, TOKENS, temperature=0)
            found["generate from a step"] = models.generate(model, x[:, :1], 2, temperature=0)
    return found


def recurrent_results(model, state, x):
    rows, held = [], state
    for token in x.unbind(1):
        logits, held = model.step(token, held)
        rows.append(logits)
    return {"prefill": model.prefill(x, state=state)[0], "step": torch.stack(rows, 1)}


def fast_results(model):
    with torch.no_grad():
        return results(model)


def same(got, want):
    assert got.keys() == want.keys()
    for name, one in got.items():
        torch.testing.assert_close(one, want[name], atol=2e-5, rtol=2e-5, msg=name)


def children(kind):
    names = [name for name, _ in shared(kind).named_modules() if name]
    return [name for name in names if "layers.1." not in name]


def replace(model, name):
    """Puts a copy with other weights in a child's place."""
    parent, _, child = name.rpartition(".")
    new = copy.deepcopy(model.get_submodule(name))
    generator = torch.Generator().manual_seed(len(name))
    with torch.no_grad():
        for weight in new.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
    setattr(model.get_submodule(parent), child, new)


def wanted_of(model, kind):
    """What another model computes with the weights that a model's state_dict holds."""
    fresh = shared(kind)
    fresh.load_state_dict(model.state_dict())
    return fast_results(fresh)


DEEP = ("learned", "full", "swiglu", "pairs", "lstm", "cnn")  # the others: their own children
PLACES = [
    (kind, name)
    for kind in MODELS
    for name in children(kind)
    # The layers of an encoder before a decoder are those of an encoder alone.
    if (kind in DEEP and not name.startswith("encoder.layers.0.")) or name.count(".") == 0
]


@pytest.mark.parametrize("kind, name", PLACES, ids=[f"{kind}-{name}" for kind, name in PLACES])
def test_a_replaced_child_is_the_one_that_runs(kind, name):
    model = make(kind)
    fast_results(model)  # whatever is kept for later calls is there
    replace(model, name)
    want = wanted_of(model, kind)
    same(fast_results(model), want)
    slow = results(model)
    same({name: one.detach() for name, one in slow.items()}, {name: want[name] for name in slow})
    for how in ("forward", "prefill", "step"):
        if how in slow:
            wanting = dict(model.named_parameters())
            sum_of = slow[how].square().sum()
            grads = torch.autograd.grad(sum_of, wanting.values(), allow_unused=True,
                                        retain_graph=True)  # fmt: skip
            missed = {one for one, grad in zip(wanting, grads, strict=True) if grad is None}
            # A source's weights are read before the state of a target begins.
            assert not missed, how


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize(
    "copied",
    (copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))),
    ids=("deep", "pickle"),
)
def test_a_copy_runs_its_own_children(kind, copied):
    model = make(kind)
    before = fast_results(model)
    other = copied(model)
    for name, _ in list(other.named_children()):
        replace(other, name)
    same(fast_results(other), wanted_of(other, kind))
    same(fast_results(model), before)


@pytest.mark.parametrize("kind", ("learned", "classifier", "pairs"))
def test_a_shallow_copy_with_children_of_its_own_runs_them(kind):
    model = make(kind)
    before = fast_results(model)
    other = copy.copy(model)
    other._modules = dict(model._modules)
    for name, _ in list(other.named_children()):
        replace(other, name)
    same(fast_results(other), wanted_of(other, kind))
    same(fast_results(model), before)


@pytest.mark.parametrize("kind", ("learned", "full", "classifier"))
def test_another_number_of_layers_runs(kind):
    model = make(kind)
    fast_results(model)
    model.layers = torch.nn.ModuleList([copy.deepcopy(model.layers[1])])
    short = models.make_model(**SIZES | MODELS[kind] | dict(n_layers=1)).eval()
    short.load_state_dict(model.state_dict())
    same(fast_results(model), fast_results(short))


@pytest.mark.parametrize("kind", ("learned", "classifier"))
def test_a_last_norm_may_come_and_go(kind):
    keys = SIZES | MODELS[kind]
    without = models.make_model(**keys, final_norm=False).eval()
    before = fast_results(without)
    without.norm = torch.nn.LayerNorm(8)
    torch.nn.init.normal_(without.norm.weight)
    same(fast_results(without), wanted_of(without, kind))
    without.norm = None
    same(fast_results(without), before)


@pytest.mark.parametrize("kind", ("learned", "tied", "pairs", "cnn"))
def test_a_head_of_torch_and_an_embedding_without_a_weight_run(kind):
    model = make(kind)
    fast_results(model)
    head = torch.nn.Linear(8, 19)
    model.predictor = head
    want = fast_results(model)
    name = "target_embedding" if kind == "pairs" else "value_embedding"
    setattr(model, name, torch.nn.Sequential(getattr(model, name)))
    same(fast_results(model), want)
    head.weight.data.zero_()
    torch.testing.assert_close(
        fast_results(model)["forward"], head.bias.detach().expand(2, TOKENS, 19)
    )


def test_a_tied_head_names_the_weight_that_it_misses():
    model = make("tied")
    model.value_embedding = torch.nn.Sequential(model.value_embedding)
    with pytest.raises(ValueError, match="predictor: want the embedding's weight"):
        model(inputs_of(model))


HOOKED = [(kind, name) for kind, name in PLACES if kind in ("learned", "swiglu")]


@pytest.mark.parametrize("kind, name", HOOKED, ids=[f"{kind}-{name}" for kind, name in HOOKED])
@torch.no_grad()
def test_hooks_of_children_are_called_by_every_form(kind, name):
    model, heard = make(kind), []
    x = inputs_of(model)
    want = fast_results(model)
    child = model.get_submodule(name)
    child.register_forward_hook(lambda *_: heard.append(1))
    same(fast_results(model), want)
    # A token goes through the others by their method step.
    called = hasattr(child, "weight") or isinstance(child, torch.nn.Dropout)
    forms = {
        "forward": lambda: model(x),
        "prefill": lambda: model.prefill(x),
        "step": lambda: model.step(x[:, 0]),
        "generate": lambda: models.generate(model, x[:, :1], 2),
    }
    for how, call in forms.items():
        heard.clear()
        call()
        assert heard or not called, how


@pytest.mark.parametrize("kind", ("learned", "tied", "full", "pairs"))
def test_parametrised_and_shared_weights_run(kind):
    model = make(kind)
    fast_results(model)
    for name, part in list(model.named_modules()):
        if isinstance(part, (torch.nn.Linear, torch.nn.Embedding)) or name == "predictor":
            if getattr(part, "weight", None) is not None:
                torch.nn.utils.parametrize.register_parametrization(part, "weight", Twice())
    plain = make(kind)
    with torch.no_grad():
        for part in plain.modules():
            if isinstance(part, (torch.nn.Linear, torch.nn.Embedding, models._parts.Predictor)):
                if getattr(part, "weight", None) is not None:
                    part.weight.mul_(2)
    same(fast_results(model), fast_results(plain))


class Twice(torch.nn.Module):
    def forward(self, weight):
        return 2 * weight


@pytest.mark.parametrize("kind", ("learned", "full", "sinusoidal"))
def test_one_layer_in_two_places_runs_twice(kind):
    model = make(kind)
    fast_results(model)
    model.layers[1] = model.layers[0]
    model.predictor.weight = model.value_embedding.weight
    same(fast_results(model), wanted_of(model, kind))


@pytest.mark.parametrize("tokens", (2, 5), ids=("short", "long"))
@pytest.mark.parametrize("name", ("full_attention", "other_attention"))
@torch.no_grad()
def test_a_replaced_part_of_a_conditional_attention_keeps_the_positions(name, tokens):
    model = make("conditional")
    frames = torch.randn(2, tokens, 5, generator=torch.Generator().manual_seed(5))
    want = model(frames)
    inner = model.layers[0].attention.inner_attention
    setattr(inner, name, copy.deepcopy(getattr(inner, name)))
    if name == "full_attention":  # a new one has no part of the old one
        inner.full_attention = attention.FullAttention(None, 0.0)
    torch.testing.assert_close(model(frames), want)
    # Positions are there: without them rows in another order give the same in that order.
    assert not torch.allclose(model(frames.flip(1)).flip(1), want, atol=1e-3)
