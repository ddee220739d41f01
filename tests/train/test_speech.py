"""Task ctc: recordings of speakers in, letters out; every architecture, resume,
errors."""

import io
import json
import math
import pathlib
import random
import signal
import struct
import tarfile

import pytest
from conftest import digest, figures, log, stop, train

RATE = 8000
SMALL = (
    "--task ctc --d-model 24 --n-layers 1 --n-heads 2 --batch 4 --accumulate 2 --seq-len 120 "
    "--lr 0.01 --warmup 5 --dropout 0.1 --threads 1 --steps 40 --eval-every 20 "
    "--checkpoint-every 7 --sample-every 0 --test-speakers cy --held-out-speakers bo"
).split()


def wav(samples):
    """One channel of 16 bits."""
    data = struct.pack(f"<{len(samples)}h", *samples)
    head = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, RATE, 2 * RATE, 2, 16)
    body = b"WAVE" + head + struct.pack("<4sI", b"data", len(data)) + data
    return struct.pack("<4sI", b"RIFF", len(body)) + body


# Two of five pitches for each digit: a single one would be the mean of its utterance.
PITCHES = [(a, b) for a in range(5) for b in range(5) if a < b]


def tone(digit, speaker, index):
    """0.2 to 0.3 s; two pitches say the digit, speakers differ a little."""
    draw = random.Random(f"{digit} {speaker} {index}")
    shift = {"al": 1.0, "bo": 1.03, "cy": 0.97}[speaker]
    count = draw.randint(1600, 2400)
    values = []
    for i in range(count):
        pitch = shift * (300 + 600 * PITCHES[digit][2 * i > count])
        values.append(int(9000 * math.sin(2 * math.pi * pitch * i / RATE)) + draw.randint(-90, 90))
    return wav(values)


def recordings():
    return {
        f"{digit}_{speaker}_{index}.wav": tone(digit, speaker, index)
        for digit in range(10)
        for speaker in ("al", "bo", "cy")
        for index in range(2)
    }


# Windows of 25 ms every 10 ms over the recordings of "al"; 44 bytes are the header.
EPOCH_FRAMES = sum(
    1 + ((len(contents) - 44) // 2 - 200) // 80
    for name, contents in recordings().items()
    if "_al_" in name
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    (folder / "set" / "recordings").mkdir(parents=True)
    with tarfile.open(folder / "set.tar.gz", "w:gz") as archive:
        for name, contents in recordings().items():
            (folder / "set" / "recordings" / name).write_bytes(contents)
            member = tarfile.TarInfo(f"set/recordings/{name}")
            member.size = len(contents)
            archive.addfile(member, io.BytesIO(contents))
    (folder / "set" / "metadata.py").write_text("no recording")
    return folder


@pytest.mark.parametrize(
    "flags",
    [
        ["--arch", "encoder"],
        ["--arch", "encoder", "--attention", "full", "--join-frames", "90", "--augment", "1"],
        ["--arch", "encoder", "--attention", "reformer", "--hash-chunk", "8", "--bits", "4"],
        ["--arch", "lstm", "--bidirectional", "true"],
    ],
    ids=lambda flags: "-".join(flags[1:4]),
)
def test_every_model_learns(flags, data, tmp_path):
    out = tmp_path / "run"
    result = train("--data", data / "set", "--out", out, *SMALL, *flags)
    assert result.returncode == 0, result.stderr
    lines = log(out)
    assert lines[-1]["loss"] < lines[0]["loss"] - 0.5
    looks = [line for line in lines if "val_loss" in line]
    assert [line["step"] for line in looks] == [20, 40]
    for line in looks:
        assert line["test_loss"] > 0 and line["val_token_error_rate"] <= 1.5
        assert line["test_token_error_rate"] > 0
        assert line["epoch_tokens"] == EPOCH_FRAMES
    # Tokens are frames: 18 to 28 for each of 40 x 8 recordings that are not joined.
    if "--join-frames" not in flags:
        assert 18 * 320 <= lines[-1]["tokens"] <= 28 * 320
    for folder in (out, out / "best"):
        model = json.loads((folder / "config.json").read_text())["model"]
        assert (model["task"], model["n_classes"], model["input_dim"]) == ("ctc", 16, 40)
        labels = json.loads((folder / "labels.json").read_text())
        assert labels == ["", *"efghinorstuvwxz"]
        assert not (folder / "tokenizer.json").exists()


@pytest.mark.parametrize(
    "flags",
    [
        # Twenty recordings would soon be memorised without the changes of voice.
        [
            "--arch",
            "encoder",
            "--attention",
            "full",
            "--augment",
            0.3,
            "--lr",
            0.003,
            "--steps",
            500,
        ],
        ["--arch", "lstm", "--bidirectional", "true", "--steps", 200],
    ],
    ids=lambda flags: flags[1],
)
def test_letters_of_tones_are_learned(flags, data, tmp_path):
    """Ten pairs of pitches are read, also those of an unseen speaker, with half the
    errors that blanks alone would make (a quarter of them as measured)."""
    out = tmp_path / "run"
    flags = [
        *SMALL,
        "--d-model",
        48,
        "--dropout",
        0,
        *flags,
        "--eval-every",
        100,
        "--sample-every",
        100,
    ]
    result = train("--data", data / "set", "--out", out, *flags)
    assert result.returncode == 0, result.stderr
    last = log(out)[-1]
    assert last["val_token_error_rate"] < 0.5 and last["test_token_error_rate"] < 0.5
    rate = min(line["val_token_error_rate"] for line in log(out) if "val_token_error_rate" in line)
    assert f"best token error rate {100 * rate:.2f} %" in result.stdout
    assert " -> " in result.stderr


def made(out):
    names = [
        "model.safetensors",
        "config.json",
        "labels.json",
        "checkpoint/model.safetensors",
        "checkpoint/optimizer.safetensors",
        "best/model.safetensors",
    ]
    return {name: digest(pathlib.Path(out) / name) for name in names}


@pytest.mark.parametrize("arch", [["encoder"], ["lstm", "--bidirectional", "true"]])
def test_a_resumed_run_makes_the_same_bits(arch, data, tmp_path):
    """An archive can replace its folder, also half way."""
    flags = [*SMALL, "--arch", *arch, "--join-frames", 60, "--augment", 0.7]
    straight, out = tmp_path / "straight", tmp_path / "out"
    assert train("--data", data / "set", *flags, "--out", straight).returncode == 0
    stop(signal.SIGKILL, 10, out, "--data", data / "set", *flags)
    result = train("--data", data / "set.tar.gz", "--out", out, "--resume")
    assert result.returncode == 0, result.stderr
    assert made(out) == made(straight)
    assert figures(out) == figures(straight)


ERRORS = {
    "no speaker of that name": (2, ["--held-out-speakers", "dora"], "--held-out-speakers"),
    "two sides": (2, ["--test-speakers", "bo"], "--held-out-speakers"),
    "too long": (2, ["--seq-len", "20"], "--seq-len"),
    "joined too long": (2, ["--join-frames", "121"], "--seq-len"),
    "held-out file": (2, ["--held-out", "x"], "--held-out"),
    "two sets": (2, ["--data", "{set}"], "--data"),
    "augment": (2, ["--augment", "1.5"], "--augment"),
    "metric": (2, ["--eval-metric", "accuracy"], "--eval-metric"),
    "classes": (2, ["--arch", "decoder"], "task"),
    "records": (2, ["--records", "block"], "--records"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_come_before_work_in_one_line(case, data, tmp_path):
    code, flags, named = ERRORS[case]
    flags = [flag.format(set=data / "set") for flag in flags]
    result = train(
        "--data", data / "set", "--arch", "encoder", *SMALL, *flags, "--out", tmp_path / "out"
    )
    assert result.returncode == code, result.stderr
    assert result.stdout == "" and result.stderr.count("\n") == 1
    assert named in result.stderr
    assert not (tmp_path / "out" / "model.safetensors").exists()


def test_other_tasks_refuse_the_flags_of_speech(text, tmp_path):
    for flag, value in (
        ("--join-frames", 9),
        ("--augment", 1),
        ("--test-speakers", "a"),
        ("--held-out-speakers", "a"),
    ):
        result = train("--data", text, "--out", tmp_path / "out", flag, value)
        assert result.returncode == 2 and flag in result.stderr and "ctc" in result.stderr


@pytest.mark.parametrize("change", ["cut", "stereo", "name", "empty"])
def test_hostile_recordings_are_named(change, data, tmp_path):
    folder = tmp_path / "set"
    folder.mkdir()
    for name, contents in recordings().items():
        (folder / name).write_bytes(contents)
    bad = folder / "3_al_0.wav"
    contents = bytearray(bad.read_bytes())
    if change == "cut":
        bad.write_bytes(contents[:-1])
    elif change == "stereo":
        contents[22] = 2
        bad.write_bytes(contents)
    elif change == "empty":
        bad.write_bytes(b"")
    else:
        bad = bad.rename(folder / "three_al_0.wav")
    result = train("--data", folder, "--arch", "encoder", *SMALL, "--out", tmp_path / "out")
    assert result.returncode == 3, result.stderr
    assert bad.name in result.stderr and result.stderr.count("\n") == 1
