"""The models of the measure `speculation`, trained here: one that writes and a small one
that drafts for it, both on records in JSON, tarn's C++ sources and Shakespeare's plays.

    python bench/speculation_models.py FOLDER [--quick]

A folder that is there is taken as it is. Two threads train some 10 minutes."""

import json
import os
import pathlib
import random
import subprocess
import sys

import native

KINDS = ("json", "code", "plays")
_FIRST = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gia", "Hugo", "Ida", "Jon", "Kim", "Lea")
_CITIES = ("Berlin", "Lagos", "Lima", "Oslo", "Paris", "Quito", "Rome", "Seoul", "Tokyo", "Wien")
_STATES = ("active", "suspended", "invited")


def record(rng):
    name = rng.choice(_FIRST)
    return {
        "id": rng.randrange(10_000),
        "name": name,
        "email": f"{name.lower()}{rng.randrange(100)}@example.org",
        "address": {"city": rng.choice(_CITIES), "postcode": f"{rng.randrange(100_000):05d}"},
        "status": rng.choice(_STATES),
        "scores": [rng.randrange(100) for _ in range(3)],
    }


def records(seed, count):
    """A list of records, indented as people's files are."""
    rng = random.Random(seed)
    return json.dumps([record(rng) for _ in range(count)], indent=2)


def sources():
    """The C++ files in order; every tenth one is never trained on."""
    files = sorted((native.ROOT / "src").rglob("*.cc"))
    kept = files[::10]
    return [one for one in files if one not in kept], kept


def plays():
    path = native.ROOT.parent / "shared" / "data" / "text-shakespeare" / "input.txt"
    return path.read_text(encoding="utf-8")


def _corpus(folder, quick):
    used = sources()[0][: 20 if quick else None]
    text = plays()[: 100_000 if quick else 900_000]
    parts = {
        "json": "\n".join(records(seed, 12) for seed in range(20 if quick else 400)),
        "code": "\n".join(one.read_text(encoding="utf-8") for one in used),
        "plays": text,
    }
    paths = []
    for kind, part in parts.items():
        paths.append(folder / f"{kind}.txt")
        paths[-1].write_text(part, encoding="utf-8")
    return paths


def _run(*words):
    build = pathlib.Path(os.environ.get("TARN_BUILD", native.ROOT / "build"))
    subprocess.run([str(build / "tarn"), *map(str, words)], check=True)


def train(folder, quick=False):
    """The folders of the model and of the one that drafts."""
    folder = pathlib.Path(folder)
    model, draft = folder / "writer", folder / "draft"
    folder.mkdir(parents=True, exist_ok=True)
    data = _corpus(folder, quick)
    tokenizer = folder / "tokenizer.json"
    if not tokenizer.exists():
        _run("tokenize", "--train", *data, "--vocab", 1024, "--out", tokenizer)
    common = ["train", "--data", *data, "--tokenizer", "bpe", "--tokenizer-file", tokenizer]
    common += ["--seq-len", 256, "--seed", 1, "--overwrite", "--sample-every", 0, "--quiet"]
    common += ["--preset", "gdn", "--eval-windows", 64]
    sizes = ["--layers", "gdn,gdn,full", "--n-layers", 6, "--d-model", 256, "--n-heads", 4]
    small = ["--layers", "gdn", "--n-layers", 2, "--d-model", 128, "--n-heads", 4]
    tiny = ["--layers", "gdn", "--n-layers", 1, "--d-model", 32, "--n-heads", 2]
    for out, layers, steps in ((model, sizes, 500), (draft, small, 700)):
        if quick:
            layers, steps = [*tiny, "--batch", 2], 3
        if (out / "model.safetensors").exists():
            continue
        _run(*common, *layers, "--steps", steps, "--out", out, "--checkpoint-every", steps)
    return model, draft


if __name__ == "__main__":
    train(sys.argv[1], "--quick" in sys.argv)
