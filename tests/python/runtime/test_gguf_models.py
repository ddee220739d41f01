"""GGUF files of transformers' models, opened as they are: the runtime's logits are those of
the directory that a file was converted from, whatever llama.cpp's converter changes, and what
tarn exports is such a file again."""

import re
import subprocess

import numpy as np
import pytest

gguf = pytest.importorskip("gguf")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
runtime = pytest.importorskip("tarn.runtime", exc_type=ImportError)
published = pytest.importorskip("published")
programs = pytest.importorskip("programs")
gguf_files = pytest.importorskip("gguf_files")
cases = pytest.importorskip("test_published_models")
package = pytest.importorskip("tarn")

TOKENS = np.random.default_rng(1).integers(0, published.VOCAB, 60)
GEMMA = dict(
    cases.DECODER,
    head_dim=8,
    num_hidden_layers=7,
    query_pre_attn_scalar=8,
    sliding_window=5,
)
# llama.cpp has llama3's scaling for `llama` alone.
CASES = [
    *[
        (kind, keys)
        for kind, keys in cases.CASES
        if kind == "llama" or (kind in ("qwen2", "qwen3") and keys.get("rope_parameters") != cases.LLAMA3)
    ],
    ("llama", {**cases.DECODER, "rope_parameters": {**cases.LLAMA3, "rope_theta": 20.0}}),
    ("llama",
     {**cases.DECODER, "head_dim": 32,
      "rope_parameters": {**cases.LLAMA3, "original_max_position_embeddings": 8192}}),
    ("llama",
     {**cases.DECODER, "head_dim": 32,
      "rope_parameters": {**cases.LLAMA3, "low_freq_factor": 1.5, "high_freq_factor": 7.0,
                          "factor": 2.5, "original_max_position_embeddings": 300}}),
    ("llama", {**cases.DECODER, "rope_parameters": cases.YARN, "rms_norm_eps": 1e-6}),
    ("qwen3", {**cases.DECODER, "rope_parameters": dict(rope_type="linear", factor=3.0)}),
    ("gemma3_text", GEMMA),
    ("gemma3_text",
     {**GEMMA, "tie_word_embeddings": False, "final_logit_softcapping": 7.0,
      "rope_parameters": {
          "full_attention": dict(rope_type="linear", factor=4.0, rope_theta=3e5),
          "sliding_attention": dict(rope_type="default", rope_theta=700.0)}}),
]  # fmt: skip
NAMES = [f"{kind}-{i}" for i, (kind, _) in enumerate(CASES)]


def tarn(*arguments):
    done = subprocess.run(
        [str(programs.BUILD / "tarn"), *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def logits(path, **options):
    opened = runtime.Model(path, **options)
    return opened.score(opened.state(), TOKENS)


@pytest.fixture
def folder(tmp_path):
    """Makes a directory of a random model, once for a test."""

    def make(kind, keys):
        out = tmp_path / "theirs"
        published.random_model(kind, keys).save_pretrained(out)
        return out

    return make


@pytest.mark.parametrize(("kind", "keys"), CASES, ids=NAMES)
def test_a_file_gives_the_logits_of_its_directory(kind, keys, folder, tmp_path):
    theirs = folder(kind, keys)
    path = gguf_files.write_model(theirs, tmp_path / "model.gguf")
    wanted = logits(theirs)
    published.assert_close(logits(path), wanted)
    # And written again, by its own rows and from the directory.
    for source in (path, theirs):
        out = tmp_path / f"from-{source.name}.gguf"
        tarn("export", source, "--to", "gguf", "--type", "f32", "--out", out)
        published.assert_close(logits(out), wanted)
        assert_same_tensors(out, path)


def assert_same_tensors(out, path):
    ours, theirs = gguf_files.read_tensors(out), gguf_files.read_tensors(path)
    assert ours.keys() == theirs.keys()
    for name, numbers in theirs.items():
        assert ours[name].shape == numbers.shape, name
        np.testing.assert_allclose(ours[name], numbers, rtol=3e-7, atol=3e-7, err_msg=name)


@pytest.mark.skipif(gguf_files.LLAMA_CPP is None, reason="TARN_LLAMA_CPP names no checkout")
@pytest.mark.parametrize(("kind", "keys"), CASES, ids=NAMES)
def test_the_rules_are_those_of_the_converter(kind, keys, folder, tmp_path):
    theirs = folder(kind, keys)
    path = gguf_files.convert(theirs, tmp_path / "model.gguf")
    published.assert_close(logits(path), logits(theirs))
    ours = gguf_files.write_model(theirs, tmp_path / "ours.gguf")
    assert_same_tensors(ours, path)
    given, wanted = gguf_files.read_keys(ours), gguf_files.read_keys(path)
    architecture = wanted["general.architecture"] + "."
    for key, value in wanted.items():
        if key.startswith(architecture):
            assert given.get(key) == value, key
    # Keys that tarn writes are a converter's too, with its values.
    out = tmp_path / "exported.gguf"
    tarn("export", theirs, "--to", "gguf", "--type", "f32", "--out", out)
    exported = gguf_files.read_keys(out)
    assert exported["general.architecture"] + "." == architecture
    for key, value in exported.items():
        if key.startswith(architecture) and key in wanted and "context_length" not in key:
            same = pytest.approx(value, rel=1e-6) if isinstance(value, float) else value
            assert wanted[key] == same, key


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_rounded_files_are_the_models_of_their_numbers(kind, folder, tmp_path):
    keys = dict(cases.DECODER, hidden_size=64, intermediate_size=96, num_attention_heads=4)
    keys["head_dim"] = 32
    theirs = folder("llama", keys)
    path = gguf_files.write_model(theirs, tmp_path / "m.gguf", gguf.GGMLQuantizationType[kind])
    wide = gguf_files.write_file(
        tmp_path / "wide.gguf",
        *gguf_files.RULES["llama"](*gguf_files.published_parts(theirs))[:2],
        gguf_files.read_tensors(path),
    )
    # Other blocks than those of Q8_0, Q4_0 and Q4_1 are held as bfloat16.
    exact = {"weights": "f32"} if kind in ("Q5_0", "Q5_1") else {"exact": True}
    assert np.array_equal(logits(path, **exact), logits(wide))
    tarn("import", path, "--out", tmp_path / "imported")
    assert np.array_equal(logits(tmp_path / "imported", exact=True), logits(wide))


def test_every_command_opens_a_file(folder, tmp_path):
    path = gguf_files.write_model(folder("qwen3", cases.DECODER), tmp_path / "m.gguf")
    assert tarn("verify", path).startswith("ok ")
    assert "n layers" in tarn("info", path) or "n_layers" in tarn("info", path)
    prompt = ["--prompt", "1 2 3", "--max-tokens", 4, "--seed", 1]
    text = tarn("generate", path, *prompt)
    tarn("import", path, "--out", tmp_path / "own")
    assert tarn("generate", tmp_path / "own", *prompt) == text
    tarn("export", path, "--to", "hf", "--out", tmp_path / "hf")
    published.assert_close(logits(tmp_path / "hf"), logits(path))
    (tmp_path / "text").write_text("1 2 3 4 5 6")
    tarn("eval", path, tmp_path / "text")
    tarn("bench", path, "-p", 8, "-n", 4, "-r", 1)


def test_modules_of_files_are_saved_and_opened(folder, tmp_path):
    path = gguf_files.write_model(folder("llama", cases.DECODER), tmp_path / "m.gguf")
    module = package.load_model(path)
    with torch.no_grad():
        given = module(torch.tensor(TOKENS)[None])[0].numpy()
    published.assert_close(given, logits(path))
    package.save_model(module, tmp_path / "saved", tokenizer=path)
    assert np.array_equal(logits(tmp_path / "saved"), logits(path))
    huggingface = pytest.importorskip("tarn.huggingface")
    opened = huggingface.TarnForCausalLM.from_pretrained(path)
    with torch.no_grad():
        given = opened(torch.tensor(TOKENS)[None]).logits[0].numpy()
    published.assert_close(given, logits(path))
    with pytest.raises(FileNotFoundError, match="want a model directory or GGUF file"):
        huggingface.TarnForCausalLM.from_pretrained(tmp_path / "none")


def refused(code, *arguments):
    done = subprocess.run(
        [str(programs.BUILD / "tarn"), *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == code, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


REFUSED = [
    (dict(arch="gptj"), "key 'general.architecture': want one of .*, got 'gptj'"),
    (dict(block_count=None), "key 'qwen3.block_count': want an integer"),
    (dict(expert_count=4), "key 'qwen3.expert_count': want an integer from 0 to 0"),
    (dict(new_key=1), "key 'qwen3.new_key': want a key of 'qwen3' that tarn knows"),
    (dict(block_count=4), "want a tensor 'blk.3.attn_norm.weight'"),
    (dict(block_count=2), "want a name that the architecture asks for"),
    (dict(embedding_length=40), "want shape"),
    (dict(vocab_size=96), "want the rows of token_embd.weight, 97"),
    ({"attention.head_count": 0}, "want an integer from 1"),
    ({"attention.head_count": 2**31}, "want an integer from 1"),
    ({"attention.head_count": "6"}, "want an integer from 1"),
    ({"rope.scaling.type": "longrope"}, "want 'none', 'linear' or 'yarn'"),
    ({"output_norm.weight": None}, "want a tensor 'output_norm.weight'"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=[str(c) for c, _ in REFUSED])
def test_what_cannot_be_opened_is_refused_by_name(changes, message, folder, tmp_path):
    parts = gguf_files.published_parts(folder("qwen3", cases.DECODER))
    architecture, keys, tensors = gguf_files.qwen3(*parts)
    for name, value in changes.items():
        if name == "arch":
            architecture = value
        elif name in tensors:
            del tensors[name]
        elif value is None:
            del keys[name]
        else:
            keys[name] = value
    path = gguf_files.write_file(tmp_path / "m.gguf", architecture, keys, tensors)
    assert re.search(message, refused(3, "info", path)), refused(3, "info", path)


def test_exports_that_llama_cpp_cannot_run_are_refused(folder, tmp_path):
    out = tmp_path / "m.gguf"
    theirs = folder("mistral", {**cases.DECODER, "sliding_window": 11})
    message = refused(3, "export", theirs, "--to", "gguf", "--out", out)
    assert "want a model of a type that becomes a GGUF file" in message
    theirs = folder("qwen2", {**cases.DECODER, "rope_parameters": cases.LLAMA3})
    message = refused(3, "export", theirs, "--to", "gguf", "--out", out)
    assert "rotary_scaling: want none, linear or yarn, which llama.cpp has for 'qwen2'" in message
    assert not list(tmp_path.glob("m.gguf*"))
    assert "--type: want one of stored, f32" in refused(
        2, "export", theirs, "--to", "gguf", "--type", "int3", "--out", out
    )
    assert "want a name that no file has" in refused(
        2, "export", folder("qwen3", cases.DECODER), "--to", "gguf", "--out", __file__
    )
