"""Images as sequences of bytes, from tiny files in the official formats."""

import gzip
import json
import math
import random
import shutil
import signal
import struct

import pytest
from conftest import figures, log, products, stop, train

SMALL = (
    "--task image --d-model 16 --n-layers 1 --n-heads 2 --batch 4 --accumulate 2 "
    "--positions sinusoidal --position-combine concat --norm post --optimizer radam "
    "--lr 0.01 --warmup 0 --dropout 0.1 --threads 1 --steps 60 --eval-every 20 "
    "--checkpoint-every 7 --sample-every 0"
).split()
HEIGHT, WIDTH = 6, 8


def pictures(count, seed=1):
    """A bright bar across a dark ground, with a little noise."""
    draw = random.Random(seed)
    images = []
    for _ in range(count):
        row = draw.randrange(HEIGHT)
        images.append(
            bytes(
                draw.randint(230, 255) if y == row else draw.randint(0, 20)
                for y in range(HEIGHT)
                for _ in range(WIDTH)
            )
        )
    return images


def idx(images):
    return struct.pack(">4I", 2051, len(images), HEIGHT, WIDTH) + b"".join(images)


def cifar(count, seed=1):
    draw = random.Random(seed)
    return b"".join(
        bytes([draw.randrange(10)]) + bytes([draw.randrange(256)]) * 3072 for _ in range(count)
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    (folder / "train").write_bytes(idx(pictures(300)))
    (folder / "test").write_bytes(idx(pictures(40, 2)))
    (folder / "train.gz").write_bytes(gzip.compress(idx(pictures(300))))
    (folder / "cifar").write_bytes(cifar(12))
    return folder


@pytest.fixture(scope="module")
def straight(data, tmp_path_factory):
    """A run of 60 steps without interruptions."""
    out = tmp_path_factory.mktemp("straight") / "run"
    result = train("--data", data / "train", "--held-out", data / "test", "--out", out, *SMALL)
    assert result.returncode == 0, result.stderr
    return out, result


def test_figures_and_files_of_a_run(straight):
    out, result = straight
    lines = log(out)
    assert [line["step"] for line in lines] == list(range(1, 61))
    always = {
        "step",
        "loss",
        "bits_per_dim",
        "lr",
        "grad_norm",
        "tokens",
        "tokens_per_s",
        "elapsed_s",
        "cpu_s",
        "device",
        "precision",
    }
    for line in lines:
        looked = {"val_loss", "val_bits_per_dim"} if line["step"] % 20 == 0 else set()
        assert set(line) == always | looked
        assert line["bits_per_dim"] == pytest.approx(line["loss"] / math.log(2), rel=1e-6)
    # The first byte of an image is given: one less is predicted.
    assert lines[-1]["tokens"] == 60 * 2 * 4 * (HEIGHT * WIDTH - 1)
    assert lines[-1]["val_bits_per_dim"] < lines[0]["bits_per_dim"] - 0.5
    assert f"held out {lines[-1]['val_bits_per_dim']:.4f} bits/dim" in result.stdout
    assert "300 images of 6 x 8 x 1 to learn (0 held out dropped), 40 held out" in result.stderr
    assert "bits/dim" in result.stderr
    config = json.loads((out / "config.json").read_text())
    assert config["image"] == {"n_mixtures": 10, "height": 6, "width": 8, "channels": 1}
    want = {"task": "image", "vocab_size": 256, "tokenizer": "byte"}
    assert {key: config["model"][key] for key in want} == want
    assert (out / "tokenizer.json").exists() and not (out / "labels.json").exists()


def test_packed_data_and_rows_split_otherwise_make_the_same_run(data, straight, tmp_path):
    flags = ["--held-out", data / "test", *SMALL]
    assert train("--data", data / "train.gz", "--out", tmp_path / "gz", *flags).returncode == 0
    assert figures(tmp_path / "gz") == figures(straight[0])
    # 8 x 1 images are those of 4 x 2; without dropout the mean is the same.
    logs = []
    for batch, accumulate in ((4, 2), (8, 1)):
        out = tmp_path / f"batch{batch}"
        more = ["--batch", batch, "--accumulate", accumulate, "--dropout", 0, "--steps", 5]
        assert train("--data", data / "train", "--out", out, *flags, *more).returncode == 0
        logs.append([line["loss"] for line in log(out)])
    assert logs[0] == pytest.approx(logs[1], rel=1e-4)


@pytest.mark.parametrize(
    "more", [[], ["--attention", "full", "--positions", "learned", "--position-combine", "add"]]
)
def test_a_resumed_run_makes_the_same_bits(more, data, straight, tmp_path):
    flags = ["--data", data / "train", "--held-out", data / "test", *SMALL, *more]
    whole, out = straight[0], tmp_path / "out"
    if more:
        whole = tmp_path / "whole"
        assert train(*flags, "--out", whole).returncode == 0
    for number, at in ((signal.SIGINT, 10), (signal.SIGKILL, 33)):
        stop(number, at, out, *flags)
    result = train("--out", out, "--resume")
    assert result.returncode == 0, result.stderr
    assert products(out) == products(whole)
    assert figures(out) == figures(whole)
    seconds = [line["cpu_s"] for line in log(out)]
    assert seconds == sorted(seconds)


def test_pooled_and_coloured(data, tmp_path):
    flags = [*SMALL, "--steps", "2", "--eval-every", "2"]
    out = tmp_path / "pooled"
    assert train("--data", data / "train", "--pool", 2, "--out", out, *flags).returncode == 0
    assert json.loads((out / "config.json").read_text())["image"]["width"] == WIDTH // 2
    out = tmp_path / "cifar"
    result = train("--data", data / "cifar", "--pool", 8, "--out", out, *flags, "--sample-every", 2)
    assert result.returncode == 0, result.stderr
    image = json.loads((out / "config.json").read_text())["image"]
    assert (image["height"], image["channels"]) == (4, 3)
    assert "first held-out image: upper half" in result.stderr
    assert log(out)[-1]["tokens"] == 2 * 2 * 4 * (4 * 4 * 3 - 1)


def test_going_on_from_a_model_and_another_pool(data, straight, tmp_path):
    flags = [
        "--init",
        straight[0],
        "--data",
        data / "train",
        "--steps",
        2,
        "--threads",
        1,
        "--sample-every",
        0,
    ]
    assert train(*flags, "--out", tmp_path / "next").returncode == 0
    refused = train(*flags, "--pool", 2, "--out", tmp_path / "small")
    assert refused.returncode == 3 and "6 x 8 x 1" in refused.stderr
    out = tmp_path / "again"
    shutil.copytree(straight[0], out)
    refused = train("--out", out, "--resume", "--pool", 2)
    assert refused.returncode == 2 and "--pool" in refused.stderr


ERRORS = {
    "truncated": (3, ["--data", "{tmp}/cut"], "want 14416 bytes for 300 images of 6 x 8 x 1, got"),
    "too long": (3, ["--data", "{tmp}/long"], "got 14417 bytes"),
    "cut off gzip": (3, ["--data", "{tmp}/cut.gz"], "cut off"),
    "text": (3, ["--data", "{tmp}/text"], "magic 2051"),
    "labels": (3, ["--data", "{tmp}/labels"], "labels (magic 2049)"),
    "standard input": (2, ["--data", "-"], "--data"),
    "odd pool": (2, ["--data", "{tmp}/good", "--pool", "4"], "pool"),
    "length": (2, ["--data", "{tmp}/good", "--seq-len", "47"], "--seq-len"),
    "one image": (3, ["--data", "{tmp}/good", "--held-out", "{tmp}/good"], "hold one out"),
    "missing": (3, ["--data", "{tmp}/none"], "none"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_come_before_work_in_one_line(case, tmp_path):
    code, flags, named = ERRORS[case]
    good = idx(pictures(300))
    (tmp_path / "good").write_bytes(good)
    (tmp_path / "cut").write_bytes(good[:-1])
    (tmp_path / "long").write_bytes(good + b"x")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(good)[:-5])
    (tmp_path / "text").write_text("no image\n")
    (tmp_path / "labels").write_bytes(struct.pack(">2I", 2049, 1) + b"1")
    flags = [flag.format(tmp=tmp_path) for flag in flags]
    result = train("--task", "image", *flags, "--out", tmp_path / "out")
    assert result.returncode == code, result.stderr
    assert result.stdout == "" and result.stderr.count("\n") == 1
    assert named in result.stderr
    assert not (tmp_path / "out" / "model.safetensors").exists()


def test_plateau_lowers_the_rate_and_resumes_to_the_bit(data, tmp_path):
    flags = [
        "--data",
        data / "train",
        "--held-out",
        data / "test",
        *SMALL,
        "--schedule",
        "plateau",
        "--decay-patience",
        2,
        "--decay-factor",
        0.5,
        "--eval-every",
        2,
        "--checkpoint-every",
        3,
        "--lr",
        0.05,
        "--lr-min",
        0.002,
        "--steps",
        80,
    ]
    whole, out = tmp_path / "whole", tmp_path / "out"
    assert train(*flags, "--out", whole).returncode == 0
    # The rate that follows from the log's own held-out figures.
    rate, best, waited = 0.05, math.inf, 0
    for line in log(whole):
        assert line["lr"] == pytest.approx(max(rate, 0.002), rel=1e-8)
        if "val_bits_per_dim" not in line:
            continue
        waited = 0 if line["val_bits_per_dim"] < best else waited + 1
        best = min(best, line["val_bits_per_dim"])
        if waited == 2:
            rate, waited = rate / 2, 0
    assert rate < 0.05
    state = json.loads((whole / "checkpoint" / "train.json").read_text())
    assert state["plateau_drops"] == round(math.log2(0.05 / rate))
    # Stopped in the middle, at a step without an evaluation; then two more parts.
    for steps in (37, 61, 80):
        begin = flags if steps == 37 else []
        result = train(*begin, "--out", out, "--resume", "--steps", steps)
        assert result.returncode == 0, result.stderr
    same = ("model.safetensors", "checkpoint/optimizer.safetensors")
    assert [products(out)[name] for name in same] == [products(whole)[name] for name in same]
    assert [line["lr"] for line in log(out)] == [line["lr"] for line in log(whole)]
