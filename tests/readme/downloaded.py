"""A published model's directory as a download leaves it, with random weights."""

import array
import json
import pathlib
import random
import struct

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "published_models"
SPECIAL = ["<s>", "</s>"]
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def write_weights(path, shapes):
    draw = random.Random(1)
    header, data = {}, array.array("f")
    for name, shape in shapes.items():
        begin = 4 * len(data)
        count = 1
        for size in shape:
            count *= size
        data.extend(draw.uniform(-0.5, 0.5) for _ in range(count))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, 4 * len(data)]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data.tobytes())


def write_download(folder):
    model = json.loads((GOLDEN / "qwen3_moe.json").read_text())
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(model["config"]))
    write_weights(folder / "model.safetensors", model["tensors"])
    texts = [*SPECIAL, *"abcdefghijklmnopqrstuvwxyzH.?!:\u0120\u010a"]
    added = [
        {"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for i, text in enumerate(SPECIAL)
    ]  # fmt: skip
    pieces = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
              "use_regex": True}  # fmt: skip
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": None, "pre_tokenizer": pieces, "post_processor": None,
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(texts)}, "merges": []},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "generation_config.json").write_text('{"eos_token_id": 1}')
