"""Writes the logits of tests/golden/stored_models.

    python make_stored_models.py RUNS

RUNS holds what `tarn train` left after 12 updates of small models, one folder per model.
The logits are those of tarn.runtime on one thread, and the inputs are also in
tests/python/models/test_stored_models.py. The stored models are from an early build: a
change of their logits is a change of what published files mean.
"""

import json
import pathlib
import shutil
import sys

import numpy as np

import tarn.runtime

TOKENS = [7, 31, 64, 3, 99, 12, 0, 45, 77, 101, 5, 5]


def logits(model, arch):
    if arch == "encoder":
        return model.classify(["abc3", "def11, odd"])
    if arch == "seq2seq":
        return model.score(model.encode_source("abc7"), [10, 120, 121, 122, 55])
    return model.score(model.state(), TOKENS)


def main():
    to = pathlib.Path(__file__).parent / "stored_models"
    for run in sorted(path for path in pathlib.Path(sys.argv[1]).iterdir() if path.is_dir()):
        out = to / run.name
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        for name in ("config.json", "model.safetensors", "tokenizer.json", "labels.json"):
            if (run / name).exists():
                shutil.copy(run / name, out / name)
        arch = json.loads((out / "config.json").read_text())["model"]["arch"]
        model = tarn.runtime.Model(out, threads=1)
        np.save(out / "logits.npy", np.asarray(logits(model, arch), np.float32))


main()
