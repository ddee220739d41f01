"""Tokenizers of GGUF files: the same ids and texts as the `tokenizers` package has for the
tokenizer.json that says the same, and llama.cpp's own goldens where TARN_LLAMA_CPP names its
sources."""

import json
import os
import pathlib
import random
import struct

import pytest
from cases import BAR, all_cases, load_models
from package import PROGRAM, compare, encode
from strings import make_long, make_strings

gguf = pytest.importorskip("gguf")
vocabularies = pytest.importorskip("gguf_vocabularies")
if not PROGRAM.exists():
    pytest.skip(f"no {PROGRAM} (TARN_BUILD_DIR names the build)", allow_module_level=True)

MODELS = load_models()
CASES = all_cases(MODELS)
LLAMA_CPP = os.environ.get("TARN_LLAMA_CPP")


def compare_with(file, root, strings):
    """As package.compare, for a tokenizer.json next to the file."""
    path = file.with_suffix(".json")
    path.write_text(json.dumps(root))
    compare(path, strings, file)


@pytest.mark.parametrize("name", vocabularies.PRE)
def test_byte_pairs(name, tmp_path):
    root = vocabularies.expressible(CASES[name])
    # Whole pieces first is what goes with the splitter's name.
    root["model"] = {**root["model"], "ignore_merges": name in ("llama3", "tekken")}
    file = vocabularies.write(tmp_path / "a.gguf", "gpt2", root, vocabularies.PRE[name])
    compare_with(file, root, make_strings())


def test_long_byte_pairs(tmp_path):
    root = vocabularies.expressible(CASES["llama3"])
    file = vocabularies.write(tmp_path / "a.gguf", "gpt2", root, "llama-bpe")
    compare_with(file, root, make_long())


def scores_of(seed: int) -> dict:
    """Of each token of the small SentencePiece model, many of them alike."""
    tokens = list(MODELS["characters"]["vocab"])
    draw = random.Random(seed)
    return {token: -float(draw.randrange(500)) for token in tokens}


@pytest.mark.parametrize("prefix", [True, False])
def test_scores(prefix, tmp_path):
    scores = scores_of(int(prefix))
    root = vocabularies.expressible(CASES["llama2"])
    file = vocabularies.write(
        tmp_path / "a.gguf", "llama", root, "default", scores, add_space_prefix=prefix
    )
    strings = make_strings()
    for text, given in zip(strings, encode(file, strings), strict=True):
        ids = vocabularies.encode_by_scores(root, scores, prefix, text)
        assert given["plain"] == ids, text
        start = root["model"]["vocab"]["<s>"]
        assert given["special"][0] == start
        assert given["special"][-1] == root["model"]["vocab"]["</s>"]
        # Each part between tokens that are found first has a space put before it.
        if not prefix:
            assert given["text"] == text.replace(BAR, " ")


def test_long_scores(tmp_path):
    scores = scores_of(3)
    root = vocabularies.expressible(CASES["llama2"])
    file = vocabularies.write(tmp_path / "a.gguf", "llama", root, "default", scores)
    strings = make_long(1 << 16)
    for text, given in zip(strings, encode(file, strings), strict=True):
        assert given["plain"] == vocabularies.encode_by_scores(root, scores, True, text)


def as_float32(score: float) -> float:
    return struct.unpack("f", struct.pack("f", score))[0]


def test_unigram(tmp_path):
    root = vocabularies.expressible(CASES["unigram"])
    root["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": BAR}
    root["pre_tokenizer"] = None
    root["decoder"] = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": BAR}, "content": " "},
            {"type": "Fuse"},
        ],
    }
    vocab = [[token, as_float32(score)] for token, score in MODELS["unigram"]["vocab"]]
    root["model"] = {**root["model"], "vocab": vocab}
    scores = dict(vocab)
    file = vocabularies.write(tmp_path / "a.gguf", "t5", root, "default", scores)
    compare_with(file, root, make_strings())


def longest_match(tokens: dict, data: bytes) -> list:
    ids = []
    while data:
        most = min(len(data), 16)
        length = next(n for n in range(most, 0, -1) if data[:n] in tokens)
        ids.append(tokens[data[:length]])
        data = data[length:]
    return ids


def test_rwkv(tmp_path):
    """The vocabulary's tokens are what Python writes between quotes of either sort."""
    texts = [bytes([byte]) for byte in range(256)]
    texts += [b"\n\n", b"it's", b'"', b"'\"", b"\\n", b" the", "é中".encode(), b"\xc3\xa9t"]
    texts = list(dict.fromkeys(texts))
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "rwkv7")
    writer.add_tokenizer_model("rwkv")
    tokens = ["<s>", *(repr(text)[2:-1] for text in texts), "[PAD]"]
    writer.add_token_list([token.encode() for token in tokens])
    types = [gguf.TokenType.CONTROL, *[gguf.TokenType.NORMAL] * len(texts), gguf.TokenType.UNUSED]
    writer.add_token_types(types)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    known = {text: id + 1 for id, text in enumerate(texts)}
    strings = [*make_strings(), "it's \\n the 'é中été\"'\"\n\n\n"]
    for text, given in zip(strings, encode(tmp_path / "a.gguf", strings), strict=True):
        assert given["plain"] == longest_match(known, text.encode()), text
        assert given["bytes"]


def test_unknown_splitters_and_models_are_refused_by_name(tmp_path):
    root = vocabularies.expressible(CASES["cl100k"])
    for model, pre, message in (
        ("gpt2", "bloom", "tokenizer.ggml.pre: want a splitter that tarn has: gpt-2,"),
        ("gpt2", None, "tokenizer.ggml.pre: want .* got none"),
        ("bert", "bert", "tokenizer.ggml.model: want gpt2, llama, t5, rwkv, got 'bert'"),
    ):
        file = vocabularies.write(tmp_path / "a.gguf", model, root, pre)
        with pytest.raises(AssertionError, match=message) as error:
            encode(file, ["a"])
        assert str(error.value).count("a.gguf") == 1


def golden_files() -> list[pathlib.Path]:
    """Vocabularies of llama.cpp that come with texts and ids, of splitters that tarn has."""
    folder = pathlib.Path(LLAMA_CPP or "/nowhere") / "models"
    refused = ("bert-bge", "gemma-4", "deepseek-coder", "deepseek-llm")
    return [
        file
        for file in sorted(folder.glob("ggml-vocab-*.gguf"))
        if file.with_suffix(".gguf.inp").exists()
        and file.stem.removeprefix("ggml-vocab-") not in refused
    ]


@pytest.mark.skipif(not golden_files(), reason="no goldens of llama.cpp (TARN_LLAMA_CPP)")
@pytest.mark.parametrize("file", golden_files(), ids=lambda file: file.stem)
def test_goldens_of_llama_cpp(file):
    texts = file.with_suffix(".gguf.inp").read_text().split("\n__ggml_vocab_test__\n")[:-1]
    wanted = [
        [int(id) for id in line.split()]
        for line in file.with_suffix(".gguf.out").read_text().split("\n")
    ]
    given = encode(file, texts)
    for text, mine, ids in zip(texts, given, wanted, strict=False):
        assert mine["plain"] == ids, text
