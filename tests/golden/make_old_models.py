"""Wrote tests/golden/old_models with the last build whose format was 3.

    python make_old_models.py RUNS

RUNS holds what that build's `tarn train` left after 12 updates of small models,
one folder per model, named format1-... to format3-...: config.json of formats 1
and 2 is format 3's up to the last key of that format. The logits are those of
that build's tarn.runtime on one thread; the inputs are also in CASES of
tests/python/models/test_old_models.py.
"""
import json
import pathlib
import shutil
import sys

import numpy as np

import tarn.runtime

LAST_KEY = {1: "tokenizer", 2: "kernel_size"}
TOKENS = [7, 31, 64, 3, 99, 12, 0, 45, 77, 101, 5, 5]


def logits(model, arch):
    if arch == "encoder":
        return model.classify(["abc3", "def11, odd"])
    if arch == "seq2seq":
        return model.score(model.encode_source("abc7"), [10, 120, 121, 122, 55])
    return model.score(model.state(), TOKENS)


def main():
    to = pathlib.Path(__file__).parent / "old_models"
    for run in sorted(pathlib.Path(sys.argv[1]).glob("format*")):
        out = to / run.name
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        for name in ("model.safetensors", "tokenizer.json", "labels.json"):
            if (run / name).exists():
                shutil.copy(run / name, out / name)
        config = json.loads((run / "config.json").read_text())
        version = int(run.name[len("format")])
        keys = list(config)
        if version in LAST_KEY:
            keys = keys[: keys.index(LAST_KEY[version]) + 1]
        kept = {key: config[key] for key in keys} | {"format_version": version}
        (out / "config.json").write_text(json.dumps(kept, indent=2) + "\n")
        model = tarn.runtime.Model(out, threads=1)
        np.save(out / "logits.npy", np.asarray(logits(model, config["arch"]), np.float32))


main()
