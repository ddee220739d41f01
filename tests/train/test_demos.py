"""The demonstrations, cut to a few steps on a little data."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from conftest import PROGRAM

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(PROGRAM).resolve().parent


def demo(name, out):
    environment = dict(os.environ, OUT=str(out), BUILD=str(BUILD), STEPS="12", THREADS="1")
    done = subprocess.run(
        [sys.executable, "-B", "scripts/run_demo.py", name],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads((out / f"{name}.json").read_text())


@pytest.mark.skipif(not (BUILD / "tarn").exists(), reason="the program tarn is not built")
@pytest.mark.parametrize("name", ["names", "listops"])
def test_a_demo_trains_evaluates_and_is_not_repeated(name, tmp_path):
    data = tmp_path / "data" / name
    data.mkdir(parents=True)
    # Targets are their sources twice; labels are first characters.
    words = [f"{i * 7919 % 1000:03d}" for i in range(400)]
    pairs = [(w, w + w) if name == "names" else (w[0], w) for w in words]
    lines = [f"{a}\t{b}\n" for a, b in pairs]
    (data / "train.tsv").write_text("".join(lines[:350]))
    held_out = "held_out.tsv" if name == "names" else "test.tsv"
    (data / held_out).write_text("".join(lines[350:]))
    (data / f"{name}.json").write_text('{"kind": "a test"}')
    table, results = demo(name, tmp_path)
    assert results["data"] == {"kind": "a test"}
    for attention in ("softmax", "linear"):
        run = results["runs"][attention]
        assert run["steps"] == 12 and run["threads"] == 1 and run["parameters"] > 100_000
        assert [verdict["examples"] for verdict in run["runtime"]] == [50] * len(run["runtime"])
        if name == "listops":
            # Trainer and lean runtime agree, except for at most one borderline example.
            # (Targets of an untrained model do not end, and the two have different limits.)
            assert run["runtime"][0]["accuracy"] == pytest.approx(run["val_accuracy"], abs=0.021)
        assert [s["want"] for s in run["samples"]] == [
            (b if name == "names" else a) for a, b in pairs[350:355]
        ]
        assert f"\n{attention} " in table
    if name == "listops":
        first = [w[0] for w in words]
        common = max(sorted(set(first[:350])), key=first[:350].count)
        assert results["majority"] == first[350:].count(common) / 50
    before = (tmp_path / f"{name}-linear" / "log.jsonl").stat().st_mtime_ns
    again, _ = demo(name, tmp_path)
    assert again == table
    assert (tmp_path / f"{name}-linear" / "log.jsonl").stat().st_mtime_ns == before


@pytest.mark.skipif(not (BUILD / "tarn").exists(), reason="the program tarn is not built")
def test_a_recorded_chat(tmp_path):
    page = ROOT / "docs" / "demonstrations" / "chat.txt"
    before = page.read_bytes()
    done = subprocess.run(
        [sys.executable, "-B", "scripts/record_chat.py"],
        cwd=ROOT,
        env=dict(os.environ, OUT=str(tmp_path), BUILD=str(BUILD), STEPS="12"),
        capture_output=True,
        encoding="utf-8",
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr
    assert page.read_bytes() == before  # of a model that was trained for longer
    given, wanted = done.stdout.split("\n"), before.decode().split("\n")
    # The files and the command; answers are those of a model that knows nothing.
    start = wanted.index("$ tarn chat talk --temperature 0 < messages") + 1
    assert given[:start] == wanted[:start]
    lines = [line for line in given[start:] if line.startswith(("branch ", "last turn ", "state "))]
    assert len(lines) == 7 and given[-2] == "saved 3 turns to talk.json"
