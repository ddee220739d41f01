"""A run that was stopped, in whatever way, ends in the same bits."""

import itertools
import json
import os
import random
import shutil
import signal

import pytest
from conftest import PROGRAM, TINY, figures, log, products, start, stop, train


def lines(out):
    try:
        return (out / "log.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def names(out, part):
    try:
        return [n for n in os.listdir(out) if part in n]
    except FileNotFoundError:
        return []


def kill_when(condition, *flags):
    """Starts a run, kills it once condition() holds; True if that happened."""
    process = start(*flags)
    while process.poll() is None:
        if condition():
            process.kill()
            break
    process.communicate()
    return process.returncode == -signal.SIGKILL


def moments(out, draw):
    """Conditions, each of which becomes true later in a run than the one before
    it."""
    return [
        # Before any file exists, while libraries load.
        lambda: True,
        # The first checkpoint, half written. The writing of a file is short and may be
        # missed: then a few lines later, so that no run ends by itself.
        lambda: names(out, "checkpoint-0.tmp") or lines(out) >= 1,
        # Between two checkpoints, at a line drawn at random.
        *(lambda n=n: lines(out) >= n for n in draw.sample(range(1, 13), 2)),
        # While a later checkpoint, a best model, a last model is written.
        lambda: names(out, "checkpoint-21.tmp") or lines(out) >= 24,
        lambda: (names(out, "best-") and lines(out) >= 29) or lines(out) >= 32,
        lambda: (names(out, "model.safetensors.tmp") and lines(out) >= 35) or lines(out) >= 37,
        lambda: (names(out, "checkpoint.old") and lines(out) >= 38) or lines(out) >= 41,
        *(lambda n=n: lines(out) >= n for n in draw.sample(range(43, 56), 2)),
    ]


def assert_same(out, straight):
    assert products(out) == products(straight)
    assert figures(out) == figures(straight)
    left = sorted(os.listdir(out))
    assert left == sorted(os.listdir(straight)), "leftovers"


def test_killed_anywhere_ends_in_the_same_bits(text, straight, tmp_path):
    draw = random.Random(20)
    # On a busy machine a run may end before its moment is seen: then everything is
    # repeated, in a new folder.
    for attempt in itertools.count():
        out = tmp_path / f"run-{attempt}"
        flags = ["--data", text, "--out", out, *TINY, "--resume"]
        killed = sum(kill_when(moment, *flags) for moment in moments(out, draw))
        result = train(*flags)
        assert result.returncode == 0, result.stderr
        assert_same(out, straight)
        if killed >= 6:
            break


def test_killed_between_the_renames_of_a_checkpoint(text, straight, tmp_path):
    out = tmp_path / "run"
    stop(signal.SIGKILL, 20, out, "--data", text, *TINY)
    # The folder as it is at exactly that moment; the kill itself may have come
    # close to it.
    if (out / "checkpoint").exists():
        shutil.rmtree(out / "checkpoint.old", ignore_errors=True)
        (out / "checkpoint").rename(out / "checkpoint.old")
    shutil.copytree(out / "checkpoint.old", out / "checkpoint-21.tmp", dirs_exist_ok=True)
    result = train("--out", out, "--resume")
    assert result.returncode == 0, result.stderr
    assert_same(out, straight)


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_save_and_say_how_to_resume(number, code, text, straight, tmp_path):
    out = tmp_path / "a run"
    process, stderr = stop(number, 10, out, "--data", text, *TINY)
    assert process.returncode == code
    step = json.loads((out / "checkpoint/train.json").read_text())["step"]
    assert step == lines(out) >= 10
    command = stderr.decode().strip().splitlines()[-1].split("continue with: ")[1]
    assert command == f"tarn train --out '{out}' --resume"
    # The command as it is, except for the name of the program.
    assert os.system(command.replace("tarn train", PROGRAM) + " 2>&1") == 0
    assert_same(out, straight)


def test_a_finished_run_stays_as_it_is(text, straight):
    before = products(straight)
    result = train("--out", straight, "--resume")
    assert result.returncode == 0
    assert "bits per byte" in result.stdout
    assert products(straight) == before and len(log(straight)) == 60


@pytest.mark.parametrize(
    "flags, named",
    [
        (["--lr", "0.5"], "--lr"),
        (["--threads", "1"], "--threads"),
        (["--d-model", "32"], "--d-model"),
        (["--seed", "4"], "--seed"),
        (["--steps", "61"], "--steps"),
        (["--dropout", "0"], "--dropout"),
        (["--preset", "demo"], "--"),
    ],
)
def test_other_options_are_refused_by_name(flags, named, straight):
    result = train("--out", straight, "--resume", *flags)
    assert result.returncode == 2
    assert named in result.stderr and result.stderr.count("\n") == 1


def test_other_text_is_refused(straight, tmp_path):
    other = tmp_path / "other"
    other.write_text("one\n%\ntwo\n%\nthree\n")
    result = train("--out", straight, "--resume", "--data", other)
    assert result.returncode == 3 and "text" in result.stderr


def test_broken_checkpoints_are_refused(straight, tmp_path):
    for name in ("train.json", "model.safetensors", "optimizer.safetensors"):
        out = tmp_path / name
        shutil.copytree(straight, out)
        path = out / "checkpoint" / name
        path.write_bytes(path.read_bytes()[:-20])
        result = train("--out", out, "--resume")
        assert result.returncode == 3, name
        assert result.stderr.strip().splitlines()[-1].startswith("tarn train:")


def test_more_steps_of_a_constant_rate(text, tmp_path):
    flags = [*TINY, "--schedule", "constant", "--eval-every", "100"]
    short, long = tmp_path / "short", tmp_path / "long"
    assert train("--data", text, "--out", short, *flags, "--steps", 20).returncode == 0
    assert train("--out", short, "--resume", "--steps", 40).returncode == 0
    assert train("--data", text, "--out", long, *flags, "--steps", 40).returncode == 0
    weights = "model.safetensors"
    assert (short / weights).read_bytes() == (long / weights).read_bytes()
