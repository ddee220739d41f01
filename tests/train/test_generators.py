"""The generators of data: ListOps against its goldens, names to phonemes."""

import gzip
import importlib.util
import json
import pathlib
import random
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = ROOT / "../shared/data/listops"


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"scripts/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


listops = load("make_listops")
pronunciations = load("make_pronunciations")


@pytest.mark.parametrize(
    "text, value",
    [
        ("[MAX 2 9 [MIN 4 7 ] 0 ]", 9),
        ("[SM 5 6 [MED 1 2 ] ]", 2),  # the middle of 1 and 2 is 1
        ("[MED 9 1 5 ]", 5),
        ("[MED 3 8 ]", 5),
        ("[MIN [MIN 7 ] ]", 7),
        ("3", 3),
    ],
)
def test_values_by_hand(text, value):
    assert listops.evaluate(text.split()) == value


@pytest.mark.parametrize("text", ["", "[MAX ]", "[MAX 1", "1 2", "]", "[AVG 1 2 ]", "[MAX x ]"])
def test_no_expression_is_refused(text):
    with pytest.raises(ValueError):
        listops.evaluate(text.split())


def test_published_test_set_agrees():
    path = SHARED / "test_d20s.tsv.gz"
    if not path.exists():
        pytest.skip("no ../shared/data/listops/test_d20s.tsv.gz")
    lines = gzip.open(path, "rt").read().splitlines()
    assert len(lines) == 10000
    wrong = [
        line
        for line in lines
        if listops.evaluate(line.split("\t")[1].split()) != int(line.split("\t")[0])
    ]
    assert not wrong


def test_a_set_holds_what_it_says(tmp_path):
    flags = [
        str(tmp_path),
        "--min-len",
        "20",
        "--max-len",
        "60",
        "--train",
        "300",
        "--valid",
        "40",
        "--test",
        "50",
        "--seed",
        "3",
    ]
    assert listops.main(flags) == 0
    facts = json.loads((tmp_path / "listops.json").read_text())
    seen = []
    for name, count in (("train", 300), ("valid", 40), ("test", 50)):
        rows = [line.split("\t") for line in (tmp_path / f"{name}.tsv").read_text().splitlines()]
        assert len(rows) == count == sum(facts["files"][name]["labels"].values())
        for label, text in rows:
            words = listops.from_characters(text)
            assert listops.evaluate(words) == int(label)
            # The definition of the length: digits, and two per operator.
            operators = sum(word.startswith("[") for word in words)
            assert 20 < sum(word.isdigit() for word in words) + 2 * operators < 60
        seen += [text for _, text in rows]
    assert len(set(seen)) == len(seen) == sum(facts["labels"].values())
    before = facts["sha256"]
    assert listops.main(flags) == 0
    assert json.loads((tmp_path / "listops.json").read_text())["sha256"] == before
    assert listops.main([*flags, "--seed", "4"]) == 0
    assert json.loads((tmp_path / "listops.json").read_text())["sha256"] != before


def test_trees_follow_the_definition():
    # Unbounded: shares of operators, children and depth.
    draw = random.Random(1)
    trees = [listops.draw_tree(draw, 10**9)[0] for _ in range(20000)]
    single = sum(len(tree) == 1 for tree in trees)
    # Three in four; five standard deviations of 61.
    assert abs(single - 15000) < 306
    letters = {letter: 0 for letter in "nxds"}
    children, depth = [], 0
    for tree in trees[:4000]:
        stack = []
        for letter in tree:
            if letter in letters:
                letters[letter] += 1
                stack.append(0)
                depth = max(depth, len(stack))
                continue
            if letter == "]":
                children.append(stack.pop())
            if stack:
                stack[-1] += 1
    # A closed operator counts as a child of the one around it.
    assert min(children) == 2 and max(children) == 10
    assert sum(children) / len(children) == pytest.approx(6, abs=0.2)
    # Depth 10 holds digits alone.
    assert depth == 9
    total = sum(letters.values())
    assert all(count == pytest.approx(total / 4, rel=0.1) for count in letters.values())


def test_bounds_that_hold_too_few_trees_are_said(tmp_path):
    assert (
        listops.main(
            [
                str(tmp_path),
                "--min-len",
                "0",
                "--max-len",
                "2",
                "--train",
                "20",
                "--valid",
                "0",
                "--test",
                "0",
            ]
        )
        == 2
    )
    with pytest.raises(SystemExit):
        listops.parse([str(tmp_path), "--min-len", "5", "--max-len", "6"])


def test_pronunciations(tmp_path):
    if shutil.which("espeak-ng") is None:
        pytest.skip("no espeak-ng: apt-get install espeak-ng")
    names = tmp_path / "names.txt"
    draw = random.Random(1)
    words = {"".join(draw.choices("aeimnorst", k=5)) for _ in range(700)}
    names.write_text("\n".join([*sorted(words), "Emma", "emma ", "zo\u00eb"]))
    command = [
        sys.executable,
        "-B",
        ROOT / "scripts/make_pronunciations.py",
        tmp_path,
        "--names",
        names,
        "--held-out",
        "50",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    facts = json.loads((tmp_path / "pronunciations.json").read_text())
    assert facts["kind"] == "synthetic" and "1." in facts["synthesiser"]
    sides = []
    for side in ("held_out", "train"):
        lines = (tmp_path / f"{side}.tsv").read_text("utf-8").splitlines()
        assert facts[side]["examples"] == len(lines)
        sides.append(dict(line.split("\t") for line in lines))
    held_out, train = sides
    assert len(held_out) == 50 and not held_out.keys() & train.keys()
    both = held_out | train
    assert len(both) == facts["names"] - facts["without_sound"]
    assert "emma" in both and "Emma" not in both
    # Batches give the same as single names: the order is kept.
    for name in ["emma", "zo\u00eb", *draw.sample(sorted(words), 20)]:
        one = pronunciations.pronounce_one(name, "en-us").replace(" ", "")
        assert both[name] == one
    assert not any(" " in ipa or "\t" in ipa for ipa in both.values())
    names.write_text("emma\nmixed 1\n")
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 3 and "names.txt:2" in refused.stderr
