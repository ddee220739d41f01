"""Hooks of modules run in every form of a model: a hook that forward runs, prefill, step
and generate run too."""

import copy
import warnings

import pytest
import torch

from tarn import models, nn
from tarn.builders import RecurrentEncoderBuilder, TransformerEncoderBuilder

SIZES = dict(vocab_size=19, d_model=8, n_layers=2, n_heads=2, d_ff=12, max_positions=16)
LANGUAGE = {
    "linear": dict(positions="learned"),
    "rotary": dict(positions="rotary", rotary_place="after"),
    "full": dict(attention="full", norm="post"),
    "swiglu": dict(layers=["linear", "full"], norm_kind="rms", feed_forward="swiglu"),
    "local": dict(layers=[{"mixer": "local", "local_context": 3}, "aft-simple"]),
    "favor": dict(layers=[{"mixer": "linear", "feature_map": "favor"}, "exact-topk"]),
    "mix": dict(attention="linear", feed_forward="channel-mix"),
}
# Modules that hold others, or what other modules only read.
SILENT = (torch.nn.ModuleList,)


def make(kind):
    torch.manual_seed(3)
    return models.LanguageModel(**SIZES, **LANGUAGE[kind]).eval()


def make_pairs():
    torch.manual_seed(3)
    return models.Seq2Seq(**SIZES, n_decoder_layers=2, positions="learned").eval()


def tokens(*shape):
    return torch.randint(19, shape, generator=torch.Generator().manual_seed(5))


def forms(model):
    """Every way to run a model, by name."""
    x = tokens(2, 4)
    if isinstance(model, models.Seq2Seq):
        state = model.initial_state(x)
        return {
            "forward": lambda: model(x, x),
            "initial_state": lambda: model.initial_state(x),
            "prefill": lambda: model.prefill(x, state)[0],
            "step": lambda: steps(model, x, state),
        }
    return {
        "forward": lambda: model(x),
        "prefill": lambda: model.prefill(x)[0],
        "step": lambda: steps(model, x, None),
        "generate": lambda: models.generate(model, x, 3),
        "generate from a step": lambda: models.generate(model, x[:, :1], 3),
    }


def steps(model, x, state):
    rows = []
    for token in x.unbind(1):
        row, state = model.step(token, state)
        rows.append(row)
    return torch.stack(rows, 1)


@pytest.fixture(params=(True, False), ids=("gradients", "no gradients"))
def recording(request):
    with torch.set_grad_enabled(request.param):
        yield


KINDS = {kind: lambda kind=kind: make(kind) for kind in LANGUAGE} | {"pairs": make_pairs}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("before", (False, True), ids=("after", "before"))
def test_every_form_runs_the_hooks_that_forward_runs(kind, before, recording):
    model = KINDS[kind]()
    for call in forms(model).values():
        call()  # what is kept for later calls is there
    heard = set()

    def listen(name):
        def hook(*_):
            heard.add(name)

        return hook

    for name, part in model.named_modules():
        if not isinstance(part, SILENT):
            attach = part.register_forward_pre_hook if before else part.register_forward_hook
            attach(listen(name))
    found = {}
    for how, call in forms(model).items():
        heard.clear()
        call()
        found[how] = set(heard)
    assert {"", "decoder" if kind == "pairs" else "layers.0"} < found["forward"]
    source = found.pop("initial_state", set())
    for how, names in found.items():
        assert found["forward"] <= names | source, how


@pytest.mark.parametrize("kind", KINDS)
def test_one_call_runs_a_hook_once(kind, recording):
    model, heard = KINDS[kind](), []
    for name, part in model.named_modules():
        # One dropout has many uses, and a map is called for queries and for keys.
        if not (isinstance(part, torch.nn.Dropout) or name.endswith("feature_map")):
            part.register_forward_hook(lambda *_, name=name: heard.append(name))
    x = tokens(2, 1)
    state = model.initial_state(x) if kind == "pairs" else None
    for call in (lambda: model.prefill(x, state=state), lambda: model.step(x[:, 0], state)):
        heard.clear()
        call()
        assert len(set(heard)) == len(heard)


CHILDREN = (
    "layers.1",
    "layers.0.attention",
    "layers.0.attention.inner_attention",
    "layers.0.attention.value_projection",
    "layers.0.linear1",
    "norm",
)


@pytest.mark.parametrize("kind", ("linear", "full", "swiglu", "rotary", "local"))
@pytest.mark.parametrize("name", CHILDREN)
def test_what_a_hook_changes_is_changed_in_every_form(kind, name, recording):
    model = make(kind)
    before = forms(model)["forward"]()
    child = model.get_submodule(name)

    def bent(x):
        return x + x.flip(-1).square()  # a norm after it does not undo it

    def bend(module, args, out):
        return (bent(out[0]), *out[1:]) if isinstance(out, tuple) else bent(out)

    handle = child.register_forward_hook(bend)
    want = forms(model)["forward"]()
    assert not torch.allclose(want, before, atol=1e-3)
    for how in ("prefill", "step"):
        torch.testing.assert_close(forms(model)[how](), want, atol=2e-5, rtol=2e-5, msg=how)
    handle.remove()

    def halve(module, args):
        return (args[0] / 2, *args[1:])

    # An attention gets the same rows three times from a forward, once from a step.
    if not name.endswith("attention"):
        child.register_forward_pre_hook(halve)
        want = forms(model)["forward"]()
        for how in ("prefill", "step"):
            torch.testing.assert_close(forms(model)[how](), want, atol=2e-5, rtol=2e-5, msg=how)


def test_hooks_get_the_arguments_and_the_result_of_the_method():
    model, seen = make("linear"), []
    layer = model.layers[0]

    def before(module, args, kwargs):
        seen.append((module, len(args), set(kwargs)))

    def after(module, args, kwargs, out):
        seen.append((module, type(out)))

    layer.register_forward_pre_hook(before, with_kwargs=True)
    layer.register_forward_hook(after, with_kwargs=True)
    model.step(tokens(2))
    model.prefill(tokens(2, 3))
    model(tokens(2, 3))
    assert [one[1] for one in seen] == [2, tuple, 3, tuple, 1, torch.Tensor]
    assert all(one[0] is layer for one in seen)


@pytest.mark.parametrize("name", ("layers.0", "layers.0.attention", "layers.1.linear2"))
def test_backward_hooks_run(name):
    model, seen = make("linear"), []
    child = model.get_submodule(name)
    child.register_full_backward_hook(lambda module, grads, out: seen.append("after"))
    child.register_full_backward_pre_hook(lambda module, out: seen.append("before"))
    for how in ("forward", "prefill", "step"):
        seen.clear()
        forms(model)[how]().sum().backward()
        assert {"before", "after"} == set(seen), how


def test_a_backward_hook_of_the_old_kind_is_named():
    model = make("linear")

    def mine(module, grads, out):
        return None

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.layers[0].register_backward_hook(mine)
    with pytest.raises(ValueError, match="mine: want a hook of register_full_backward_hook"):
        model.step(tokens(2))


def test_a_hook_that_always_runs_does_so_after_an_error():
    model, seen = make("linear"), []
    model.layers[0].register_forward_hook(lambda *_: seen.append(1), always_call=True)
    model.layers[0].linear1.register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model.step(tokens(2))
    assert seen == [1]


@pytest.mark.parametrize("kind", KINDS)
def test_hooks_of_all_modules_run(kind, recording):
    model, heard = KINDS[kind](), set()
    named = {part: name for name, part in model.named_modules()}
    runs = forms(model)
    for call in runs.values():
        call()
    hook = torch.nn.modules.module.register_module_forward_hook(
        lambda module, *_: heard.add(named.get(module))
    )
    try:
        wanted = "decoder.layers.1" if kind == "pairs" else "layers.1"
        attention = "self_attention" if kind == "pairs" else "attention"
        for how, call in runs.items():
            heard.clear()
            call()
            if how != "initial_state":
                names = {wanted, f"{wanted}.{attention}.inner_attention", "predictor"}
                assert names | {f"{wanted}.linear1"} <= heard, how
    finally:
        hook.remove()


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_weight_norm_by_hooks_runs_in_every_form(kind):
    """The old weight_norm computes a weight in a hook before each call."""
    model = KINDS[kind]()
    plain = copy.deepcopy(model)
    for call in forms(model).values():
        call()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for part in model.modules():
            if isinstance(part, torch.nn.Linear):
                torch.nn.utils.weight_norm(part)
                part.weight_g.mul_(1.5)  # the weight that is at hand is stale now
    for part in plain.modules():
        if isinstance(part, torch.nn.Linear):
            part.weight.mul_(1.5)
    wanted, runs = forms(plain), forms(model)
    for how in ("forward", "prefill", "step"):
        torch.testing.assert_close(runs[how](), wanted[how](), atol=2e-5, rtol=2e-5, msg=how)


@pytest.mark.parametrize("norm", ("pre", "post"))
@pytest.mark.parametrize("feed_forward", ("mlp", "swiglu", "channel-mix", "gated-channel-mix"))
@pytest.mark.parametrize("mixer", ("linear", "full"))
def test_the_layers_of_tarn_nn_run_hooks(norm, feed_forward, mixer):
    torch.manual_seed(4)
    encoder = nn.Encoder(2, 8, 2, norm=norm, feed_forward=feed_forward, mixer=mixer).eval()
    x, heard = torch.randn(2, 4, 8), set()
    runs = {
        "forward": lambda: encoder(x),
        "prefill": lambda: encoder.prefill(x)[0],
        "step": lambda: steps(encoder, x, None),
    }
    plain = {how: call() for how, call in runs.items()}
    for name, part in encoder.named_modules():
        if not isinstance(part, SILENT):
            part.register_forward_hook(lambda *_, name=name: heard.add(name))
    for how, call in runs.items():
        heard.clear()
        torch.testing.assert_close(call(), plain[how], atol=2e-5, rtol=2e-5)
        for name in ("", "norm", "layers.0", *(
            f"layers.0.{child}" for child in (
                "attention", "norm1", "norm2", "linear1", "linear2", "attention.inner_attention",
                "attention.query_projection", "attention.out_projection",
            )
        )):  # fmt: skip
            assert name in heard, (how, name)


@pytest.mark.parametrize("feed_forward", ("mlp", "swiglu", "channel-mix", "gated-channel-mix"))
@torch.no_grad()
def test_weight_norm_by_hooks_runs_in_tarn_nn(feed_forward):
    torch.manual_seed(4)
    encoder = nn.Encoder(1, 8, 2, feed_forward=feed_forward).eval()
    plain, x = copy.deepcopy(encoder), torch.randn(2, 4, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for part in encoder.modules():
            if isinstance(part, torch.nn.Linear):
                torch.nn.utils.weight_norm(part)
                part.weight_g.mul_(1.5)
    for part in plain.modules():
        if isinstance(part, torch.nn.Linear):
            part.weight.mul_(1.5)
    torch.testing.assert_close(encoder(x), plain(x), atol=2e-5, rtol=2e-5)
    torch.testing.assert_close(encoder.prefill(x)[0], plain(x), atol=2e-5, rtol=2e-5)
    torch.testing.assert_close(steps(encoder, x, None), plain(x), atol=2e-5, rtol=2e-5)


@torch.no_grad()
def test_recurrent_encoders_run_hooks():
    settings = dict(n_layers=2, n_heads=2, query_dimensions=4, value_dimensions=4,
                    feed_forward_dimensions=12, attention_type="linear")  # fmt: skip
    encoder = RecurrentEncoderBuilder.from_kwargs(**settings).get().eval()
    heard = set()
    for name, part in encoder.named_modules():
        part.register_forward_hook(lambda *_, name=name: heard.add(name))
    names = {"", "layers.1", "layers.1.attention", "layers.1.attention.inner_attention"}
    for call in (lambda: encoder(torch.randn(3, 8)), lambda: encoder.prefill(torch.randn(3, 2, 8))):
        heard.clear()
        call()
        assert names <= heard


@torch.no_grad()
def test_the_methods_of_a_stack_run_its_own_hooks():
    settings = dict(n_layers=1, n_heads=2, query_dimensions=4, value_dimensions=4,
                    feed_forward_dimensions=12, attention_type="causal-linear")  # fmt: skip
    encoder, heard = TransformerEncoderBuilder.from_kwargs(**settings).get().eval(), []
    encoder.register_forward_hook(lambda *_: heard.append(1))
    encoder.prefill(torch.randn(3, 2, 8))
    encoder.step(torch.randn(3, 8))
    assert heard == [1, 1]


MIXERS = (
    "gdn",
    "mamba1",
    "mamba2",
    "kda",
    "rwkv6",
    "rwkv7",
    "gated-full",
    "short-conv",
    "rg-lru",
    "mlstm",
    "norm-linear",
)


def make_mixed(kind):
    torch.manual_seed(3)
    return models.LanguageModel(**SIZES, attention=kind, positions="none").eval()


@pytest.mark.parametrize("kind", MIXERS)
def test_hooks_of_mixers_run_and_those_of_their_weights_are_errors(kind, recording):
    model, heard = make_mixed(kind), []
    mixer = model.layers[0].attention
    plain = {how: call() for how, call in forms(model).items() if "generate" not in how}
    handle = mixer.register_forward_hook(lambda *_: heard.append(1))
    for how, call in forms(model).items():
        heard.clear()
        out = call()
        assert heard, how
        if how in plain:
            torch.testing.assert_close(out, plain[how], atol=2e-5, rtol=2e-5)
    handle.remove()

    def mine(*_):
        return None

    for name, child in mixer.named_children():
        for attach in ("register_forward_hook", "register_forward_pre_hook"):
            handle = getattr(child, attach)(mine)
            for call in forms(model).values():
                with pytest.raises(ValueError, match=f"{name}: want no hooks, .*got mine"):
                    call()
            handle.remove()


# Mixers that read the weights of all their maps.
ALL_READ = ("rwkv6", "rwkv7", "short-conv", "rg-lru", "mlstm")


@pytest.mark.parametrize("kind", MIXERS)
@torch.no_grad()
def test_other_modules_in_a_mixer_are_called_or_errors_and_parametrised_weights_run(kind):
    model, plain = make_mixed(kind), make_mixed(kind)
    for name, part in list(model.named_modules()):
        if isinstance(part, torch.nn.Linear) and "attention" in name:
            torch.nn.utils.parametrize.register_parametrization(part, "weight", Half())
            plain.get_submodule(name).weight.div_(2)
    runs, wanted = forms(model), forms(plain)
    for how in ("forward", "prefill", "step"):
        torch.testing.assert_close(runs[how](), wanted[how](), atol=2e-5, rtol=2e-5)
    other, doubled = make_mixed(kind), make_mixed(kind)
    for name in ("value_projection", "out_projection"):
        mixer = other.layers[0].attention
        setattr(mixer, name, Wrapped(getattr(mixer, name)))
        for weight in getattr(doubled.layers[0].attention, name).parameters():
            weight.mul_(2)
    runs, wanted = forms(other), forms(doubled)
    for how, call in runs.items():
        if kind in ALL_READ:
            with pytest.raises(TypeError, match="_projection: want a torch.nn.Linear, got Wrapped"):
                call()
        elif how in ("forward", "prefill", "step"):
            torch.testing.assert_close(call(), wanted[how](), atol=2e-5, rtol=2e-5)


class Half(torch.nn.Module):
    def forward(self, weight):
        return weight / 2


class Wrapped(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner, self.weight, self.bias = inner, inner.weight, inner.bias

    def forward(self, x):
        return 2 * self.inner(x)
