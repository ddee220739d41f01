"""Runs tarn-train on a small text; TARN_TRAIN names the program."""

import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess

import pytest

PROGRAM = os.environ.get("TARN_TRAIN", "build/tarn-train")
WORDS = (
    "state key value query step token the a of and runs train like an rnn "
    "write read long short sum weight past never grows constant time"
).split()
# Small, and with everything that could differ after a resume: dropout,
# accumulated gradients, evaluations on held-out text.
TINY = (
    "--d-model 16 --n-layers 2 --n-heads 2 --batch 2 --accumulate 2 "
    "--seq-len 16 --long-every 4 --warmup 5 --steps 60 --dropout 0.1 --threads 2 "
    "--eval-every 15 --eval-windows 20 --checkpoint-every 7 --sample-every 0"
).split()


def train(*flags, **options):
    """Runs it to the end; the result has returncode, stdout, stderr."""
    command = [PROGRAM, *map(str, flags)]
    options = {"stdin": subprocess.DEVNULL, "timeout": 1200} | options
    if "input" in options:
        del options["stdin"]
    result = subprocess.run(command, capture_output=True, **options)
    for stream in ("stdout", "stderr"):
        text = getattr(result, stream)
        setattr(result, stream, text.decode("utf-8", "replace"))
    return result


def start(*flags):
    """Starts and returns the process."""
    return subprocess.Popen(
        [PROGRAM, *map(str, flags)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def stop(number, line, folder, *flags):
    """Starts a run into `folder` and sends it signal `number` once its log has
    `line` lines; returns the process and its standard error. On a busy machine a
    run may finish before the line is seen here: then it is started again from
    scratch."""
    path = pathlib.Path(folder) / "log.jsonl"
    while True:
        process = start(*flags, "--out", folder, "--resume")
        while process.poll() is None:
            if path.exists() and path.read_bytes().count(b"\n") >= line:
                process.send_signal(number)
                break
        _, errors = process.communicate(timeout=600)
        if process.returncode != 0:
            return process, errors
        shutil.rmtree(folder)


def log(folder):
    lines = (pathlib.Path(folder) / "log.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def figures(folder):
    """The log without the fields of time and rate."""
    timed = ("tokens_per_s", "elapsed_s", "cpu_s")
    return [{key: value for key, value in line.items() if key not in timed} for line in log(folder)]


def digest(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def products(folder):
    """Everything of a finished run that must not depend on interruptions."""
    names = ("model.safetensors", "config.json", "tokenizer.json")
    files = [*names, *(f"best/{name}" for name in names)]
    files += ["checkpoint/model.safetensors", "checkpoint/optimizer.safetensors"]
    return {name: digest(pathlib.Path(folder) / name) for name in files}


def fortunes(records, seed=1):
    draw = random.Random(seed)
    lines = (" ".join(draw.choices(WORDS, k=draw.randint(3, 25))) for _ in range(records))
    return "".join(f"{line}.\n%\n" for line in lines)


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "fortunes"
    path.write_text(fortunes(400))
    return path


@pytest.fixture(scope="session")
def straight(text, tmp_path_factory):
    """A run of 60 steps without interruptions."""
    out = tmp_path_factory.mktemp("straight") / "run"
    result = train("--data", text, "--out", out, *TINY)
    assert result.returncode == 0, result.stderr
    return out
