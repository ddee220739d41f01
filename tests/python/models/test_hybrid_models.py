"""Stacks of mixed layers, root mean square norms and gated feed-forward parts:
every layer is built from the configuration as it sees it."""

import dataclasses

import numpy as np
import pytest
import torch

import tarn
from tarn import masking, models, nn, recurrent, runtime
from tarn._passed_rows import PassedRows
from tarn.attention import AFTSimpleAttention, CausalLinearAttention, FullAttention, LocalAttention

SMALL = dict(vocab_size=256, d_model=24, n_layers=4, n_heads=3, d_ff=40, max_positions=512)
MODERN = dict(norm_kind="rms", feed_forward="swiglu")
GATED = (
    "retnet", "lightning", "mamba2", "gla", "hgrn2", "deltanet", "gdn", "kda", "rwkv6", "rwkv7",
    "gated-full", "mamba1", "short-conv", "rg-lru", "mlstm", "norm-linear",
)  # fmt: skip
FULL = ["linear", "full"]
AFT = ["linear", "aft-simple"]
OWN = [
    "linear",
    {"mixer": "linear", "feature_map": "rff"},
    {"mixer": "local", "local_context": 5},
]
SIDE_BY_SIDE = {
    "mixer": [
        {"mixer": "mamba1", "branch_factor": 0.5},
        {"mixer": "full", "window": 3, "n_heads": 2, "d_key": 8, "branch_factor": -2.0},
    ],
    "feed_forward": "relu2",
}
PATTERNS = [
    dict(layers=FULL),
    dict(layers=FULL, **MODERN),
    dict(layers=FULL, norm="post", **MODERN),
    dict(layers=AFT, **MODERN),
    dict(layers=AFT, norm_kind="rms"),
    dict(layers=AFT, norm="post", feed_forward="swiglu"),
    dict(layers=OWN, **MODERN),
    dict(layers=["full", {"mixer": "linear", "feature_map": "relu2", "denominator": "none"}]),
    dict(layers=["full", {"mixer": "linear", "feature_map": "favor", "stabilise": True}]),
    dict(layers=["full", "linear", "linear"], positions="rotary", **MODERN),
    dict(layers=FULL, positions="rotary", rotary_place="after"),
    dict(layers=["exact-topk", "aft-full", "linear"], topk=4),
    dict(layers=["linear", "full"], tied_head=True, dropout=0.1, **MODERN),
    dict(layers=["gdn", "gdn", "full"], **MODERN),
    dict(layers=["mamba2", {"mixer": "gdn", "conv_width": 2}, "linear"], norm="post"),
    dict(layers=["kda", {"mixer": "local", "local_context": 4}]),
    dict(layers=["retnet", "hgrn2", "lightning", "gla"], tied_head=True),
    dict(layers=["kda", "gated-full"], key_heads=1, norm="post"),
    dict(layers=["rwkv7", "linear", "full"], feed_forward="channel-mix"),
    dict(layers=[{"mixer": "linear", "n_heads": 2, "d_key": 6}, "linear"]),
    dict(layers=["linear", {"mixer": "linear", "d_ff": 24}], positions="none"),
    dict(layers=[{"mixer": "full", "n_heads": 6, "d_value": 4}, "full"], positions="rotary"),
    dict(layers=["mamba2+full", "full"], **MODERN),
    dict(attention="rwkv7", value_residual=True, feed_forward="channel-mix", input_norm=True),
    dict(layers=["full", "rwkv7+linear"], value_residual=True, input_norm=True, **MODERN),
    dict(layers=["full", "hgrn2", "hgrn2+linear"], learned_bounds=True),
    dict(layers=["gdn", "mamba1", "mamba2"], recurrent_in_bias=True, recurrent_out_bias=True),
    dict(
        layers=["linear+retnet+full"], positions="rotary", feed_forward="channel-mix", norm="post"
    ),
    dict(layers=[SIDE_BY_SIDE, "linear"], positions="rotary", norm="both"),
    dict(layers=["rwkv6", "local"], local_context=4, norm="post", feed_forward="channel-mix"),
    dict(layers=[{"mixer": "full", "window": 3}, "full", "linear"], positions="rotary"),
    dict(layers=["full", "local"], local_context=5, key_heads=1, head_norm="full", sinks=True),
    dict(attention="full", latent_width=7, shared_key_width=2, qkv_bias=False),
]


def words(keys):
    return "-".join(str(value) for value in keys.values())


@pytest.mark.parametrize("keys", PATTERNS, ids=words)
def test_forward_prefill_and_step_agree(keys):
    model = models.LanguageModel(**SMALL, **keys).eval()
    tokens = torch.randint(256, (3, 11))
    with torch.no_grad():
        wanted = model(tokens)
        first, state = model.prefill(tokens[:, :4])
        rest, state = model.prefill(tokens[:, 4:], state=state)
        stepped, rows = None, []
        for t in range(11):
            row, stepped = model.step(tokens[:, t], stepped)
            rows.append(row)
    assert wanted.std() > 0.05
    torch.testing.assert_close(torch.cat([first, rest], 1), wanted, rtol=0, atol=3e-5)
    torch.testing.assert_close(torch.stack(rows, 1), wanted, rtol=0, atol=3e-5)
    assert [part.steps.tolist() for part in stepped] == [[11, 11, 11]] * 4


def shapes_of(view, prefix):
    """Shapes of a layer's weights by a model of its view, or of its mixers' views."""
    plain = {
        name: value for name, value in view.items() if name not in ("branches", "reads_passed")
    }
    # The first layer that passes values on has the weights of one that does not.
    plain["value_residual"] = view.get("reads_passed", False)
    # And the first with learned bounds holds those of all, which is here layer 0.
    holds = view["learned_bounds"] and not view.get("reads_passed")
    like = "layers.0." if holds else prefix
    of_view = models.weight_shapes({**plain, "attention_dropout": 0.0})
    given = {
        prefix + name.removeprefix(like): shape
        for name, shape in of_view.items()
        if name.startswith(like)
    }
    if "branches" not in view:
        return given
    mixer = f"{prefix}attention."
    given = {name: shape for name, shape in given.items() if not name.startswith(mixer)}
    for number, branch in enumerate(view["branches"]):
        # Rotary positions need one mixer that rotates, not all of a layer.
        for name, shape in shapes_of({**branch, "positions": "none"}, prefix).items():
            if name.startswith(mixer):
                own = name.removeprefix(mixer)
                given[f"{mixer}branches.{number}.{own}"] = shape
    return given


@pytest.mark.parametrize("keys", PATTERNS, ids=words)
def test_a_view_holds_the_weights_that_the_file_has(keys):
    """The weights of layer i are those of a model all of whose layers are as its
    view, by the C++ table of shapes."""
    config = models.finish_config(**SMALL, **keys)
    shapes = models.weight_shapes(config)
    for index in range(config["n_layers"]):
        prefix = f"layers.{index}."
        view = models.layer_view(config, index)
        assert "layers" not in view
        assert view.keys() - {"branches", "reads_passed"} == config.keys() - {"layers"}
        wanted = {name: shape for name, shape in shapes.items() if name.startswith(prefix)}
        assert shapes_of(view, prefix) == wanted
    model = models.LanguageModel(config)
    assert {name: tuple(t.shape) for name, t in model.state_dict().items()} == shapes


def test_a_view_takes_the_options_of_its_entry():
    config = models.finish_config(**SMALL, layers=OWN, d_key=6)
    first, second, third, fourth = (models.layer_view(config, i) for i in range(4))
    assert first == fourth and first["feature_map"] == "elu1"
    assert (first["n_dims"], first["denominator"]) == (0, "exact")
    assert (second["n_dims"], second["denominator"]) == (6, "signed")
    assert (third["attention"], third["local_context"]) == ("local", 5)
    plain = models.finish_config(**SMALL, attention="full")
    assert models.layer_view(plain, 3) == plain
    model = models.LanguageModel(config)
    kinds = [type(layer.attention.inner_attention) for layer in model.layers]
    assert kinds == [CausalLinearAttention] * 2 + [LocalAttention, CausalLinearAttention]


# The kinds that the lean runtime runs: linear with maps that are pure functions, and full.
LEAN = [
    dict(layers=FULL),
    dict(layers=FULL, **MODERN),
    dict(layers=FULL, norm="post", **MODERN),
    dict(layers=["full", {"mixer": "linear", "feature_map": "relu2", "denominator": "none"}]),
    dict(layers=["full", "linear", "linear"], positions="rotary", **MODERN),
    dict(attention="linear", norm_kind="rms"),
    dict(attention="full", feed_forward="swiglu"),
    *(dict(attention=kind, **MODERN) for kind in GATED),
    dict(layers=["gdn", "gdn", "gdn", "full"], positions="rotary", **MODERN),
    dict(attention="retnet", positions="rotary", norm="post"),
    dict(layers=["gdn", "gated-full"], key_heads=1, positions="rotary", rotary_width=4, **MODERN),
    dict(attention="full", key_heads=1, head_norm="head", window=5, softcap=1.5, **MODERN),
    dict(
        attention="full",
        latent_width=7,
        shared_key_width=4,
        rotary_width=4,
        qkv_bias=False,
        positions="rotary",
        **MODERN,
    ),
    dict(feed_forward="channel-mix"),
    dict(attention="full", positions="rotary", norm="post", feed_forward="channel-mix"),
    dict(layers=["rwkv7", "rwkv6", "gdn", "full"], feed_forward="channel-mix"),
    dict(attention="mamba2", feed_forward="none"),
    dict(attention="mamba2+full", **MODERN),
    dict(attention="rwkv7", value_residual=True, feed_forward="channel-mix", input_norm=True),
    dict(layers=["full", "linear+rwkv7"], value_residual=True, input_norm=True, norm="both"),
    dict(layers=["linear+retnet+full", SIDE_BY_SIDE], positions="rotary", norm="both"),
    dict(attention="full", feed_forward="geglu", norm="post"),
    dict(feed_forward="moe", experts=4, d_expert=16, d_shared=8, shared_gate=True),
    dict(layers=[{"mixer": "gdn", "feed_forward": "moe"}, "full"], expert_part="geglu"),
    dict(feed_forward="moe", experts=4, router="biased-sigmoid", expert_part="relu2"),
    dict(
        layers=[
            {"mixer": "linear", "feed_forward": "none"},
            {"mixer": "gdn", "feed_forward": "relu2"},
            "full",
        ]
    ),
    dict(attention="local", local_context=5, **MODERN),
    dict(attention="local", local_context=1),
    dict(layers=[{"mixer": "local", "local_context": 8}, "linear"], positions="rotary", **MODERN),
]


@pytest.mark.parametrize("keys", LEAN, ids=words)
def test_runtime_gives_the_same_logits(keys, tmp_path):
    model = models.LanguageModel(**SMALL, **keys).eval()
    with torch.no_grad():
        for weight in model.parameters():  # norms too
            weight.add_(torch.randn_like(weight), alpha=0.1)
        for name, buffer in model.named_buffers():
            if name.endswith("router_bias"):
                buffer.normal_(0, 0.3)
    tarn.save_model(model, tmp_path / "model")
    tokens = torch.randint(256, (1, 37))
    with torch.no_grad():
        wanted = model(tokens)[0].numpy()
    lean = runtime.Model(tmp_path / "model")
    given = lean.score(lean.state(), tokens[0].numpy())
    assert np.abs(given - wanted).max() <= 1e-4


@pytest.mark.parametrize("context", (1, 2, 7, 8, 100))
def test_runtime_steps_local_attention_with_a_window_for_its_state(context, tmp_path):
    layers = [{"mixer": "local", "local_context": context}, "linear"]
    model = models.LanguageModel(**SMALL, layers=layers, positions="rotary").eval()
    tarn.save_model(model, tmp_path / "model")
    tokens = torch.randint(256, (1, 37))
    with torch.no_grad():
        wanted = model(tokens)[0].numpy()
    lean = runtime.Model(tmp_path / "model")
    state = lean.state()
    lean.prefill(state, tokens[0, :3].numpy())
    size = state.nbytes
    for place in range(3, 37):
        row = lean.step(state, int(tokens[0, place]))
        assert np.abs(row - wanted[place]).max() <= 1e-4
        assert state.nbytes == size


PARALLEL = dict(layers=["mamba2+full", SIDE_BY_SIDE], feed_forward="channel-mix")


def test_states_of_parallel_mixers_are_values(tmp_path):
    model = models.LanguageModel(**SMALL, **PARALLEL).eval()
    tokens = torch.randint(256, (3, 9))
    with torch.no_grad():
        wanted = model(tokens)
        _, state = model.prefill(tokens[:, :5])
        assert list(state[0].tensors)[:4] == ["0.S", "0.window", "1.keys", "1.values"]
        recurrent.save_state(state, tmp_path / "state")
        read = recurrent.load_state(tmp_path / "state")
        assert read == state
        rest, _ = model.prefill(tokens[:, 5:], state=recurrent.clone(read))
        torch.testing.assert_close(rest, wanted[:, 5:], rtol=0, atol=3e-5)
        turned = recurrent.reorder(state, [2, 0, 0])
        rest, _ = model.prefill(tokens[[2, 0, 0], 5:], state=turned)
        torch.testing.assert_close(rest, wanted[[2, 0, 0], 5:], rtol=0, atol=3e-5)
        fresh = recurrent.reset(turned, [1])
        rest, _ = model.prefill(tokens[[2, 1, 0], :4], state=fresh)
        torch.testing.assert_close(rest[1], wanted[1, :4], rtol=0, atol=3e-5)
    other = models.LanguageModel(**SMALL, layers=["full+mamba2", "full"]).eval()
    with pytest.raises(ValueError, match="state: want one of kind 'full\\+mamba2'"):
        other.prefill(tokens, state=state)


def test_parallel_mixers_of_tarn_nn_add_what_each_gives():
    torch.manual_seed(1)
    mixers = [
        nn.make_attention(24, 3, "mamba2", conv_width=2),
        nn.make_attention(24, 2, "full", window=3),
        nn.make_attention(24, 3, "linear"),
    ]
    factors = (1.0, -0.5, 2.0)
    sum_of = nn.ParallelMixer("mamba2+full+linear", mixers, factors).eval()
    x = torch.randn(2, 7, 24)
    kept = torch.tensor([[True] * 7, [True] * 4 + [False] * 3])
    with torch.no_grad():
        wanted = sum(f * mixer(x) for f, mixer in zip(factors, mixers, strict=True))
        torch.testing.assert_close(sum_of(x), wanted, rtol=0, atol=1e-6)
        masked = sum_of(x, key_mask=kept)
        torch.testing.assert_close(masked[1, :4], wanted[1, :4], rtol=0, atol=1e-6)
        first, state = sum_of.prefill(x[:, :3])
        rest, state = sum_of.prefill(x[:, 3:6], state)
        last, state = sum_of.step(x[:, 6], state)
    torch.testing.assert_close(
        torch.cat([first, rest, last[:, None]], 1), wanted, rtol=0, atol=1e-5
    )
    made = nn.make_attention(24, 3, "mamba2+full")
    assert [type(one).__name__ for one in made.branches] == ["GatedMixer", "Attention"]
    layer = nn.EncoderLayer(24, 3, mixer="gdn+linear").eval()
    with torch.no_grad():
        wanted = layer(x)
        first, state = layer.prefill(x[:, :4])
        rest, _ = layer.prefill(x[:, 4:], state)
    torch.testing.assert_close(torch.cat([first, rest], 1), wanted, rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="ParallelMixer of mixers that take others"):
        nn.make_attention(24, 3, "mamba2+full", conv_width=2)
    with pytest.raises(ValueError, match="kind: want 2 or 3 names"):
        nn.make_attention(24, 3, "full+full+full+full")
    with pytest.raises(ValueError, match="factors: want 3, got 1"):
        nn.ParallelMixer("mamba2+full+linear", mixers, [1.0])
    with pytest.raises(ValueError, match="branches: want 2, got 3"):
        nn.ParallelMixer("mamba2+full", mixers)
    with pytest.raises(ValueError, match="key_mask: want None with other masks"):
        sum_of(x, key_lengths=masking.LengthMask(torch.tensor([7, 4])), key_mask=kept)
    with pytest.raises(TypeError, match="state: want None or a state"):
        sum_of.prefill(x, [x, x])
    with pytest.raises(ValueError, match="keys, values: want x itself"):
        sum_of(x, x + 1, x)


@pytest.mark.parametrize("kind", ("gla", "rwkv7", "mamba1", "gla+full", "rwkv7+linear"))
def test_hooks_in_layers_of_tarn_nn_change_nothing(kind):
    torch.manual_seed(1)
    layer, heard = nn.EncoderLayer(16, 2, mixer=kind).eval(), []
    x, kept = torch.randn(2, 5, 16), torch.ones(2, 5, dtype=torch.bool)
    kept[1, 3:] = False
    with torch.no_grad():
        wanted = layer(x), layer(x, kept)
        hooked = getattr(layer.attention, "branches", [layer.attention])[0]
        hooked.register_forward_hook(lambda *_: heard.append(1))
        given = layer(x), layer(x, kept)
    assert len(heard) == 2
    for one, other in zip(given, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def test_parallel_mixers_draw_different_features():
    model = models.LanguageModel(**SMALL, attention="linear+linear", feature_map="favor")
    omegas = [value for name, value in model.state_dict().items() if name.endswith("omega")]
    assert len(omegas) == 8
    assert not any(torch.equal(one, omegas[0]) for one in omegas[1:])


def test_damaged_states_of_parallel_mixers_are_refused():
    model = models.LanguageModel(**SMALL, **PARALLEL).eval()
    with torch.no_grad():
        _, state = model.prefill(torch.randint(256, (1, 3)))
    for facts in ({}, {"branches": []}, {"branches": [{"kind": "full"}] * 2}):
        broken = [dataclasses.replace(part, facts=facts) for part in state]
        with pytest.raises(ValueError, match="state: branches: want"):
            model.step(torch.zeros(1, dtype=torch.int64), broken)


def test_values_of_the_first_layer_follow_lengths_and_need_a_stack():
    keys = dict(attention="rwkv7", value_residual=True, input_norm=True)
    model = models.LanguageModel(**SMALL, **keys).eval()
    tokens = torch.randint(256, (2, 9))
    with torch.no_grad():
        wanted = model(tokens)
        _, state = model.prefill(tokens[:, :6], lengths=[6, 3])
        rest = torch.stack([tokens[0, 6:9], tokens[1, 3:6]])
        given, _ = model.prefill(rest, state=state)
        torch.testing.assert_close(given[0], wanted[0, 6:], rtol=0, atol=3e-5)
        torch.testing.assert_close(given[1], wanted[1, 3:6], rtol=0, atol=3e-5)
        x = torch.randn(2, 5, 24)
        with pytest.raises(ValueError, match="passed: want what an earlier layer makes, got none"):
            model.layers[1].attention(x)
        other = PassedRows()
        other.rows = torch.randn(2, 4, 24)
        with pytest.raises(ValueError, match="passed: want \\[2, 5, 24\\]"):
            model.layers[1].attention(x, passed=other)
    with pytest.raises(ValueError, match="passes no rows to later layers"):
        nn.make_attention(24, 3, "rwkv7", value_residual=True)


def test_learned_bounds_are_of_the_whole_stack():
    small = dict(SMALL, attention="hgrn2", n_layers=3)
    model = models.LanguageModel(**small, learned_bounds=True)
    first, *later = (layer.attention for layer in model.layers)
    assert (first.bound_logits == 0).all()
    fixed = models.LanguageModel(**small)
    weights = {name: w for name, w in model.state_dict().items() if "bound_logits" not in name}
    missing, unexpected = fixed.load_state_dict(weights, strict=False)
    assert all(name.endswith("lower_bound") for name in missing) and not unexpected
    tokens = torch.randint(256, (2, 9))
    torch.testing.assert_close(model(tokens), fixed(tokens), rtol=0, atol=1e-5)
    torch.nn.init.normal_(first.bound_logits)
    shares = first.bound_logits.detach().softmax(0)
    for layer, block in enumerate(fixed.layers):
        block.attention.lower_bound.copy_(shares[1 : layer + 1].sum(0))
    torch.testing.assert_close(model(tokens), fixed(tokens), rtol=0, atol=1e-5)
    model(tokens).square().mean().backward()
    assert (first.bound_logits.grad.abs().sum(1) > 0).all()
    with pytest.raises(ValueError, match="passed: want what an earlier layer makes, got none"):
        later[0](torch.randn(2, 5, 24))


@pytest.mark.parametrize("keys", [PATTERNS[1], PATTERNS[3], PATTERNS[6], PARALLEL], ids=words)
def test_directory_round_trip_keeps_every_bit(keys, tmp_path):
    model = models.LanguageModel(**SMALL, **keys).eval()
    tarn.save_model(model, tmp_path / "a")
    again = tarn.load_model(tmp_path / "a")
    assert again.config == model.config
    tokens = torch.randint(256, (2, 9))
    assert torch.equal(again(tokens), model(tokens))
    tarn.save_model(again, tmp_path / "b")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_one_state_holds_recurrent_and_cached_layers(tmp_path):
    model = models.LanguageModel(**SMALL, layers=FULL, **MODERN).eval()
    tokens = torch.randint(256, (2, 9))
    with torch.no_grad():
        _, state = model.prefill(tokens[:, :5])
        assert [part.kind for part in state] == FULL * 2
        recurrent.save_state(state, tmp_path / "state")
        kept = recurrent.load_state(tmp_path / "state")
        assert kept == state
        swapped = recurrent.reorder(kept, [1, 0])
        wanted, _ = model.step(tokens[:, 5], state)
        given, _ = model.step(tokens[:, 5].flip(0), swapped)
    torch.testing.assert_close(given.flip(0), wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("attention", ["linear", "full", "rwkv7", "gdn", "rwkv6"])
def test_a_channel_mix_carries_its_row(attention, tmp_path):
    """The row joins the state of the layer: it is saved, reordered, reset and asked for."""
    part = "gated-channel-mix" if attention == "rwkv6" else "channel-mix"
    keys = dict(attention=attention, feed_forward=part)
    model = models.LanguageModel(**SMALL, **keys).eval()
    tokens = torch.randint(256, (3, 9))
    with torch.no_grad():
        wanted = model(tokens)
        _, state = model.prefill(tokens[:, :5], torch.tensor([5, 2, 0]))
        assert all(part["channel_shift"].shape == (3, 24) for part in state)
        recurrent.save_state(state, tmp_path / "state")
        state = recurrent.reorder(recurrent.load_state(tmp_path / "state"), [2, 1, 0])
        given, _ = model.step(tokens[[2, 1, 0], [0, 2, 5]], state)
        torch.testing.assert_close(given, wanted[[2, 1, 0], [0, 2, 5]], rtol=0, atol=3e-5)
        again, _ = model.step(tokens[:, 0], recurrent.reset(state, [0, 1, 2]))
        torch.testing.assert_close(again, wanted[:, 0], rtol=0, atol=3e-5)
        other = models.LanguageModel(**SMALL, attention=attention).eval()
        _, without = other.prefill(tokens)
    with pytest.raises(ValueError, match=r"channel_shift: want \[3, 24\], got none"):
        model.step(tokens[:, 0], without)


def test_recurrent_layers_mix_channels_too():
    layers, attention = tarn.transformers, recurrent.attention
    whole = layers.TransformerEncoderLayer(
        tarn.attention.AttentionLayer(CausalLinearAttention(4), 8, 2), 8, feed_forward="channel-mix"
    ).eval()
    twin = recurrent.transformers.RecurrentTransformerEncoderLayer(
        attention.RecurrentAttentionLayer(attention.RecurrentLinearAttention(4), 8, 2),
        8,
        feed_forward="channel-mix",
    ).eval()
    twin.load_state_dict(whole.state_dict())
    x, state, rows = torch.randn(3, 7, 8), None, []
    wanted = whole(x, attn_mask=tarn.masking.TriangularCausalMask(7))
    for t in range(7):
        row, state = twin(x[:, t], state)
        rows.append(row)
    torch.testing.assert_close(torch.stack(rows, 1), wanted, rtol=0, atol=3e-6)
    first, state = twin.prefill(x[:, :4])
    rest, state = twin.prefill(x[:, 4:], state=state)
    torch.testing.assert_close(torch.cat([first, rest], 1), wanted, rtol=0, atol=3e-6)
    S, z = state  # still unpacks as fast-transformers' pair
    assert S.shape == (3, 2, 4, 4) and z.shape == (3, 2, 4)
    with pytest.raises(TypeError, match="state: want a state that this layer returned, got list"):
        twin(x[:, 0], [S, z])


def test_a_channel_mix_begins_as_the_trainers():
    encoder = tarn.nn.Encoder(3, 12, 2, feed_forward="channel-mix")
    model = models.LanguageModel(d_model=12, n_layers=3, n_heads=2, feed_forward="channel-mix")
    channel = torch.arange(12) / 12
    for layers in (encoder.layers, model.layers):
        for index, layer in enumerate(layers):
            wanted = 1 - channel ** ((1 - index / 3) ** 4)
            torch.testing.assert_close(layer.token_shift.detach(), wanted)


def test_padding_of_a_channel_mix_may_be_anything():
    layer = tarn.nn.EncoderLayer(8, 2, feed_forward="channel-mix").eval()
    x = torch.randn(2, 10, 8)
    kept = torch.arange(10) < torch.tensor([7, 4])[:, None]
    wanted = layer(x)
    padded = torch.where(kept[..., None], x, torch.nan)
    for given in (layer(padded, kept), layer(padded.roll(3, 1), kept.roll(3, 1)).roll(-3, 1)):
        torch.testing.assert_close(given[kept], wanted[kept], rtol=0, atol=1e-6)
    filled, state = layer.prefill(padded, lengths=[7, 4])
    torch.testing.assert_close(filled[kept], wanted[kept], rtol=0, atol=1e-6)
    assert all(tensor.isfinite().all() for tensor in state.tensors.values())


@pytest.mark.parametrize("layers", [FULL, ["linear", "conditional-full"]], ids=str)
def test_classifiers_and_frames_mix_layers(layers):
    model = models.Classifier(**SMALL, **MODERN, layers=layers, n_classes=3).eval()
    kinds = [type(layer.attention.inner_attention) for layer in model.layers]
    assert kinds[0] is not kinds[1] and kinds[:2] == kinds[2:]
    tokens, lengths = torch.randint(256, (2, 9)), torch.tensor([9, 5])
    wanted = model(tokens, lengths)
    other = tokens.clone()
    other[1, 5:] = 7
    torch.testing.assert_close(model(other, lengths), wanted, rtol=0, atol=1e-6)
    torch.testing.assert_close(model(tokens[1:, :5])[0], wanted[1], rtol=0, atol=2e-5)
    frames = models.FrameClassifier(**SMALL, layers=layers, n_classes=3, input_dim=2)
    assert frames(torch.randn(2, 4, 2)).shape == (2, 4, 3)


@pytest.mark.parametrize("layers", [FULL, AFT], ids=str)
def test_seq2seq_mixes_the_layers_of_both_stacks(layers):
    model = models.Seq2Seq(**SMALL, **MODERN, layers=layers, n_decoder_layers=3).eval()
    kinds = [type(layer.self_attention.inner_attention) for layer in model.decoder.layers]
    mixed = {"full": FullAttention, "aft-simple": AFTSimpleAttention}[layers[1]]
    assert kinds == [CausalLinearAttention, mixed, CausalLinearAttention]
    assert all(
        isinstance(layer.cross_attention.inner_attention, FullAttention)
        for layer in model.decoder.layers
    )
    source, target = torch.randint(256, (2, 7)), torch.randint(256, (2, 6))
    lengths = torch.tensor([7, 4])
    wanted = model(source, target, lengths)
    state = model.initial_state(source, lengths)
    first, state = model.prefill(target[:, :2], state)
    rows = [first]
    for t in range(2, 6):
        row, state = model.step(target[:, t], state)
        rows.append(row[:, None])
    torch.testing.assert_close(torch.cat(rows, 1), wanted, rtol=0, atol=3e-5)


def test_gradients_reach_every_weight():
    model = models.LanguageModel(**SMALL, layers=AFT, **MODERN)
    tokens = torch.randint(256, (2, 9))
    model(tokens).logsumexp(-1).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert all(layer.linear3.weight.grad.abs().max() > 0 for layer in model.layers)


def test_balance_loss_of_a_mixture():
    model = models.LanguageModel(**SMALL, feed_forward="moe", experts=4, balance_loss=0.5)
    tokens = torch.randint(256, (2, 9))
    model(tokens)
    loss = tarn.nn.balance_loss(model)
    logits = []
    hooks = [
        layer.router.register_forward_hook(lambda m, x, y: logits.append(y))
        for layer in model.layers
    ]
    model(tokens)
    wanted = sum(
        0.5 * tarn.ops.load_balancing_loss(z, tarn.ops.route_tokens(z, 2)[1]) for z in logits
    )
    for hook in hooks:
        hook.remove()
    torch.testing.assert_close(loss, wanted)
    loss.backward()
    assert all(layer.router.weight.grad.abs().max() > 0 for layer in model.layers)
    tarn.nn.balance_loss(model)
    assert tarn.nn.balance_loss(model) == 0  # forgotten
    model.eval()(tokens)
    assert tarn.nn.balance_loss(model) == 0


def test_kinds_of_parts_are_named():
    layer = tarn.transformers.TransformerEncoderLayer
    with pytest.raises(ValueError, match="norm_kind: want one of 'layer', 'rms', got 'group'"):
        layer(torch.nn.Identity(), 8, norm_kind="group")
    with pytest.raises(ValueError, match="feed_forward: want one of .*'swiglu'.*, got 'glu'"):
        layer(torch.nn.Identity(), 8, feed_forward="glu")
    decoder, parts = tarn.transformers.TransformerDecoderLayer, [torch.nn.Identity()] * 2
    with pytest.raises(ValueError, match="feed_forward: want a part (that|of maps)"):
        decoder(*parts, 8, feed_forward="channel-mix")
    for make in (models.Seq2Seq, lambda **keys: models.Classifier(**keys, n_classes=2)):
        with pytest.raises(ValueError, match="feed_forward: want mlp, swiglu, .* for arch"):
            make(**SMALL, feed_forward="channel-mix")
    with pytest.raises(ValueError, match="layers: want mixers out of linear, .*got 'softmax'"):
        models.LanguageModel(**SMALL, layers=["linear", "softmax"])
