"""tarn import and tarn export: published models as directories of tarn's own and back. The
runtime's bits are those of the published directory, published tensors come back bit for
bit, and transformers' classes compute the same from what is written."""

import json
import re
import shutil
import signal
import subprocess

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
safetensors_torch = pytest.importorskip("safetensors.torch")
runtime = pytest.importorskip("tarn.runtime", exc_type=ImportError)
published = pytest.importorskip("published")
programs = pytest.importorskip("programs")
cases = pytest.importorskip("test_published_models")

TOKENS = np.random.default_rng(1).integers(0, published.VOCAB, 60)
TOKENIZER = {
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
    "normalizer": None, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False,
    "trim_offsets": True, "use_regex": True}, "post_processor": None,
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
}  # fmt: skip


def tarn(*arguments):
    return subprocess.run(
        [str(programs.BUILD / "tarn"), *map(str, arguments)], capture_output=True, text=True
    )


def convert(*arguments):
    done = tarn(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(code, *arguments):
    done = tarn(*arguments)
    assert done.returncode == code, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def bits(folder):
    opened = runtime.Model(folder)
    return opened.score(opened.state(), TOKENS).view(np.uint32)


def weights(folder):
    return safetensors_torch.load_file(folder / "model.safetensors")


def assert_same_tensors(one, other):
    ours, theirs = weights(one), weights(other)
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert tensor.dtype == theirs[name].dtype, name
        assert torch.equal(tensor, theirs[name]), name


def definer(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return published.definer_logits(model.eval(), TOKENS)


def changed(folder, **keys):
    """A tarn directory with other keys in its config.json: section__key=value."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    for name, value in keys.items():
        section, key = name.split("__")
        config[section][key] = value
    path.write_text(json.dumps(config))
    return folder


# The first options of each type: test_models_supported.py exports the others.
FIRST = {kind: keys for kind, keys in reversed(cases.CASES)}


@pytest.mark.parametrize("kind", FIRST)
def test_there_and_back(kind, tmp_path):
    model = published.random_model(kind, FIRST[kind])
    model.save_pretrained(tmp_path / "theirs")
    convert("import", tmp_path / "theirs", "--out", tmp_path / "ours")
    assert np.array_equal(bits(tmp_path / "ours"), bits(tmp_path / "theirs"))
    convert("export", tmp_path / "ours", "--to", "hf", "--type", kind, "--out", tmp_path / "back")
    assert_same_tensors(tmp_path / "back", tmp_path / "theirs")
    assert np.array_equal(definer(tmp_path / "back"), published.definer_logits(model, TOKENS))
    assert np.array_equal(bits(tmp_path / "back"), bits(tmp_path / "theirs"))


def test_shards_of_a_replaced_model_are_removed(llama, tmp_path):
    folder = tmp_path / "sharded"
    published.random_model("llama", cases.DECODER).save_pretrained(folder, max_shard_size="20KB")
    assert list(folder.glob("model-*-of-*.safetensors"))
    convert("import", llama, "--out", folder, "--overwrite")
    assert [path.name for path in folder.glob("model*")] == ["model.safetensors"]
    assert tarn("verify", folder).returncode == 0


def test_scalings_keep_the_positions_of_the_training(tmp_path):
    rope = dict(rope_type="yarn", rope_theta=500.0, factor=4.0)
    rope["original_max_position_embeddings"] = 2048
    keys = {**cases.DECODER, "rope_parameters": rope}
    published.random_model("llama", keys).save_pretrained(tmp_path / "theirs")
    out = tmp_path / "back"
    convert("export", tmp_path / "theirs", "--to", "hf", "--type", "mistral", "--out", out)
    written = json.loads((out / "config.json").read_text())["rope_parameters"]
    assert written["original_max_position_embeddings"] == 2048
    published.assert_close(definer(out), definer(tmp_path / "theirs"))


def test_a_type_is_found_where_none_is_named(tmp_path):
    for kind, keys in cases.CASES[::3]:
        folder = tmp_path / f"{kind}-{len(list(tmp_path.iterdir()))}"
        published.random_model(kind, keys).save_pretrained(folder)
        out = folder.with_name(folder.name + "-back")
        convert("export", folder, "--out", out)  # a published directory, as it is
        published.assert_close(definer(out), definer(folder))


@pytest.fixture
def llama(tmp_path):
    published.random_model("llama", cases.DECODER).save_pretrained(tmp_path / "llama")
    return tmp_path / "llama"


@pytest.fixture
def imported(llama):
    convert("import", llama, "--out", llama.with_name("imported"))
    return llama.with_name("imported")


def test_shards_of_bf16_and_other_formats(tmp_path):
    rounded = published.random_model("llama", cases.DECODER).to(torch.bfloat16)
    rounded.save_pretrained(tmp_path / "theirs", max_shard_size="20KB")
    wanted = rounded.state_dict()
    convert("import", tmp_path / "theirs", "--out", tmp_path / "ours")
    assert np.array_equal(bits(tmp_path / "ours"), bits(tmp_path / "theirs"))
    assert {tensor.dtype for tensor in weights(tmp_path / "ours").values()} == {torch.bfloat16}
    convert("export", tmp_path / "ours", "--out", tmp_path / "back")
    back = weights(tmp_path / "back")
    assert back.keys() == wanted.keys()
    assert all(torch.equal(back[name], tensor) for name, tensor in wanted.items())
    for word, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        convert("import", tmp_path / "theirs", "--out", tmp_path / word, "--weights", word)
        for name, tensor in weights(tmp_path / word).items():
            assert tensor.ndim == 1 or tensor.dtype == dtype, name
        assert np.array_equal(bits(tmp_path / word), bits(tmp_path / "theirs"))


def test_bf16_rounds_matrices_to_the_nearest(llama, tmp_path):
    convert("export", llama, "--out", tmp_path / "half", "--weights", "bf16")
    theirs = weights(llama)
    for name, tensor in weights(tmp_path / "half").items():
        wanted = theirs[name].to(torch.bfloat16) if tensor.ndim > 1 else theirs[name]
        assert tensor.dtype == wanted.dtype and torch.equal(tensor, wanted), name


def test_tokenizers_settings_and_templates_come_along(llama, tmp_path):
    (llama / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    (llama / "tokenizer_config.json").write_text('{"add_bos_token": false}')
    (llama / "chat_template.jinja").write_text("{{ messages[0].content }}")
    (llama / "generation_config.json").write_text('{"eos_token_id": [1, 2]}')
    (llama / "secret.py").write_text("raise SystemExit")
    convert("import", llama, "--out", tmp_path / "ours")
    convert("export", tmp_path / "ours", "--out", tmp_path / "back")
    copied = {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
              "generation_config.json"}  # fmt: skip
    for folder in (tmp_path / "ours", tmp_path / "back"):
        names = {path.name for path in folder.iterdir()}
        assert names == copied | {"config.json", "model.safetensors"}
        for name in copied:
            assert (folder / name).read_bytes() == (llama / name).read_bytes()
    config = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert config["model"]["tokenizer"] == "bpe"
    done = tarn("generate", tmp_path / "ours", "--prompt", "ab", "--max-tokens", 3)
    assert done.returncode in (0, 3)  # 3: an id beyond the tokenizer's three
    # A broken tokenizer is named, and nothing is written.
    (llama / "tokenizer.json").write_text('{"model": {"type": "BPE", "vocab": 3}}')
    assert "tokenizer.json" in refused(3, "import", llama, "--out", tmp_path / "third")
    assert not (tmp_path / "third").exists()


@pytest.mark.parametrize("settings", [None, {"top_k": 7}, {"eos_token_id": [5]}])
def test_ids_of_a_configuration_become_settings(settings, llama, tmp_path):
    (llama / "generation_config.json").unlink(missing_ok=True)
    if settings is not None:
        (llama / "generation_config.json").write_text(json.dumps(settings))
    path = llama / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "eos_token_id": 5}))
    convert("import", llama, "--out", tmp_path / "ours")
    written = json.loads((tmp_path / "ours" / "generation_config.json").read_text())
    assert written["eos_token_id"] in (5, [5]) and written.items() >= (settings or {}).items()
    convert("export", tmp_path / "ours", "--out", tmp_path / "back")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "back")
    assert model.generation_config.eos_token_id in (5, [5])


def test_a_model_is_replaced_only_when_told_to(llama, imported, tmp_path):
    before = (imported / "model.safetensors").read_bytes()
    assert "--overwrite" in refused(2, "import", llama, "--out", imported)
    assert "another one" in refused(2, "export", imported, "--out", imported, "--overwrite")
    (imported / "chat_template.jinja").write_text("old")
    published.random_model("llama", cases.DECODER, seed=5).save_pretrained(llama)
    convert("import", llama, "--out", imported, "--overwrite")
    assert (imported / "model.safetensors").read_bytes() != before
    assert not (imported / "chat_template.jinja").exists()
    assert np.array_equal(bits(imported), bits(llama))


def test_an_interrupted_import_continues(llama, tmp_path):
    # Enough to write that the signal finds it at work.
    model = published.random_model("llama", {**cases.DECODER, "vocab_size": 400_000})
    model.save_pretrained(tmp_path / "large")
    running = subprocess.Popen(
        [str(programs.BUILD / "tarn"), "import", str(tmp_path / "large"), "--out",
         str(tmp_path / "out"), "--weights", "bf16"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while running.poll() is None and not (
        (tmp_path / "out").exists() and any((tmp_path / "out").iterdir())
    ):
        pass
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate()
    assert running.returncode == 130 and errors.endswith("; the same command continues\n")
    assert all(".partial-" in path.name for path in (tmp_path / "out").iterdir())
    convert("import", tmp_path / "large", "--out", tmp_path / "out", "--weights", "bf16")
    convert("import", tmp_path / "large", "--out", tmp_path / "whole", "--weights", "bf16")
    names = {path.name for path in (tmp_path / "whole").iterdir()}
    assert names == {path.name for path in (tmp_path / "out").iterdir()}
    for name in names:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


REFUSED = [
    (dict(norm__place="post"), [], r'norm: want "pre", as the nearest .* have it, got "post"'),
    (dict(model__dropout=0.1), [], None),  # acts in training only
    (dict(), ["--type", "qwen2"], "qkv_bias: want true, as qwen2 would have it, got false"),
    (dict(), ["--type", "mamba2"], "config.json.*mamba2"),
]


@pytest.mark.parametrize(("keys", "flags", "message"), REFUSED)
def test_what_no_type_has_is_refused_by_its_key(keys, flags, message, imported, tmp_path):
    arguments = ("export", changed(imported, **keys), "--out", tmp_path / "out", *flags)
    if message is None:
        convert(*arguments)
        return
    errors = refused(3, *arguments)
    assert re.search(message, errors), errors
    assert not (tmp_path / "out").exists()


def test_numbers_that_the_published_form_lacks_are_refused(tmp_path):
    keys = {**cases.MAMBA, "state_size": 7, "time_step_rank": 3}
    published.random_model("falcon_mamba", keys).save_pretrained(tmp_path / "theirs")
    convert("import", tmp_path / "theirs", "--out", tmp_path / "ours")
    convert("export", tmp_path / "ours", "--out", tmp_path / "back")
    assert_same_tensors(tmp_path / "back", tmp_path / "theirs")
    tensors = weights(tmp_path / "ours")
    name = "layers.1.attention.key_norm.weight"
    tensors[name][4] = 0.5
    safetensors_torch.save_file(tensors, tmp_path / "ours" / "model.safetensors")
    errors = refused(3, "export", tmp_path / "ours", "--out", tmp_path / "out")
    assert f"'{name}'" in errors and "all 1" in errors and "got 0.5" in errors


LLAMA = dict(
    attention="full", positions="rotary", norm_kind="rms", feed_forward="swiglu", d_model=24,
    n_layers=3, n_heads=4, d_ff=40, qkv_bias=False, out_bias=False, head_bias=False,
)  # fmt: skip
MLP = dict(
    attention="full", norm_kind="layer", feed_forward="mlp", activation="gelu", d_model=24,
    n_layers=3, n_heads=4, d_ff=40, head_bias=False,
)  # fmt: skip
DELTA = dict(
    attention=None, n_layers=4,
    layers=[{"mixer": "gdn", "n_heads": 6, "key_heads": 3, "d_key": 4}, "full"],
)  # fmt: skip
OWN = [
    ("llama", LLAMA),
    ("llama", {**LLAMA, "key_heads": 2, "tied_head": True, "rotary_base": 500.0}),
    ("mistral", {**LLAMA, "window": 9}),
    ("qwen3", {**LLAMA, "head_norm": "head", "d_key": 10, "d_value": 10}),
    ("olmo2", {**LLAMA, "head_norm": "full", "norm": "after"}),
    ("mamba2", dict(attention="mamba2", positions="none", norm_kind="rms", feed_forward="none",
                    d_model=24, n_layers=2, n_heads=4, d_value=12, d_key=8, key_heads=1,
                    head_bias=False)),
    ("granitemoehybrid", {**LLAMA, "attention": None, "positions": "none", "score_scale": 0.4,
                          "key_heads": 2, "n_layers": 4,
                          "layers": [{"mixer": "mamba2", "n_heads": 6, "d_value": 8, "d_key": 5,
                                      "key_heads": 1}, {"mixer": "full"}]}),
    ("phi3", {**LLAMA, "rotary_width": 4, "window": 9}),
    ("qwen3_moe", {**LLAMA, "head_norm": "head", "feed_forward": "moe", "experts": 5,
                   "experts_per_token": 2, "d_expert": 16}),
    ("smollm3", {**LLAMA, "attention": None, "n_layers": 4,
                 "layers": ["full", {"mixer": "full", "rotate": False}]}),
    ("gpt_neox", {**MLP, "positions": "rotary", "parallel_residual": True}),
    ("gpt2", {**MLP, "positions": "learned", "max_positions": 64, "activation": "relu"}),
    ("qwen3_next", {**LLAMA, **DELTA, "norm_offset": 1.0, "head_norm": "head",
                    "head_gate": True}),
    ("olmo_hybrid", {**LLAMA, **DELTA, "layers": [
        {"mixer": "gdn", "n_heads": 6, "key_heads": 3, "d_key": 4},
        {"mixer": "full", "norm": "after"}], "output_norm_eps": 1e-5, "norm_eps": 1e-6,
        "head_norm": "full", "negative_eigenvalues": True}),
    ("lfm2", {**LLAMA, "attention": None, "head_norm": "head", "n_layers": 4,
              "layers": [{"mixer": "short-conv", "n_heads": 1, "d_value": 24}, "full"]}),
    ("jamba", {**LLAMA, "attention": None, "positions": "none", "n_layers": 4, "layers": [
        {"mixer": "mamba1", "n_heads": 1, "d_value": 48, "d_key": 5, "selection_norm": True},
        "full"], "norm_eps": 1e-6}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "keys"), OWN)
def test_models_of_our_own_are_published(kind, keys, tmp_path):
    tarn_package = pytest.importorskip("tarn")
    given = {key: value for key, value in keys.items() if value is not None}
    model = tarn_package.models.make_model(
        vocab_size=published.VOCAB, tokenizer="ids", **given
    ).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.1)
    tarn_package.save_model(model, tmp_path / "ours")
    assert f": {kind}, " in convert("export", tmp_path / "ours", "--out", tmp_path / "out")
    with torch.no_grad():
        wanted = model(torch.tensor(TOKENS)[None])[0].numpy()
    published.assert_close(definer(tmp_path / "out"), wanted)


FLASH = {**LLAMA, "d_model": 48, "d_ff": 64, "positions": "none"}
RWKV = dict(norm_kind="layer", input_norm=True)
OWN_OF_FLA = [
    ("gated_deltanet", "gdn", dict(key_heads=2)),
    ("delta_net", "deltanet", dict(gate_activation="silu")),
    ("kda", "kda", dict(gate_bias=True)),
    ("gla", "gla", dict(gate_activation="none")),
    ("retnet", "retnet", dict(positions="rotary")),
    ("hgrn2", "hgrn2", dict(learned_bounds=True, d_key=12, output_norm_eps=1e-5)),
    ("linear_attn", "norm-linear", dict(qk_map="hadamard", unit_keys=True)),
    ("linear_attn", "norm-linear", dict(qk_map="hedgehog", divided_sums=True)),
    ("rwkv7", "rwkv7",
     dict(RWKV, feed_forward="channel-mix", value_residual=True, unit_eps=1e-6)),
    ("rwkv6", "rwkv6", dict(RWKV, feed_forward="gated-channel-mix", output_norm_eps=1e-5)),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "mixer", "keys"), OWN_OF_FLA)
def test_models_of_our_own_in_the_form_of_flash_linear_attention(kind, mixer, keys, tmp_path):
    """They open as the package's do, which test_models_supported.py compares."""
    tarn_package = pytest.importorskip("tarn")
    given = {**FLASH, "attention": mixer, "vocab_size": published.VOCAB, "tokenizer": "ids"} | keys
    tarn_package.save_model(tarn_package.models.make_model(**given), tmp_path / "ours")
    told = convert("export", tmp_path / "ours", "--out", tmp_path / "out")
    assert f": {kind}, " in told
    assert np.array_equal(bits(tmp_path / "out"), bits(tmp_path / "ours"))


def test_other_directories_are_refused(llama, imported, tmp_path):
    assert "which needs no import" in refused(3, "import", imported, "--out", tmp_path / "a")
    done = tarn("export", imported, "--out", tmp_path / "a", "--to", "onnx")
    assert done.returncode == 2 and "--to: want hf or gguf, got 'onnx'" in done.stderr
    assert "config.json" in refused(3, "import", tmp_path / "none", "--out", tmp_path / "a")
    shutil.copytree(llama, tmp_path / "cut")
    path = tmp_path / "cut" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-4])
    assert "model.safetensors" in refused(3, "import", tmp_path / "cut", "--out", tmp_path / "a")
    assert not (tmp_path / "a").exists()
