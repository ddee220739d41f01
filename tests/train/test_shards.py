"""--init from a model with sharded weights."""

import json
import shutil

from conftest import fortunes, train
from safetensors.numpy import load_file, save_file

SHORT = ("--steps", 5, "--batch", 2, "--seq-len", 16, "--sample-every", 0, "--threads", 2)
NEW = ("--d-model", 16, "--n-layers", 2, "--n-heads", 2)


def test_init_reads_shards(tmp_path):
    text = tmp_path / "text"
    text.write_text(fortunes(200, 9))
    first = tmp_path / "first"
    done = train("--data", text, "--out", first, *NEW, *SHORT)
    assert done.returncode == 0, done.stderr
    shards = tmp_path / "shards"
    shards.mkdir()
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(first / name, shards / name)
    tensors = load_file(first / "model.safetensors")
    names = [f"model-0000{i + 1}-of-00002.safetensors" for i in range(2)]
    for i, name in enumerate(names):
        save_file(dict(list(tensors.items())[i::2]), shards / name)
    weight_map = {tensor: names[i % 2] for i, tensor in enumerate(tensors)}
    index = shards / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    for start in (first, shards):
        out = tmp_path / f"from {start.name}"
        done = train("--init", start, "--data", text, "--out", out, *SHORT)
        assert done.returncode == 0, done.stderr
    models = [
        (tmp_path / f"from {start.name}" / "model.safetensors").read_bytes()
        for start in (first, shards)
    ]
    assert models[0] == models[1]
    (shards / names[1]).unlink()
    done = train("--init", shards, "--data", text, "--out", tmp_path / "x", *SHORT)
    assert done.returncode == 1 and names[1] in done.stderr
