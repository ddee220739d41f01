"""Tokenizers, chat templates and ends of texts of GGUF files: written from a directory they
have the keys that llama.cpp's converter writes, and what is opened again has the ids and
texts of the directory."""

import json
import pathlib
import sys

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
gguf = pytest.importorskip("gguf")
runtime = pytest.importorskip("tarn.runtime", exc_type=ImportError)
published = pytest.importorskip("published")
ways = pytest.importorskip("published_ways")

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tokenizers"))
cases = pytest.importorskip("cases")
vocabularies = pytest.importorskip("gguf_vocabularies")
strings = pytest.importorskip("strings")

CASES = cases.all_cases(cases.load_models())
TYPES = gguf.TokenType
MODEL = dict(hidden_size=16, num_hidden_layers=1, num_heads=4, head_dim=8, state_size=4)
CHATML = (
    "{% for m in messages %}{{ bos_token + m.role + '\n' + m.content + eos_token + '\n' }}"
    "{% endfor %}"
)
TEXTS = [*strings.make_strings(60), "<x> fox  foxes </s>", "e\u0301"]


def folder_of(name, folder, padding=5, **more):
    """A small model with the tokenizer of a case, as keys can express it."""
    root = vocabularies.expressible(CASES[name])
    tokens, _ = vocabularies.token_lists(root, 0)
    keys = dict(MODEL, vocab_size=len(tokens) + padding, n_groups=2)
    none = dict(pad_token_id=None, bos_token_id=None, eos_token_id=None)
    published.random_model("mamba2", keys | none).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(root))
    for file, value in more.items():
        text = value if isinstance(value, str) else json.dumps(value)
        (folder / file.replace("__", ".")).write_text(text)
    return root


def exported(source, out):
    status, told = ways.tarn_program("export", source, "--to", "gguf", "--out", out)
    assert status == 0, told
    return out, told


def keys_of(file):
    return {name: field.contents() for name, field in gguf.GGUFReader(file).fields.items()}


def same_texts(model, other):
    assert model.tokenizer_size == other.tokenizer_size
    for text in TEXTS:
        for special in (False, True):
            options = dict(allow_special=special, add_special=special)
            ids = model.encode(text, **options)
            assert other.encode(text, **options) == ids, text
            assert other.decode(ids) == model.decode(ids)
            assert other.decode(ids, skip_special=True) == model.decode(ids, skip_special=True)


def test_byte_pairs_with_template_and_ends(tmp_path):
    config = dict(bos_token="<s>", eos_token={"content": "</s>"}, chat_template=CHATML)
    size = len(CASES["llama3"]["model"]["vocab"])
    root = folder_of(
        "llama3",
        tmp_path / "model",
        tokenizer_config__json=config,
        generation_config__json={"eos_token_id": [size + 1, 7]},
    )
    file, told = exported(tmp_path / "model", tmp_path / "model.gguf")
    assert "left out" not in told
    keys = keys_of(file)
    tokens, types = vocabularies.token_lists(root, 5)
    assert keys["tokenizer.ggml.model"] == "gpt2"
    assert keys["tokenizer.ggml.pre"] == "llama-bpe"
    assert keys["tokenizer.ggml.tokens"] == tokens
    assert keys["tokenizer.ggml.token_type"] == [int(kind) for kind in types]
    merges = [m if isinstance(m, str) else " ".join(m) for m in root["model"]["merges"]]
    assert keys["tokenizer.ggml.merges"] == merges
    assert keys["tokenizer.ggml.bos_token_id"] == size
    assert keys["tokenizer.ggml.eos_token_id"] == size + 1
    assert keys["tokenizer.ggml.eot_token_id"] == 7
    assert keys["tokenizer.ggml.add_bos_token"] and keys["tokenizer.ggml.add_eos_token"]
    assert keys["tokenizer.chat_template"] == CHATML
    model, other = runtime.Model(tmp_path / "model"), runtime.Model(file)
    same_texts(model, other)
    assert other.stop_tokens == model.stop_tokens == [7, size + 1]
    assert other.chat_template == CHATML
    messages = [{"role": "user", "content": "fox <s> \n\n"}, {"role": "assistant", "content": ""}]
    assert other.encode_chat(messages) == model.encode_chat(messages)
    status, told = ways.tarn_program("import", file, "--out", tmp_path / "back")
    assert status == 0, told
    back = runtime.Model(tmp_path / "back")
    same_texts(model, back)
    assert back.stop_tokens == model.stop_tokens
    assert back.encode_chat(messages) == model.encode_chat(messages)


@pytest.mark.parametrize("name", ["deepseek", "falcon", "o200k", "starcoder"])
def test_byte_pairs_by_other_splitters(name, tmp_path):
    folder_of(name, tmp_path / "model", padding=0)
    file, _ = exported(tmp_path / "model", tmp_path / "model.gguf")
    same_texts(runtime.Model(tmp_path / "model"), runtime.Model(file))


def test_texts_without_an_end_go_on_in_llama_cpp(tmp_path):
    """It would take token 11 for one."""
    folder_of("qwen2", tmp_path / "model")
    file, _ = exported(tmp_path / "model", tmp_path / "model.gguf")
    keys = keys_of(file)
    end = keys["tokenizer.ggml.eos_token_id"]
    assert keys["tokenizer.ggml.tokens"][end] == f"[PAD{end}]"
    assert runtime.Model(tmp_path / "model").stop_tokens == []


def test_control_tokens_that_end_a_turn_end_a_text(tmp_path):
    root = vocabularies.expressible(CASES["qwen2"])
    size = len(root["model"]["vocab"])
    for token, text in zip(root["added_tokens"], ["<|im_start|>", "<|im_end|>", "<|end|>"]):
        token["content"] = text
    root["added_tokens"][2]["special"] = False
    root["post_processor"] = None
    folder_of("qwen2", tmp_path / "model", tokenizer__json=root)
    file, _ = exported(tmp_path / "model", tmp_path / "model.gguf")
    end = keys_of(file)["tokenizer.ggml.eos_token_id"]
    model = runtime.Model(file)
    # The padding that stands for no end is no token of the tokenizer's.
    assert model.stop_tokens == [size + 1, size + 2]
    assert end >= model.tokenizer_size
    assert size + 2 not in model.encode("a<|end|>b")
    assert size + 2 in model.encode("a<|end|>b", allow_special=True)


def test_more_ends_than_keys_are_refused(tmp_path):
    folder_of("qwen2", tmp_path / "model", generation_config__json={"eos_token_id": [1, 2, 3, 4]})
    status, told = ways.tarn_program(
        "export", tmp_path / "model", "--to", "gguf", "--out", tmp_path / "model.gguf"
    )
    assert status == 3 and "eos_token_id: want at most three" in told and told.count("\n") == 1


def own_model(folder, tokenizer, vocab_size):
    """A directory in tarn's form with one of its tokenizers."""
    keys = dict(MODEL, vocab_size=vocab_size, n_groups=2)
    none = dict(pad_token_id=None, bos_token_id=None, eos_token_id=None)
    published.random_model("mamba2", keys | none).save_pretrained(folder / "hf")
    status, told = ways.tarn_program("import", folder / "hf", "--out", folder / "own")
    assert status == 0, told
    config = json.loads((folder / "own" / "config.json").read_text())
    next(keys for keys in config.values() if "tokenizer" in str(keys))["tokenizer"] = tokenizer[
        "type"
    ]
    (folder / "own" / "config.json").write_text(json.dumps(config))
    (folder / "own" / "tokenizer.json").write_text(json.dumps({"format_version": 1, **tokenizer}))
    return folder / "own"


def test_bytes(tmp_path):
    own = own_model(tmp_path, {"type": "byte"}, 256)
    file, told = exported(own, tmp_path / "model.gguf")
    assert "left out" not in told
    model, other = runtime.Model(own), runtime.Model(file)
    for text in TEXTS:
        ids = model.encode(text)
        assert ids == list(text.encode()) == other.encode(text)
        assert other.decode(ids) == text
    assert keys_of(file)["tokenizer.ggml.eos_token_id"] == 0


def test_what_gguf_cannot_hold_is_left_out_by_name(tmp_path):
    own = own_model(tmp_path, {"type": "char", "code_points": list(range(32, 72))}, 40)
    file, told = exported(own, tmp_path / "model.gguf")
    assert "left out the tokenizer" in told and "got char" in told
    assert keys_of(file)["tokenizer.ggml.model"] == "none"
    assert runtime.Model(file).encode("3 4") == [3, 4]


BROKEN = [
    ("pre", "bloom", "tokenizer.ggml.pre: want a splitter"),
    ("model", "wordpiece", "tokenizer.ggml.model: want gpt2, llama, t5, rwkv"),
    ("tokens", ["a"], "tokenizer.ggml.token_type: want one for each of 1 tokens"),
    ("merges", ["a b c"], "tokenizer.ggml.merges.0.: want two tokens with one space"),
    ("token_type", [9] * 2266, "token_type"),
    ("eos_token_id", "x", "eos_token_id"),
    ("add_bos_token", 3, "add_bos_token"),
]


@pytest.mark.parametrize(
    ("key", "value", "message"), BROKEN, ids=[f"{key}-{i}" for i, (key, *_) in enumerate(BROKEN)]
)
def test_hostile_keys_are_refused_in_one_line(key, value, message, tmp_path):
    folder_of("cl100k", tmp_path / "model")
    file, _ = exported(tmp_path / "model", tmp_path / "model.gguf")
    reader = gguf.GGUFReader(file)
    writer = gguf.GGUFWriter(tmp_path / "broken.gguf", "mamba2")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kind = field.types[0]
        contents, sub = field.contents(), None
        if name == f"tokenizer.ggml.{key}":
            contents = value
            named = {str: "STRING", int: "UINT32", list: "ARRAY"}[type(value)]
            kind = gguf.GGUFValueType[named]
        writer.add_key_value(name, contents, kind, sub)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert ways.tarn_program("verify", tmp_path / "broken.gguf")[0] == 3
    with pytest.raises(runtime.FormatError, match=message) as error:
        runtime.Model(tmp_path / "broken.gguf")
    assert "\n" not in str(error.value)
