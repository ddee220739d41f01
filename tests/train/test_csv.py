"""A CSV file with a header trains a classifier, or says with its line why it cannot."""

import csv
import gzip
import json
import random

import pytest
from conftest import figures, products, train

SMALL = (
    "--d-model 16 --n-layers 1 --n-heads 2 --batch 8 --seq-len 40 --lr 0.01 --warmup 5 --threads 1 "
    "--steps 12 --eval-every 6 --sample-every 0 --tokenizer char"
).split()


def rows(count=300):
    """(label, text); some texts have what CSV must quote."""
    draw = random.Random(3)
    found = []
    for i in range(count):
        text = "".join(draw.choices("ab", k=draw.randint(3, 9)))
        label = "more a" if 2 * text.count("a") > len(text) else "less a"
        found.append((label, text + (', "so"' if i % 5 == 0 else "") + f" {i}"))
    return found


def write(path, table, header=("label", "text"), **form):
    with open(path, "w", newline="", encoding=form.pop("encoding", "utf-8")) as file:
        writer = csv.writer(file, **form)
        writer.writerow(header)
        writer.writerows(table)
    return path


def test_the_same_examples_as_a_file_with_tabs(tmp_path):
    table = rows()
    (tmp_path / "x.tsv").write_text("".join(f"{label}\t{text}\n" for label, text in table))
    plain = write(tmp_path / "x.csv", table)
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    swapped = [(i, text, label) for i, (label, text) in enumerate(table)]
    others = [
        (plain, []),
        (tmp_path / "x.csv.gz", []),
        (
            write(
                tmp_path / "bom.CSV",
                table,
                encoding="utf-8-sig",
                lineterminator="\n",
                quoting=csv.QUOTE_ALL,
            ),
            [],
        ),
        (
            write(tmp_path / "named.csv", swapped, ("id", "review", "stars")),
            ["--text-column", "review", "--label-column", "stars"],
        ),
    ]
    runs = []
    for i, (path, flags) in enumerate([(tmp_path / "x.tsv", []), *others]):
        out = tmp_path / f"out{i}"
        done = train("--arch", "encoder", "--data", path, "--out", out, *SMALL, *flags)
        assert done.returncode == 0, done.stderr
        runs.append((figures(out), products(out)["model.safetensors"]))
        assert json.loads((out / "labels.json").read_text()) == ["less a", "more a"]
    assert all(run == runs[0] for run in runs)
    # The columns are part of the run.
    again = train("--out", tmp_path / "out4", "--resume", "--text-column", "id")
    assert again.returncode == 2 and "--text-column: want review" in again.stderr


@pytest.mark.parametrize(
    "text, code, words",
    [
        (
            "review,stars\na,b\n",
            3,
            ":1: want a header with columns 'label' and 'text', or the names",
        ),
        ("label,text\nx,y\nz\n", 3, ":3: want 2 fields, as in the header, got 1"),
        ('label,text\nx,"y\n\nz\n', 3, ":2: want a closing quote"),
        ("label,text\nx,\n", 3, ":2: want column 'text' not empty"),
        ("label;text\nx;y\n", 3, "(fields are separated by commas)"),
        (
            "label,text\nx," + "y" * (1 << 21) + "\n",
            3,
            ":2: want a record of at most 1048576 bytes",
        ),
    ],
)
def test_hostile_files_end_with_status_3_and_the_line(text, code, words, tmp_path):
    (tmp_path / "x.csv").write_text(text)
    done = train(
        "--arch", "encoder", "--data", tmp_path / "x.csv", "--out", tmp_path / "out", *SMALL
    )
    assert done.returncode == code and done.stdout == "", done.stderr
    assert words in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "out" / "model.safetensors").exists()


def test_columns_need_a_task_that_has_them(tmp_path):
    path = write(tmp_path / "x.csv", rows(20))
    done = train("--data", path, "--out", tmp_path / "out", "--text-column", "text")
    assert done.returncode == 2
    assert "--text-column: want a task with labels or targets (--arch encoder" in done.stderr
