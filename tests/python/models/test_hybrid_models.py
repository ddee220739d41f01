"""Stacks of mixed layers, root mean square norms and gated feed-forward parts:
every layer is built from the configuration as it sees it."""

import numpy as np
import pytest
import torch

import tarn
from tarn import models, recurrent, runtime
from tarn.attention import AFTSimpleAttention, CausalLinearAttention, FullAttention, LocalAttention

SMALL = dict(vocab_size=256, d_model=24, n_layers=4, n_heads=3, d_ff=40, max_positions=32)
MODERN = dict(norm_kind="rms", feed_forward="swiglu")
GATED = (
    "retnet", "lightning", "mamba2", "gla", "hgrn2", "deltanet", "gdn", "kda", "rwkv6", "rwkv7",
    "gated-full",
)  # fmt: skip
FULL = ["linear", "full"]
AFT = ["linear", "aft-simple"]
OWN = [
    "linear",
    {"mixer": "linear", "feature_map": "rff"},
    {"mixer": "local", "local_context": 5},
]
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


@pytest.mark.parametrize("keys", PATTERNS, ids=words)
def test_a_view_holds_the_weights_that_the_file_has(keys):
    """The weights of layer i are those of a model all of whose layers are as its
    view, by the C++ table of shapes."""
    config = models.finish_config(**SMALL, **keys)
    shapes = models.weight_shapes(config)
    for index in range(config["n_layers"]):
        prefix = f"layers.{index}."
        view = models.layer_view(config, index)
        assert "layers" not in view and view.keys() == config.keys() - {"layers"}
        of_view = models.weight_shapes({**view, "attention_dropout": 0.0})
        wanted = {name: shape for name, shape in shapes.items() if name.startswith(prefix)}
        given = {name: shape for name, shape in of_view.items() if name.startswith(prefix)}
        assert given == wanted
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
]


@pytest.mark.parametrize("keys", LEAN, ids=words)
def test_runtime_gives_the_same_logits(keys, tmp_path):
    model = models.LanguageModel(**SMALL, **keys).eval()
    with torch.no_grad():
        for weight in model.parameters():  # norms too
            weight.add_(torch.randn_like(weight), alpha=0.1)
    tarn.save_model(model, tmp_path / "model")
    tokens = torch.randint(256, (1, 37))
    with torch.no_grad():
        wanted = model(tokens)[0].numpy()
    lean = runtime.Model(tmp_path / "model")
    given = lean.score(lean.state(), tokens[0].numpy())
    assert np.abs(given - wanted).max() <= 1e-4


@pytest.mark.parametrize("keys", [PATTERNS[1], PATTERNS[3], PATTERNS[6]], ids=words)
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


def test_kinds_of_parts_are_named():
    layer = tarn.transformers.TransformerEncoderLayer
    with pytest.raises(ValueError, match="norm_kind: want one of 'layer', 'rms', got 'group'"):
        layer(torch.nn.Identity(), 8, norm_kind="group")
    with pytest.raises(ValueError, match="feed_forward: want one of 'mlp', 'swiglu', got 'glu'"):
        layer(torch.nn.Identity(), 8, feed_forward="glu")
    with pytest.raises(ValueError, match="layers: want mixers out of linear, .*got 'softmax'"):
        models.LanguageModel(**SMALL, layers=["linear", "softmax"])
