"""Early stopping: `--patience N` ends a run by counts of evaluations alone."""

import json
import random
import shutil

import pytest
from conftest import TINY, WORDS, figures, log, products, train

# A rate at which held-out losses soon rise: the run ends long before its steps.
RISING = [
    *TINY,
    "--threads",
    "1",
    "--lr",
    "0.3",
    "--schedule",
    "constant",
    "--eval-every",
    "2",
    "--long-every",
    "0",
    "--steps",
    "400",
    "--patience",
]
SAME = ("model.safetensors", "checkpoint/optimizer.safetensors")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    draw = random.Random(7)
    path = tmp_path_factory.mktemp("patience") / "text"
    path.write_text("".join(" ".join(draw.choices(WORDS, k=9)) + "\n" for _ in range(300)))
    return path


def stop_of(lines, patience, figure, higher_is_better=False):
    """(last step, best step) that the log's own held-out figures ask for."""
    best, best_step, worse = None, 0, 0
    for line in lines:
        if figure not in line:
            continue
        value = -line[figure] if higher_is_better else line[figure]
        if best is None or value < best:
            best, best_step, worse = value, line["step"], 0
        else:
            worse += 1
        if worse == patience:
            return line["step"], best_step
    raise AssertionError(f"{patience} evaluations in a row were never worse")


def ran(*flags):
    done = train(*flags)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("patience", [1, 3])
def test_a_run_stops_at_the_evaluation_that_its_log_says(text, tmp_path, patience):
    out = tmp_path / "run"
    done = ran("--data", text, "--out", out, *RISING, patience)
    lines = log(out)
    last, best = stop_of(lines, patience, "val_bits_per_byte")
    assert lines[-1]["step"] == last < 400
    assert (
        f"stopped early: {patience} evaluations in a row (--patience) were not better than "
        in done.stdout
    )
    assert f" at step {best}, the model in {out}/best\n" in done.stdout
    state = json.loads((out / "checkpoint" / "train.json").read_text())
    assert (state["step"], state["best_step"], state["since_best"]) == (last, best, patience)
    assert products(out)["model.safetensors"] == products(out)["checkpoint/model.safetensors"]


def test_a_resumed_run_stops_where_the_whole_one_does(text, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    ran("--data", text, "--out", whole, *RISING, 3)
    last = log(whole)[-1]["step"]
    # Each part ends inside the count, at an evaluation that does not count. So few
    # steps leave no room for a patience, which only the last part has.
    ran("--data", text, *RISING, 0, "--out", parts, "--steps", last - 3)
    ran("--out", parts, "--resume", "--steps", last - 1)
    ran("--out", parts, "--resume", "--steps", 400, "--patience", 3)
    assert [products(parts)[name] for name in SAME] == [products(whole)[name] for name in SAME]
    kept = [
        [{k: v for k, v in line.items() if not k.startswith("val_")} for line in figures(run)]
        for run in (parts, whole)
    ]
    assert kept[0] == kept[1]


def test_resuming_a_stopped_run_trains_no_further_unless_its_patience_grows(text, tmp_path):
    out = tmp_path / "run"
    first = ran("--data", text, "--out", out, *RISING, 2)
    before = products(out), log(out)
    again = ran("--out", out, "--resume")
    assert "stopped early" in again.stdout and "stopped early" in first.stdout
    assert (products(out), log(out)) == before
    stopped = before[1][-1]["step"]
    more = ran("--out", out, "--resume", "--patience", 0, "--steps", 400)
    assert "stopped early" not in more.stdout
    lines = log(out)
    assert lines[: len(before[1])] == before[1]
    assert lines[-1]["step"] == 400 > stopped
    # As if it had never stopped.
    whole = tmp_path / "whole"
    ran("--data", text, "--out", whole, *RISING, 0)
    assert figures(whole) == figures(out)
    assert products(whole)["model.safetensors"] == products(out)["model.safetensors"]


def test_it_goes_by_the_metric_of_the_run(tmp_path):
    draw = random.Random(5)
    data = tmp_path / "labels.tsv"
    data.write_text(
        "".join(f"{draw.choice('xyz')}\t{''.join(draw.choices('abcd', k=9))}\n" for _ in range(200))
    )
    small = [*RISING[:-1], "--arch", "encoder", "--data", data, "--lr", "0.05", "--patience", 2]
    for metric, figure, higher in (("auto", "val_accuracy", True), ("loss", "val_loss", False)):
        out = tmp_path / metric
        done = ran(*small, "--out", out, "--eval-metric", metric)
        lines = log(out)
        last, best = stop_of(lines, 2, figure, higher)
        assert lines[-1]["step"] == last
        assert f" at step {best}, the model in {out}/best\n" in done.stdout


def test_all_ranks_stop_at_one_step(text, tmp_path):
    flags = ["--data", text, *RISING, 2, "--dropout", "0"]
    ran(*flags, "--out", tmp_path / "one")
    two = tmp_path / "two"
    done = ran(*flags, "--out", two, "--ranks", 2)
    last, best = stop_of(log(two), 2, "val_bits_per_byte")
    assert log(two)[-1]["step"] == last
    assert f" at step {best}, the model in {two}/best\n" in done.stdout
    # A resumed run of two ranks is over at once as well.
    shutil.copytree(two, tmp_path / "copy")
    again = ran("--out", tmp_path / "copy", "--resume", "--ranks", 2)
    assert "stopped early: 2" in again.stdout
    assert figures(tmp_path / "copy") == figures(two)


def test_a_patience_that_cannot_end_the_run_is_refused_before_any_work(text, tmp_path):
    result = train("--data", text, "--out", tmp_path / "out", *RISING, 200)
    assert result.returncode == 2 and result.stdout == ""
    assert "--patience: want at most 198 with --eval-every 2 and --steps 400" in result.stderr
    assert not (tmp_path / "out").exists()
