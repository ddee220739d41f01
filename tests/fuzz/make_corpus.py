"""Writes the seeds of the fuzz targets: make_corpus.py FUZZ_CORPUS_TEST

Most are cut from tests/golden, the others are here. Those of states and sessions come
from the test program, which has models. The same bytes in every run, but for the numbers
in states, which differ between SIMD targets in their last bits.
"""

import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys

import text_seeds

HERE = pathlib.Path(__file__).resolve().parent
CORPUS = HERE / "corpus"
GOLDEN = HERE.parent / "golden"


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def write(target, name, content):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    data = content if isinstance(content, bytes) else content.encode()
    (folder / name).write_bytes(data)


def safetensors(tensors, metadata):
    """tensors: (name, dtype, shape, bytes)."""
    header, data = {"__metadata__": metadata}, b""
    for name, dtype, shape, content in tensors:
        offsets = [len(data), len(data) + len(content)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        data += content
    text = compact(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def write_safetensors():
    floats = struct.pack("<12f", *(i / 8 - 0.5 for i in range(12)))
    halves = bytes(i % 60 for i in range(12))
    write(
        "safetensors",
        "valid-dtypes",
        safetensors(
            [
                ("layers.0.weight", "F32", [3, 4], floats),
                ("layers.0.bias", "BF16", [3], halves[:6]),
                ("half", "F16", [2, 1], halves[:4]),
                ("codes", "U8", [5], halves[:5]),
                ("empty", "F32", [0], b""),
                ("one", "F32", [], floats[:4]),
            ],
            {"format": "pt"},
        ),
    )
    write("safetensors", "valid-empty", safetensors([], {}))


def write_gguf():
    """Headers of the goldens with the data that the tests of hostile files give them."""
    kept = ["llama", "gemma3", "mamba2", "qwen35moe", "lfm2", "jamba", "rwkv7"]
    kept += ["vocabulary_gpt2", "vocabulary_llama", "vocabulary_t5"]
    for name in kept:
        golden = json.loads((GOLDEN / "gguf_headers" / f"{name}.json").read_text())
        data = bytes.fromhex(golden.get("data_begin", ""))
        data += struct.pack("<f", -0.25) * ((golden["data_bytes"] - len(data)) // 4)
        header = bytes.fromhex(golden["header"])
        write("gguf", f"valid-{name.replace('_', '-')}", header + data)


def write_configs():
    for path in sorted((GOLDEN / "published_models").glob("*.json")):
        config = json.loads(path.read_text())["config"]
        write("config", f"valid-{path.stem.replace('_', '-')}", compact(config))


def cut_vocabulary(model, most):
    """The vocabulary's first tokens, and the merges among them."""
    if isinstance(model["vocab"], list):
        return {"vocab": model["vocab"][:most]}
    kept = {text: number for text, number in model["vocab"].items() if number < most}
    merges = [m for m in model["merges"] if {m[0], m[1], m[0] + m[1]} <= kept.keys()]
    return {"vocab": kept, "merges": merges}


def golden_tokenizer(root):
    """The case of a golden with a small vocabulary, and its added tokens after that."""
    root = dict(root)
    model = json.loads((GOLDEN / "tokenizers" / f"{root.pop('file')}.json").read_text())
    root["model"] = model | root["model"] | cut_vocabulary(model, 300)
    vocabulary = root["model"]["vocab"]
    known = {row[0] for row in vocabulary} if isinstance(vocabulary, list) else set(vocabulary)
    added = []
    for token in root["added_tokens"]:
        after = token["content"] not in known
        number = len(vocabulary) + sum(t["content"] not in known for t in added)
        added.append(token | {"id": number} if after else token)
    root["added_tokens"] = added
    return root


def write_tokenizers():
    cases = json.loads((GOLDEN / "tokenizers" / "cases.json").read_text())["cases"]
    for name in text_seeds.TOKENIZER_CASES:
        text = compact(golden_tokenizer(cases[name]["root"]))
        write("tokenizer", f"valid-{name.replace('_', '-')}", text + "\0The end, 12 x\u00e9 <s>\n")
    for name, root in text_seeds.TOKENIZERS.items():
        write("tokenizer", f"valid-{name}", compact(root) + "\0ab 12\n")


def write_templates():
    for path in sorted((GOLDEN / "chat_templates" / "templates").glob("*.jinja")):
        if path.stem in text_seeds.TEMPLATES:
            source = path.read_text()
            name = f"valid-{path.stem[3:].replace('_', '-')}"
            write("chat_template", name, source + "\0" + compact(text_seeds.CHAT))


def main():
    shutil.rmtree(CORPUS, ignore_errors=True)
    write_safetensors()
    write_gguf()
    write_configs()
    write_tokenizers()
    write_templates()
    for target, seeds in text_seeds.SEEDS.items():
        for name, text in seeds.items():
            write(target, name, text)
    subprocess.run(
        [sys.argv[1], "--gtest_filter=FuzzStates.*"],
        check=True,
        env=os.environ | {"TARN_FUZZ_WRITE": str(CORPUS)},
    )
    size = sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file())
    print(f"{size} bytes")


if __name__ == "__main__":
    main()
