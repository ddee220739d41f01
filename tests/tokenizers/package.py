"""Ids and texts of this build's tokenizers and of the `tokenizers` package."""

import json
import os
import pathlib
import struct
import subprocess

import pytest
from cases import without_special

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("TARN_BUILD_DIR", REPOSITORY / "build")) / "encode_strings"


def published() -> list[pathlib.Path]:
    """tokenizer.json files of published models: those of the shared data, and those in
    the folders that TARN_PUBLISHED names (separated by colons), such as a node_modules."""
    data = pathlib.Path(os.environ.get("TARN_DATA", REPOSITORY / "../shared/data")) / "tokenizers"
    folders = [data, *filter(None, os.environ.get("TARN_PUBLISHED", "").split(":"))]
    found = [
        file for folder in folders for file in sorted(pathlib.Path(folder).rglob("*tokenizer.json"))
    ]
    return [file.resolve() for file in found]


def encode(path: pathlib.Path, strings: list[str]) -> list[dict]:
    """What encode_strings.cc writes for each string."""
    data = b"".join(struct.pack("<Q", len(text)) + text for text in map(str.encode, strings))
    run = subprocess.run([PROGRAM, path], input=data, capture_output=True, check=False)
    assert run.returncode == 0, run.stderr.decode()
    return [json.loads(line) for line in run.stdout.decode().split("\n") if line]


def compare(path: pathlib.Path, strings: list[str], file: pathlib.Path | None = None) -> None:
    """Plain: without special tokens. Special: with those in the text and at its ends. file:
    of the tokenizer to test, where it is another one than the tokenizer.json `path`."""
    tokenizers = pytest.importorskip("tokenizers")
    got = encode(file or path, strings)
    assert len(got) == len(strings)
    root = without_special(json.loads(path.read_text()))
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(root))
    tokenizer.encode_special_tokens = True
    plain = [e.ids for e in tokenizer.encode_batch(strings, add_special_tokens=False)]
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    special = [e.ids for e in tokenizer.encode_batch(strings)]
    for text, mine, ids, all_ids in zip(strings, got, plain, special):
        assert "error" not in mine, (text[:200], mine)
        assert mine["plain"] == ids, text[:200]
        assert mine["special"] == all_ids, text[:200]
        assert mine["text"] == tokenizer.decode(ids, skip_special_tokens=False), text[:200]
        assert mine["kept"] == tokenizer.decode(all_ids), text[:200]
