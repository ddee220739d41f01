"""Whole models in Python: forms agree, padding has no influence, directories go
both ways between Python, the trainer and the runtime."""

import json
import subprocess

import numpy as np
import pytest
import torch
from programs import BUILD

import tarn
from tarn import models, runtime

SMALL = dict(vocab_size=256, d_model=24, n_layers=2, n_heads=3, d_ff=40, max_positions=512)
DECODERS = [
    *(dict(feature_map=name) for name in ("elu1", "relu", "relu2", "softplus", "poly2")),
    *(dict(feature_map="favor", stabilise=stabilise) for stabilise in (False, True)),
    dict(feature_map="rff"),
    dict(denominator="compat", eps=1e-3),
    dict(attention="full", norm="post", activation="relu"),
    dict(attention="local", local_context=5),
    dict(attention="exact-topk", topk=4),
    dict(attention="aft-full", max_sequence_length=32, aft_parameterization=4),
    dict(attention="aft-simple"),
    dict(attention="gdn", norm_kind="rms", feed_forward="swiglu"),
    dict(attention="mamba2", tied_head=True),
    dict(positions="sinusoidal"),
    dict(positions="sinusoidal", position_combine="concat"),
    dict(positions="rotary"),
    dict(positions="rotary", attention="full"),
    *(
        dict(positions="rotary", rotary_place="after", feature_map=name, denominator=how)
        for name, how in (("elu1", "exact"), ("relu", "compat"), ("relu2", "none"))
    ),
    dict(positions="none", tied_head=True, final_norm=False),
]
IDS = ["-".join(str(value) for value in keys.values()) for keys in DECODERS]
# The kinds that the lean runtime runs: linear with maps that are pure functions, and full.
LEAN = [
    keys
    for keys in DECODERS
    if keys.get("attention", "linear") in ("linear", "full", "gdn", "mamba2")
    and keys.get("feature_map", "elu1") in ("elu1", "relu", "relu2", "softplus", "poly2")
]


def tokens_of(batch, seq_len, vocab=256):
    return torch.randint(vocab, (batch, seq_len))


@pytest.mark.parametrize("keys", DECODERS, ids=IDS)
def test_forward_prefill_and_step_agree(keys):
    model = models.LanguageModel(**SMALL, **keys).eval()
    tokens = tokens_of(3, 11)
    wanted = model(tokens)
    assert wanted.shape == (3, 11, 256)
    # The features of rff have both signs, so that a denominator may be small: each form by
    # itself is as far from float64 as the bound of the others.
    close = 1e-4 if keys.get("feature_map") == "rff" else 3e-5
    filled, state = model.prefill(tokens[:, :4])
    rest, state = model.prefill(tokens[:, 4:], state=state)
    torch.testing.assert_close(torch.cat([filled, rest], 1), wanted, rtol=0, atol=close)
    state, rows = None, []
    for t in range(11):
        row, state = model.step(tokens[:, t], state)
        rows.append(row)
    torch.testing.assert_close(torch.stack(rows, 1), wanted, rtol=0, atol=close)
    # The weights have the names and shapes of the model file.
    shapes = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    assert shapes == models.weight_shapes(model.config)


@pytest.mark.parametrize("keys", LEAN, ids=["-".join(str(v) for v in k.values()) for k in LEAN])
def test_runtime_gives_the_same_logits(keys, tmp_path):
    model = models.LanguageModel(**SMALL, **keys).eval()
    tarn.save_model(model, tmp_path / "model")
    tokens = tokens_of(1, 37)
    with torch.no_grad():
        wanted = model(tokens)[0].numpy()
    lean = runtime.Model(tmp_path / "model")
    given = lean.score(lean.state(), tokens[0].numpy())
    assert np.abs(given - wanted).max() <= 1e-4


def test_directory_round_trip_keeps_every_bit(tmp_path):
    model = models.LanguageModel(**SMALL)
    tarn.save_model(model, tmp_path / "a")
    again = tarn.load_model(tmp_path / "a")
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])
    tarn.save_model(again, tmp_path / "b")
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_trained_in_python_generates_at_the_terminal(tmp_path):
    """A model that learned one sentence says it under `tarn generate`."""
    sentence = b"the quick brown fox jumps over the lazy dog.\n"
    data = torch.tensor(list(sentence * 3))[None]
    model = models.LanguageModel(**{**SMALL, "d_model": 48, "d_ff": 96, "max_positions": 256})
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    for _ in range(150):
        loss = torch.nn.functional.cross_entropy(model(data[:, :-1])[0], data[0, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.1
    tarn.save_model(model, tmp_path / "model")
    done = subprocess.run(
        [BUILD / "tarn", "generate", tmp_path / "model", "--prompt", sentence[:10].decode()]
        + ["--temperature", "0", "--max-tokens", "34"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert sentence.decode()[10:40] in done.stdout
    out = models.generate(model.eval(), data[:, :10], 20, temperature=0)
    assert bytes(out[0].tolist()) == sentence[10:30]


def test_model_of_the_trainer_loads(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("so it goes, and so it went. " * 200)
    subprocess.run(
        [BUILD / "tarn-train", "--data", text, "--out", tmp_path / "model", "--steps", "3"]
        + ["--d-model", "32", "--n-layers", "2", "--n-heads", "2", "--seq-len", "32"]
        + ["--batch", "2", "--warmup", "1", "--quiet"],
        check=True,
        capture_output=True,
    )
    model = tarn.load_model(tmp_path / "model")
    tokens = torch.tensor([list(b"so it goes")])
    lean = runtime.Model(tmp_path / "model")
    wanted = lean.score(lean.state(), tokens[0].numpy())
    with torch.no_grad():
        assert np.abs(model(tokens)[0].numpy() - wanted).max() <= 1e-4


def trained_on_pairs(folder, arch):
    """A model of the trainer after a few steps on lines "a TAB b"."""
    data = folder / "pairs.tsv"
    lines = {"encoder": "{label}\t{text}\n", "seq2seq": "{text}\t{turned}\n"}
    words = [f"word {i} of {i * i % 97}" for i in range(120)]
    data.write_text(
        "".join(
            lines[arch].format(label="even" if i % 2 else "odd", text=word, turned=word[::-1])
            for i, word in enumerate(words)
        )
    )
    subprocess.run(
        [BUILD / "tarn-train", "--arch", arch, "--data", data, "--out", folder / "model"]
        + ["--steps", "4", "--d-model", "32", "--n-layers", "2", "--n-heads", "2"]
        + ["--seq-len", "32", "--batch", "4", "--warmup", "1", "--quiet"],
        check=True,
        capture_output=True,
    )
    return tarn.load_model(folder / "model"), runtime.Model(folder / "model"), words[:5]


def test_classifier_of_the_trainer_loads(tmp_path):
    model, lean, texts = trained_on_pairs(tmp_path, "encoder")
    assert isinstance(model, models.Classifier) and model.labels == lean.labels == ["even", "odd"]
    wanted = lean.classify(texts)
    tokens = [torch.tensor(lean.encode(text)) for text in texts]
    lengths = torch.tensor([len(row) for row in tokens])
    padded = torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True)
    with torch.no_grad():
        given = model(padded, lengths).numpy()
    assert given.shape == wanted.shape == (5, 2)
    assert np.abs(given - wanted).max() <= 1e-4


def test_seq2seq_of_the_trainer_loads(tmp_path):
    model, lean, texts = trained_on_pairs(tmp_path, "seq2seq")
    assert isinstance(model, models.Seq2Seq)
    for text in texts:
        source, target = lean.encode(text), lean.encode("\n" + text[::-1])
        state = lean.encode_source(text)
        wanted = np.stack([lean.step(state, token) for token in target])
        with torch.no_grad():
            given = model(torch.tensor([source]), torch.tensor([target]))[0].numpy()
        assert given.shape == wanted.shape
        assert np.abs(given - wanted).max() <= 1e-4


@pytest.mark.parametrize(
    "attention", ["linear", "full", "local", "clustered", "reformer", "aft-simple"]
)
def test_classifier_ignores_padding(attention, tmp_path):
    keys = dict(local_context=5) if attention == "local" else {}
    model = models.Classifier(
        **SMALL, **keys, attention=attention, n_classes=3, labels=["a", "b", "c"], clusters=4
    ).eval()
    tokens = tokens_of(2, 9)
    lengths = torch.tensor([9, 5])
    wanted = model(tokens, lengths)
    other = tokens.clone()
    other[1, 5:] = 7
    torch.testing.assert_close(model(other, lengths), wanted, rtol=0, atol=1e-6)
    alone = model(tokens[1:, :5])
    torch.testing.assert_close(alone[0], wanted[1], rtol=0, atol=2e-5)
    tarn.save_model(model, tmp_path / "model")
    again = tarn.load_model(tmp_path / "model")
    assert again.labels == ["a", "b", "c"]
    assert torch.equal(again(tokens, lengths), wanted)


@pytest.mark.parametrize(
    "arch, keys", [("rnn", {}), ("lstm", {}), ("lstm", {"bidirectional": True}), ("cnn", {})]
)
@pytest.mark.parametrize("task", ["lm", "classify"])
def test_earlier_models(arch, keys, task, tmp_path):
    if keys and task == "lm":
        pytest.skip("a bidirectional model sees what it predicts")
    classes = {"n_classes": 4} if task == "classify" else {}
    model = models.make_model(arch=arch, task=task, **SMALL, **keys, **classes).eval()
    tokens = tokens_of(2, 9)
    lengths = torch.tensor([9, 5])
    out = model(tokens, lengths)
    other = tokens.clone()
    other[1, 5:] = 3
    padded = model(other, lengths)
    if task == "classify":
        torch.testing.assert_close(padded, out, rtol=0, atol=1e-6)
    else:  # causal: what comes later has no influence either
        torch.testing.assert_close(padded[1, :5], out[1, :5], rtol=0, atol=1e-6)
        later = tokens.clone()
        later[:, 6:] = 1
        torch.testing.assert_close(model(later)[:, :6], model(tokens)[:, :6], rtol=0, atol=1e-6)
    tarn.save_model(model, tmp_path / "m")
    assert torch.equal(tarn.load_model(tmp_path / "m")(tokens, lengths), out)


@pytest.mark.parametrize("attention", ["linear", "full"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_seq2seq_forms_agree_and_beam_one_is_greedy(attention, norm):
    model = models.Seq2Seq(**SMALL, attention=attention, norm=norm).eval()
    source, target = tokens_of(2, 7), tokens_of(2, 6)
    lengths = torch.tensor([7, 4])
    wanted = model(source, target, lengths)
    state = model.initial_state(source, lengths)
    first, state = model.prefill(target[:, :2], state)
    rows = [first]
    for t in range(2, 6):
        row, state = model.step(target[:, t], state)
        rows.append(row[:, None])
    torch.testing.assert_close(torch.cat(rows, 1), wanted, rtol=0, atol=3e-5)
    written = models.greedy(model, source, lengths, end=10, max_tokens=6)
    for row in range(2):
        best = models.beam_search(model, source[row, : lengths[row]], end=10, beam=1, max_tokens=6)
        assert best[0].tokens == written[row]


def test_beam_search_finds_the_best_of_all():
    """It is compared with every target of up to three tokens of a vocabulary of five."""
    model = models.Seq2Seq(**{**SMALL, "vocab_size": 5}).eval()
    source = tokens_of(1, 4, 5)[0]
    end, scores = 0, {}
    with torch.no_grad():

        def visit(written):
            inputs = torch.tensor([[end, *written]])
            chances = torch.log_softmax(model(source[None], inputs)[0].double(), -1)
            total = sum(float(chances[i, t]) for i, t in enumerate(written))
            scores[tuple(written)] = total + float(chances[len(written), end])
            if len(written) < 3:
                for token in range(1, 5):
                    visit([*written, token])

        visit([])
    best = max(scores, key=scores.__getitem__)
    found = models.beam_search(model, source, end=end, beam=100, max_tokens=4, length_penalty=0.0)
    assert tuple(found[0].tokens) == best
    assert abs(found[0].score - scores[best]) < 1e-5


def test_refusals_name_the_key(tmp_path):
    with pytest.raises(ValueError, match="d_model"):
        models.LanguageModel(d_model=0)
    with pytest.raises(ValueError, match="arch"):
        models.LanguageModel(arch="cnn")
    with pytest.raises(ValueError, match="no_such_key"):
        models.finish_config(no_such_key=1)
    with pytest.raises(ValueError, match="save_model"):
        tarn.save_model(torch.nn.Linear(2, 2), tmp_path / "x")
    model = models.LanguageModel(**SMALL)
    model.layers[0].linear1 = torch.nn.Linear(24, 41)
    with pytest.raises(ValueError, match="linear1"):
        tarn.save_model(model, tmp_path / "x")
    assert not (tmp_path / "x" / "config.json").exists()
    good = tmp_path / "good"
    tarn.save_model(models.LanguageModel(**SMALL), good)
    config = json.loads((good / "config.json").read_text())
    config["feed_forward"]["d_ff"] = 41
    (good / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="linear1"):
        tarn.load_model(good)
    (good / "config.json").write_text("{")
    with pytest.raises(ValueError, match="config.json"):
        tarn.load_model(good)
    with pytest.raises(OSError):
        tarn.load_model(tmp_path / "nowhere")


def test_lora_style_projection_reaches_the_steps():
    """A projection replaced in the stack is the one the steps use."""
    model = models.LanguageModel(**SMALL).eval()
    layer = model.layers[0].attention

    class Lora(torch.nn.Module):
        def __init__(self, base):
            super().__init__()
            self.base = base
            self.down = torch.nn.Linear(24, 2, bias=False)
            self.up = torch.nn.Linear(2, 24, bias=False)

        def forward(self, x):
            return self.base(x) + self.up(self.down(x))

    tokens = tokens_of(1, 5)
    before = model(tokens)
    layer.query_projection = Lora(layer.query_projection)
    wanted = model(tokens)
    assert not torch.allclose(before, wanted)
    torch.testing.assert_close(model.prefill(tokens)[0], wanted, rtol=0, atol=3e-5)


FRAMES = dict(task="ctc", n_classes=5, input_dim=7)
FRAME_MODELS = [
    dict(arch="encoder"),
    dict(arch="encoder", attention="full", norm="post"),
    dict(arch="encoder", attention="reformer"),
    dict(arch="encoder", positions="sinusoidal", position_combine="concat"),
    dict(arch="lstm"),
    dict(arch="lstm", bidirectional=True),
]


@pytest.mark.parametrize(
    "keys", FRAME_MODELS, ids=["-".join(map(str, k.values())) for k in FRAME_MODELS]
)
def test_frames_are_labelled_whatever_the_padding(keys, tmp_path):
    model = models.make_model(**SMALL, **FRAMES, **keys).eval()
    frames = torch.randn(3, 9, 7)
    lengths = torch.tensor([9, 5, 0])
    out = model(frames, lengths)
    assert out.shape == (3, 9, 5)
    other = frames.clone()
    other[1, 5:], other[2] = torch.nan, torch.inf
    padded = model(other, lengths)
    for row, length in enumerate(lengths):
        assert torch.equal(padded[row, :length], out[row, :length])
    padded[:2, :5].sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    alone = model(frames[1:2, :5])
    if keys.get("attention") != "reformer":  # whose hashes depend on the size
        torch.testing.assert_close(alone[0], out[1, :5], rtol=0, atol=2e-5)
    assert model(frames[:, :0]).shape == (3, 0, 5)
    assert model(frames[:0]).shape == (0, 9, 5)
    with pytest.raises(ValueError, match=r"frames: want \[B, T, 7\], got \[3, 9, 6\]"):
        model(frames[..., :6])
    # Tensors and directories.
    shapes = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    assert shapes == models.weight_shapes(model.config)
    tarn.save_model(model, tmp_path / "m")
    assert json.loads((tmp_path / "m" / "labels.json").read_text()) == ["", "1", "2", "3", "4"]
    again = tarn.load_model(tmp_path / "m")
    assert type(again) is type(model)
    assert torch.equal(again(frames, lengths), out)
    with pytest.raises(ValueError, match="want '' first"):
        tarn.save_model(model, tmp_path / "m", labels=list("abcde"))


IMAGE = dict(task="image", image_height=2, image_width=3, image_channels=1, n_mixtures=4)


@pytest.mark.parametrize("attention", ["linear", "full"])
def test_images_are_mixtures_of_logistics(attention, tmp_path):
    model = models.LanguageModel(**SMALL, **IMAGE, attention=attention).eval()
    tokens = tokens_of(3, 6)
    out = model(tokens[:, :-1])
    assert out.shape == (3, 5, 12)
    loss = tarn.ops.logistic_mixture_loss(out, tokens[:, 1:])
    assert loss.shape == (3, 5) and loss.isfinite().all()
    first, state = model.prefill(tokens[:, :2])
    rows = [first]
    for t in range(2, 5):
        row, state = model.step(tokens[:, t], state)
        rows.append(row[:, None])
    torch.testing.assert_close(torch.cat(rows, 1), out, rtol=0, atol=3e-5)
    tarn.save_model(model, tmp_path / "m")
    assert torch.equal(tarn.load_model(tmp_path / "m")(tokens[:, :-1]), out)


def test_classes_name_the_task_they_serve():
    with pytest.raises(ValueError, match="Classifier: task: want 'classify', got 'ctc'"):
        models.Classifier(**SMALL, **FRAMES)
    with pytest.raises(ValueError, match="FrameClassifier: task: want 'ctc', got 'classify'"):
        models.FrameClassifier(**SMALL, n_classes=3, task="classify")
    assert models.FrameClassifier(**SMALL, n_classes=3, input_dim=2).config["arch"] == "encoder"


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16), ids=str)
@pytest.mark.parametrize(
    "keys",
    (dict(arch="lstm"), dict(arch="rnn"), dict(arch="lstm", bidirectional=True, **FRAMES)),
    ids=str,
)
def test_recurrent_models_run_under_autocast_on_every_cpu(keys, dtype):
    """oneDNN has no 16-bit LSTM for a CPU without instructions for such numbers."""
    model = models.make_model(**SMALL, **keys)
    given = torch.randn(2, 6, 7) if "input_dim" in keys else torch.randint(0, 9, (2, 6))
    wanted = model(given).detach()
    with torch.autocast("cpu", dtype):
        out = model(given)
    assert (out.float() - wanted).norm() < 0.02 * wanted.norm()
    out.float().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
