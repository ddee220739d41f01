"""Classification and source-to-target: every architecture, files, errors."""

import json
import random
import shutil
import signal

import pytest
from conftest import figures, fortunes, log, products, stop, train

SMALL = (
    "--d-model 16 --n-layers 1 --n-heads 2 --batch 8 --accumulate 2 --seq-len 24 "
    "--lr 0.01 --warmup 5 --dropout 0.1 --threads 1 --steps 60 --eval-every 20 "
    "--checkpoint-every 7 --sample-every 0 --tokenizer char"
).split()


def labelled(count, seed=1):
    """Which of two letters is more common; an accented letter has two bytes."""
    draw = random.Random(seed)
    lines = set()
    while len(lines) < count:
        text = "".join(draw.choices("ab\u00e9", k=draw.randint(3, 20)))
        if text.count("a") != text.count("b"):
            label = "more a" if text.count("a") > text.count("b") else "more b"
            lines.add(f"{label}\t{text}\n")
    return "".join(sorted(lines))


def paired(count, seed=1):
    """Upper case of short words."""
    draw = random.Random(seed)
    words = set()
    while len(words) < count:
        words.add("".join(draw.choices("abcd\u00e9", k=draw.randint(1, 6))))
    return "".join(f"{word}\t{word.upper()}\n" for word in sorted(words))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "classify").write_text(labelled(600))
    (folder / "seq2seq").write_text(paired(600))
    (folder / "lm").write_text(fortunes(300))
    return folder


CASES = [
    ("encoder", "classify", []),
    ("encoder", "classify", ["--attention", "full", "--positions", "rotary"]),
    ("encoder", "classify", ["--attention", "reformer", "--norm", "post"]),
    ("encoder", "classify", ["--feature-map", "favor", "--n-dims", "16", "--redraw", "2"]),
    ("seq2seq", "seq2seq", []),
    ("seq2seq", "seq2seq", ["--attention", "full", "--n-decoder-layers", "2"]),
    ("rnn", "lm", []),
    ("lstm", "lm", []),
    ("cnn", "lm", []),
    ("rnn", "classify", []),
    ("lstm", "classify", ["--bidirectional", "true"]),
    ("cnn", "classify", []),
    ("decoder", "lm", ["--attention", "local", "--local-context", "8"]),
]


@pytest.mark.parametrize("arch, task, flags", CASES)
def test_every_architecture_learns(arch, task, flags, data, tmp_path):
    out = tmp_path / "run"
    result = train(
        "--arch", arch, "--task", task, "--data", data / task, "--out", out, *SMALL, *flags
    )
    assert result.returncode == 0, result.stderr
    lines = log(out)
    assert [line["step"] for line in lines] == list(range(1, 61))
    assert lines[-1]["val_loss"] < lines[0]["loss"] - 0.1
    figure = {
        "lm": "val_bits_per_byte",
        "classify": "val_accuracy",
        "seq2seq": "val_token_error_rate",
    }[task]
    assert [line["step"] for line in lines if figure in line] == [20, 40, 60]
    for folder in (out, out / "best"):
        model = json.loads((folder / "config.json").read_text())["model"]
        assert (model["arch"], model["task"]) == (arch, task)
        assert model["n_classes"] == (2 if task == "classify" else 0)
        if task == "classify":
            labels = json.loads((folder / "labels.json").read_text())
            assert labels == ["more a", "more b"]
        else:
            assert not (folder / "labels.json").exists()


def test_figures_of_labels_and_targets(data, tmp_path):
    for task, arch, figure in (
        ("classify", "encoder", "accuracy"),
        ("seq2seq", "seq2seq", "token error rate"),
    ):
        out = tmp_path / task
        result = train(
            "--arch", arch, "--data", data / task, "--out", out, *SMALL, "--sample-every", "60"
        )
        assert result.returncode == 0, result.stderr
        last = log(out)[-1]
        share = last["val_accuracy" if task == "classify" else "val_token_error_rate"]
        assert f"held out {figure} {100 * share:.2f} %" in result.stdout
        # There may be more edits than tokens: a decoded target can be too long.
        assert share >= 0 and "bits_per_byte" not in last
        assert " -> " in result.stderr
        assert ("accuracy" in last) == (task == "classify")
        # Tokens of the data: every input once an epoch, and targets.
        assert last["tokens"] > 60 * 16


@pytest.mark.parametrize(
    "arch, task, more",
    [
        ("encoder", "classify", []),
        # Random features are redrawn by the step, not by what ran before.
        ("encoder", "classify", ["--feature-map", "favor", "--n-dims", "16", "--redraw", "4"]),
        ("seq2seq", "seq2seq", []),
        ("lstm", "classify", ["--bidirectional", "true"]),
    ],
)
def test_a_resumed_run_makes_the_same_bits(arch, task, more, data, tmp_path):
    flags = ["--arch", arch, "--task", task, "--data", data / task, *SMALL, *more]
    straight, out = tmp_path / "straight", tmp_path / "out"
    assert train(*flags, "--out", straight).returncode == 0
    # Stopped twice: by Ctrl-C, which saves, and by a kill, which does not.
    for number, at in ((signal.SIGINT, 10), (signal.SIGKILL, 33)):
        stop(number, at, out, *flags)
    result = train("--out", out, "--resume")
    assert result.returncode == 0, result.stderr
    assert products(out) == products(straight)
    assert figures(out) == figures(straight)
    labels = "labels.json"
    if task == "classify":
        assert (out / labels).read_bytes() == (straight / labels).read_bytes()


def test_a_file_held_out_whole(data, tmp_path):
    held_out = tmp_path / "held"
    first, *rest = paired(600).splitlines(keepends=True)
    held_out.write_text(first + "zz\tZZ\n")
    flags = ["--arch", "seq2seq", "--data", data / "seq2seq", *SMALL, "--steps", "3"]
    result = train(*flags, "--held-out", held_out, "--out", tmp_path / "run")
    assert result.returncode == 0, result.stderr
    assert f"{len(rest)} examples to learn (0 duplicates and 1 held out dropped), 2 held out" in (
        result.stderr
    )
    # A language model too; another text is another run there.
    text = tmp_path / "text"
    text.write_text(fortunes(40, 8))
    flags = ["--data", data / "lm", "--held-out", text, *SMALL, "--steps", "3"]
    result = train(*flags, "--out", tmp_path / "lm")
    assert result.returncode == 0, result.stderr
    assert f"held out {len(text.read_bytes())}" in result.stderr
    text.write_text(fortunes(40, 9))
    again = train("--out", tmp_path / "lm", "--resume")
    assert again.returncode == 3 and "another text" in again.stderr


def test_init_keeps_labels_and_their_order(data, tmp_path):
    flags = [*SMALL, "--arch", "encoder"]
    first = tmp_path / "first"
    assert train("--data", data / "classify", "--out", first, *flags).returncode == 0
    # The data have one label of the two; a model still knows both.
    other = tmp_path / "other"
    lines = labelled(300, 5).splitlines(keepends=True)
    other.write_text("".join(line for line in lines if line.startswith("more b")))
    out = tmp_path / "out"
    short = ["--batch", 4, "--seq-len", 24, "--steps", 5, "--threads", 1, "--sample-every", 0]
    result = train("--init", first, "--data", other, "--out", out, *short)
    assert result.returncode == 0, result.stderr
    assert (out / "labels.json").read_bytes() == (first / "labels.json").read_bytes()
    other.write_text("less\tab\nless\tba\n")
    refused = train("--init", first, "--data", other, "--out", tmp_path / "x", *short)
    assert refused.returncode == 3 and "other:" in refused.stderr and "label" in refused.stderr
    # Labels that are missing, or too many for the model.
    broken = tmp_path / "broken"
    shutil.copytree(first, broken)
    (broken / "labels.json").write_text('["a", "b", "c"]')
    refused = train("--init", broken, "--data", data / "classify", "--out", tmp_path / "x", *short)
    assert refused.returncode == 3 and "labels.json" in refused.stderr


ERRORS = {
    "no tab": (3, ["--arch", "encoder", "--data", "{tmp}/notab"], "notab:2"),
    "empty target": (3, ["--arch", "seq2seq", "--data", "{tmp}/empty"], "empty:1"),
    "too long": (3, ["--arch", "encoder", "--data", "{tmp}/long"], "long:2"),
    "not UTF-8": (
        3,
        ["--arch", "encoder", "--data", "{tmp}/bytes", "--tokenizer", "char"],
        "bytes:1",
    ),
    "one label": (3, ["--arch", "encoder", "--data", "{tmp}/one"], "labels"),
    "task of arch": (2, ["--arch", "decoder", "--task", "classify", "--data", "{tmp}/one"], "task"),
    "rnn to targets": (2, ["--arch", "rnn", "--task", "seq2seq", "--data", "{tmp}/one"], "task"),
    "long rows": (
        2,
        ["--arch", "encoder", "--data", "{tmp}/one", "--long-every", "4"],
        "--long-every",
    ),
    "records": (2, ["--arch", "seq2seq", "--data", "{tmp}/one", "--records", "block"], "--records"),
    "metric": (
        2,
        ["--arch", "seq2seq", "--data", "{tmp}/one", "--eval-metric", "accuracy"],
        "--eval-metric",
    ),
    "classes": (2, ["--arch", "encoder", "--data", "{tmp}/one", "--n-classes", "3"], "--n-classes"),
    "no held-out file": (3, ["--data", "{tmp}/one", "--held-out", "{tmp}/none"], "none"),
    "all held out": (
        3,
        ["--arch", "seq2seq", "--data", "{tmp}/one", "--held-out", "{tmp}/one"],
        "hold out",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_come_before_work_in_one_line(case, tmp_path):
    code, flags, named = ERRORS[case]
    (tmp_path / "notab").write_text("a\tb\nno tab here\n")
    (tmp_path / "empty").write_text("a\t\nb\tc\n")
    (tmp_path / "long").write_text("a\tb\nb\t" + "c" * 200 + "\n")
    (tmp_path / "bytes").write_bytes(b"a\t\xff\nb\tc\n")
    (tmp_path / "one").write_text("a\tb\na\tc\n")
    flags = [flag.format(tmp=tmp_path) for flag in flags]
    result = train(*flags, "--out", tmp_path / "out")
    assert result.returncode == code, result.stderr
    assert result.stdout == "" and result.stderr.count("\n") == 1
    assert named in result.stderr
    assert not (tmp_path / "out" / "model.safetensors").exists()
