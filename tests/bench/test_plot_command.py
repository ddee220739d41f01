"""`tarn plot`: logs of runs as a picture, in the terminal and as TensorBoard's events."""

import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARN = pathlib.Path(os.environ.get("TARN_BUILD", ROOT / "build")) / "tarn"


def plot(*words, **environment):
    return subprocess.run(
        [str(TARN), "plot", *map(str, words)],
        text=True,
        capture_output=True,
        env=os.environ | environment,
        timeout=120,
    )


def run_of(folder, losses):
    folder.mkdir()
    rows = [{"step": 10 * (i + 1), "loss": loss, "lr": 0.1} for i, loss in enumerate(losses)]
    rows[-1]["val_loss"] = losses[-1] + 0.5
    (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture
def runs(tmp_path):
    return run_of(tmp_path / "one", [4.0, 3.0, 2.0]), run_of(tmp_path / "two", [4.0, 3.5, 3.25])


def test_the_terminal_shows_every_run_and_its_last_value(runs):
    done = plot(*runs)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("loss\n") and not done.stderr
    assert "* one: 2.5\n" in done.stdout and "+ two: 3.75\n" in done.stdout
    lr = plot(*runs, "--key", "lr")
    assert lr.stdout.startswith("lr\n") and "one: 0.1" in lr.stdout


def test_a_picture_has_a_line_for_each_run(runs, tmp_path):
    out = tmp_path / "curves.svg"
    done = plot(*runs, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "one: 2.5" in out.read_text() and "two: 3.75" in out.read_text()


def test_events_hold_the_figures_of_the_log(runs, tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for _ in range(2):  # the second writes in place of the first
        assert plot(*runs, "--tensorboard", tmp_path / "events").returncode == 0
    for name, last in (("one", 2.0), ("two", 3.25)):
        events = accumulator.EventAccumulator(str(tmp_path / "events" / name))
        events.Reload()
        loss = events.Scalars("loss/training")
        assert [one.step for one in loss] == [10, 20, 30] and loss[-1].value == last
        assert events.Scalars("loss/held out")[0].value == last + 0.5


def test_what_is_no_log_is_refused(runs, tmp_path):
    missing = plot(tmp_path / "none")
    assert missing.returncode == 3 and "want a file that can be read" in missing.stderr
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"step": 1, "loss": 2}\nnot json\n')
    done = plot(bad)
    assert done.returncode == 3 and "bad.jsonl:2: want a row of a training log" in done.stderr
    bad.write_text("[" * 70_000)
    assert plot(bad).returncode == 3
    key = plot(runs[0], "--key", "speed")
    assert key.returncode == 2 and "--key: want one of loss, lr" in key.stderr
    form = plot(runs[0], "--out", "curves.gif")
    assert form.returncode == 2 and ".svg or .png" in form.stderr


def test_without_tensorboard_it_says_what_to_install(runs, tmp_path):
    (tmp_path / "hidden" / "tensorboard").mkdir(parents=True)
    (tmp_path / "hidden" / "tensorboard" / "__init__.py").write_text("raise ImportError('hidden')")
    done = plot(*runs, "--tensorboard", tmp_path / "events", PYTHONPATH=str(tmp_path / "hidden"))
    assert done.returncode == 1 and "pip install tensorboard" in done.stderr
    assert not (tmp_path / "events").exists()


def test_a_line_that_is_being_written_is_left_out(runs):
    with open(runs[0] / "log.jsonl", "a") as log:
        log.write('{"step": 40, "lo')
    assert plot(runs[0]).returncode == 0
