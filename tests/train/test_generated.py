"""Generated rows, and genomes: the program from end to end."""

import gzip
import json
import os
import pathlib
import random
import subprocess

import pytest
from conftest import figures, log, products, train

COPY = (
    "--generator copy --symbols 5 --seq-len 31 --d-model 32 --n-layers 1 --n-heads 2 --batch 8 "
    "--accumulate 2 --lr 0.003 --schedule constant --dropout 0.1 --warmup 5 --threads 1 --steps 40 "
    "--eval-every 10 --eval-windows 24 --checkpoint-every 7 --sample-every 0"
).split()
TARN = os.environ.get("TARN_PROGRAM")


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    out = tmp_path_factory.mktemp("straight") / "run"
    result = train("--out", out, *COPY)
    assert result.returncode == 0, result.stderr
    return out


def test_figures_and_files(straight):
    lines = log(straight)
    assert len(lines) == 40
    for line in lines:
        assert 0 <= line["accuracy"] <= 1 and "bits_per_byte" not in line
        assert ("val_accuracy" in line) == ("val_loss" in line) == (line["step"] % 10 == 0)
    assert lines[-1]["val_loss"] < lines[9]["val_loss"]
    # n + 1 targets of each of 640 rows, n from 7 to 14.
    assert 640 * 8 <= lines[-1]["tokens"] <= 640 * 15
    model = json.loads((straight / "config.json").read_text())["model"]
    assert model["tokenizer"] == "ids" and model["vocab_size"] == 6
    tokenizer = json.loads((straight / "tokenizer.json").read_text())
    assert tokenizer == {"format_version": 1, "type": "ids", "vocab_size": 6}


def test_a_resumed_run_makes_the_same_bits(straight, tmp_path):
    """The rate is constant, so that the first half is a run of 20 steps."""
    out = tmp_path / "run"
    half = [*COPY]
    half[half.index("--steps") + 1] = "20"
    assert train("--out", out, *half).returncode == 0
    result = train("--out", out, *COPY, "--resume")
    assert result.returncode == 0, result.stderr
    assert figures(out) == figures(straight)
    assert products(out) == products(straight)
    # Another generator is another run.
    changed = train("--out", out, *COPY, "--resume", "--symbols", "6")
    assert changed.returncode == 2 and "--symbols" in changed.stderr


@pytest.mark.parametrize(
    "flags, named",
    [
        (["--generator", "copy", "--data", "x"], "--data"),
        (["--generator", "copy", "--symbols", "1"], "--symbols"),
        (["--generator", "copy", "--seq-len", "4"], "--seq-len"),
        (["--generator", "sort"], "none|copy|mqar"),
        (["--generator", "mqar", "--seq-len", "63"], "--seq-len"),
        (["--generator", "mqar", "--seq-len", "64", "--pairs", "17"], "--pairs"),
        (["--generator", "mqar", "--seq-len", "64", "--symbols", "64"], "--symbols"),
        (["--generator", "copy", "--arch", "seq2seq"], "task"),
        (["--generator", "copy", "--eval-metric", "error"], "--eval-metric"),
        (
            ["--tokenizer", "ids", "--data", __file__],
            "--generator: want a generator for --tokenizer ids, got none",
        ),
    ],
)
def test_wrong_use_is_one_line(tmp_path, flags, named):
    result = train("--out", tmp_path / "run", "--steps", "5", "--d-model", "8", *flags)
    assert result.returncode == 2, result.stderr
    assert named in result.stderr.splitlines()[0]
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_recall_trains_and_stays_finite(tmp_path):
    result = train(
        "--out",
        tmp_path / "run",
        "--preset",
        "mqar",
        "--d-model",
        "16",
        "--batch",
        "4",
        "--steps",
        "6",
        "--eval-every",
        "3",
        "--eval-windows",
        "8",
        "--threads",
        "1",
        "--attention",
        "full",
        "--mqar-distract",
        "true",
    )
    assert result.returncode == 0, result.stderr
    assert "held out loss" in result.stderr + result.stdout
    assert log(tmp_path / "run")[-1]["tokens"] == 6 * 4 * 8


GENOME = (
    "--d-model 16 --n-layers 1 --n-heads 2 --batch 2 --seq-len 32 --steps 4 --threads 1 "
    "--eval-every 2 --eval-windows 8 --sample-every 0 --records fasta"
).split()


def test_a_packed_genome_trains_like_its_letters(tmp_path):
    draw = random.Random(1)
    letters = "".join(draw.choices("ACGT", k=9000))
    lines = [letters[i : i + 60].lower() for i in range(0, len(letters), 60)]
    genome = "\n".join([">g one", *lines, ""])
    (tmp_path / "g.fa").write_text(genome)
    (tmp_path / "g.fa.gz").write_bytes(gzip.compress(genome.encode()))
    (tmp_path / "letters").write_text(letters)
    plain = [flag for flag in GENOME if flag not in ("--records", "fasta")]
    runs = {"g.fa": GENOME, "g.fa.gz": GENOME, "letters": [*plain, "--records", "block"]}
    found = []
    for name, flags in runs.items():
        result = train("--data", tmp_path / name, "--out", tmp_path / f"run-{name}", *flags)
        assert result.returncode == 0, result.stderr
        found.append(figures(tmp_path / f"run-{name}"))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    "bad",
    [
        b"ACGT",
        b">a\nAC1\n",
        b">a\n",
        b">a\n>b\nA\n",
        b"\x1f\x8b\x08\x00",
        gzip.compress(b">a\nACGT\n" * 99)[:-4],
    ],
)
def test_bad_genomes_are_refused_before_any_work(tmp_path, bad):
    (tmp_path / "bad").write_bytes(bad)
    result = train("--data", tmp_path / "bad", "--out", tmp_path / "run", *GENOME)
    assert result.returncode == 3, result.stderr
    assert len(result.stderr.splitlines()) == 1 and "bad" in result.stderr
    assert not (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.skipif(not TARN, reason="TARN_PROGRAM names no program tarn")
def test_the_runtime_speaks_ids(straight):
    done = subprocess.run(
        [TARN, "generate", str(straight), "--prompt", "1 2 3 0", "--max-tokens", "5", "--json"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    words = json.loads(done.stdout)["text"].split()
    assert len(words) == 5 and all(0 <= int(word) < 6 for word in words)
    assert pathlib.Path(straight, "tokenizer.json").exists()
