"""tarn tokenize: encoding, decoding, training a BPE; models that use it."""

import bz2
import json
import math
import pathlib
import random
import unicodedata

import plain_model
import pytest

WORDS = "state key value query step token the a of and runs like an rnn".split()


def some_text(words=4000, seed=1):
    draw = random.Random(seed)
    text = " ".join(draw.choices(WORDS, k=words))
    return text.replace(" a ", " \u00e4\u20ac ").replace(" and ", "\n")


@pytest.fixture(scope="module")
def bpe(tarn, tmp_path_factory):
    """A tokenizer.json trained on some_text()."""
    folder = tmp_path_factory.mktemp("bpe")
    (folder / "text").write_text(some_text())
    result = tarn(
        "tokenize", "--train", folder / "text", "--vocab", 300, "--out", folder / "bpe.json"
    )
    assert result.returncode == 0, result.stderr
    return folder / "bpe.json"


def test_training_is_deterministic_and_writes_the_hugging_face_form(tarn, bpe):
    again = tarn("tokenize", "--train", bpe.parent / "text", "--vocab", 300, "--out", "-")
    assert again.stdout == bpe.read_bytes()
    root = json.loads(again.stdout)
    assert root["model"]["type"] == "BPE"
    assert len(root["model"]["vocab"]) == 300
    assert len(root["model"]["merges"]) == 44
    assert root["pre_tokenizer"]["type"] == "ByteLevel"


def test_lines_there_and_back(tarn, bpe):
    text = some_text(500, seed=2) + "\n\n  odd \t\u4e2d\n"
    ids = tarn("tokenize", bpe, "-", stdin=text.encode())
    assert ids.stdout.count(b"\n") == text.count("\n")
    back = tarn("tokenize", bpe, "--decode", stdin=ids.stdout)
    assert back.stdout.decode() == text
    objects = tarn("tokenize", bpe, "--json", stdin=text.encode())
    for line, row in zip(objects.stdout.splitlines(), ids.stdout.splitlines()):
        assert json.loads(line)["ids"] == [int(i) for i in row.split()]


def test_an_input_as_one_text(tarn, bpe, tmp_path):
    draw = random.Random(3)
    data = bytes(draw.randrange(256) for _ in range(3000))
    (tmp_path / "data").write_bytes(data)
    ids = tarn("tokenize", bpe, tmp_path / "data", "--whole")
    assert ids.stdout.count(b"\n") == 1
    back = tarn("tokenize", bpe, "--decode", "--whole", stdin=ids.stdout)
    assert back.stdout == data
    count = tarn("tokenize", bpe, tmp_path / "data", "--count", "--json")
    assert json.loads(count.stdout) == {"tokens": len(ids.stdout.split()), "bytes": 3000}


def test_char_models_and_their_errors(tarn, models):
    result = tarn("tokenize", models / "char", stdin="cab\u20ac\n".encode())
    # The alphabet by code point: \n, space, a, b, c, euro, emoji.
    assert result.stdout == b"4 2 3 5\n"
    result = tarn("tokenize", models / "char", stdin=b"ab\ncaz\n")
    assert result.returncode == 3
    assert b"standard input: text: byte 5" in result.stderr


@pytest.mark.parametrize(
    "arguments, code, word",
    [
        ([], 2, "PATH"),
        (["--train", "{text}"], 2, "--out"),
        (["--train", "{text}", "--out", "-", "--vocab", "255"], 2, "--vocab"),
        (["{bpe}", "--vocab", "300"], 2, "--train"),
        (["--train", "{text}", "--out", "-", "--decode"], 2, "--decode"),
        (["/nowhere.json"], 3, "/nowhere.json"),
        (["{text}"], 3, "vocabulary: line 1"),
        (["{bpe}", "/nowhere"], 3, "/nowhere"),
        (["{bpe}", "--decode", "{text}"], 3, "byte 0"),
        (["--train", "{text}", "--out", "/nowhere/x"], 1, "/nowhere/x"),
    ],
)
def test_errors(tarn, bpe, arguments, code, word):
    text = bpe.parent / "text"
    arguments = [a.format(bpe=bpe, text=text) for a in arguments]
    result = tarn("tokenize", *arguments)
    assert result.returncode == code, result.stderr
    assert result.stdout == b""
    assert word in result.stderr.decode()


def test_nfc_equals_pythons(tarn, bpe, tmp_path):
    """Covers every line of Unicode's own test that Python's tables know as well."""
    root = json.loads(bpe.read_text())
    root["normalizer"] = {"type": "NFC"}
    (tmp_path / "nfc.json").write_text(json.dumps(root))
    draw = random.Random(5)
    marks = [chr(p) for p in range(0x300, 0x370)] + list("aeDs\u1100\u1161\u11a8\uac00")
    lines = ["".join(draw.choices(marks, k=draw.randint(1, 9))) for _ in range(3000)]
    cases = pathlib.Path("/usr/share/unicode/NormalizationTest.txt.bz2")
    if cases.exists():
        for line in bz2.open(cases, "rt", encoding="utf-8"):
            if line[0] not in "#@":
                fields = line.split(";")[:5]
                lines += ["".join(chr(int(p, 16)) for p in f.split()) for f in fields]
    lines = [line for line in lines if all(unicodedata.category(c) != "Cn" for c in line)]
    ids = tarn("tokenize", tmp_path / "nfc.json", stdin="\n".join(lines).encode())
    back = tarn("tokenize", bpe, "--decode", stdin=ids.stdout)
    got = back.stdout.decode().split("\n")[:-1]
    want = [unicodedata.normalize("NFC", line) for line in lines]
    assert got == want


def test_a_model_speaks_bpe(tarn, bpe, tmp_path):
    """eval counts the bytes of the file; generate and info run."""
    model = tmp_path / "model"
    plain_model.write_model(model, seed=4, tokenizer="bpe", vocab_size=300, positions="none")
    (model / "tokenizer.json").write_bytes(bpe.read_bytes())
    text = some_text(300, seed=6)
    result = tarn("eval", model, "-", "--json", stdin=text.encode())
    assert result.returncode == 0, result.stderr
    figures = json.loads(result.stdout)
    count = tarn("tokenize", model, "--count", "--json", stdin=text.encode())
    counts = json.loads(count.stdout)
    assert figures["tokens"] == counts["tokens"]
    assert counts["bytes"] == len(text.encode())
    first = tarn("tokenize", model, "--whole", stdin=text.encode()).stdout.split()[0]
    head = tarn("tokenize", model, "--decode", "--whole", stdin=first).stdout
    bits = (
        figures["nats_per_token"]
        * (counts["tokens"] - 1)
        / math.log(2)
        / (counts["bytes"] - len(head))
    )
    assert figures["bits_per_byte"] == pytest.approx(bits, rel=1e-9)
    made = tarn(
        "generate", model, "--prompt", "state key", "--max-tokens", 20, "--seed", 1, "--json"
    )
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["tokens"] == 20
    assert tarn("verify", model).returncode == 0
