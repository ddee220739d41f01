"""Writes gguf_headers/ARCHITECTURE.json: what precedes the data of a small GGUF file of each
architecture that tarn reads, as hexadecimal bytes, and the bytes of its data, which are
float32, with those that may not be any numbers. tests/hostile mutates them.

    PYTHONPATH=python TARN_LIBRARY=build/libtarn_pytorch.so \\
        .venv/bin/python tests/golden/make_gguf_headers.py
"""

import json
import pathlib
import sys
import tempfile

import gguf
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))
import gguf_files  # noqa: E402
import published  # noqa: E402

DECODER = dict(
    vocab_size=11,
    hidden_size=8,
    intermediate_size=12,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=4,
    pad_token_id=None,
    eos_token_id=None,
)
LLAMA3 = dict(
    rope_type="llama3",
    rope_theta=100.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=64,
)
# The model of each architecture. Every kind of key that a row reads is in one of them.
MODELS = [
    ("llama", {**DECODER, "attention_bias": True, "rope_parameters": LLAMA3}),
    ("qwen2", {**DECODER, "tie_word_embeddings": True}),
    ("qwen3", DECODER),
    (
        "gemma3_text",
        {
            **DECODER,
            "num_hidden_layers": 2,
            "query_pre_attn_scalar": 4,
            "sliding_window": 3,
            "sliding_window_pattern": 2,
        },
    ),
]


def main() -> None:
    transformers.utils.logging.set_verbosity_error()
    out = pathlib.Path(__file__).parent / "gguf_headers"
    out.mkdir(exist_ok=True)
    for kind, keys in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            published.random_model(kind, keys).save_pretrained(folder)
            path = gguf_files.write_model(folder, pathlib.Path(folder) / "m.gguf")
            reader = gguf.GGUFReader(path)
            name = reader.fields["general.architecture"].contents()
            start = int(reader.data_offset)
            data = path.read_bytes()
        found = {"data_bytes": len(data) - start, "header": data[:start].hex()}
        first = reader.tensors[0]
        if first.name == "rope_freqs.weight":
            found["data_begin"] = data[start : int(reader.tensors[1].data_offset)].hex()
        (out / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
