"""Each measure once, tiny, and the report that is written from all of them."""

import json
import os
import pathlib
import subprocess
import sys

import harness
import measures
import pytest
import report
import results

import native

ROOT = native.ROOT
PEERS = ROOT / ".venv-peers/bin/python"
OWN = [name for name, one in measures.ALL.items() if not one.peers and not one.missing()]


def run(python, *words):
    done = subprocess.run(
        [python, str(ROOT / "bench/run.py"), *words],
        capture_output=True,
        text=True,
        timeout=2400,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A report of every measure that needs no peer."""
    out = tmp_path_factory.mktemp("report")
    shown = run(sys.executable, "--quick", "--only", ",".join(OWN), "--out", str(out))
    return out, shown


def test_every_measure_is_stored_and_shown(written):
    out, shown = written
    (path,) = out.glob("*.json")
    stored = json.loads(path.read_text())
    assert list(stored) == OWN
    goals, rows = ((out / name).read_text() for name in ("README.md", "rows.md"))
    for table in stored.values():
        assert table["rows"], table["title"]
        assert table["title"] in rows and table["title"] in shown
        assert table["machine"]["target"] == native.simd_target()
        for goal in table["goals"]:
            assert goal["measure"] in goals
    assert goals.isascii() and rows.isascii()
    drawn = {f"{path.stem}-{plot['name']}.svg" for t in stored.values() for plot in t["plots"]}
    assert drawn == {one.name for one in out.glob("*.svg")} and drawn
    assert all(f"]({name})" in goals for name in drawn)


def test_a_table_that_is_measured_again_takes_its_old_place(written):
    out, _ = written
    (path,) = out.glob("*.json")
    before = list(json.loads(path.read_text()))
    run(sys.executable, "--quick", "--only", "idle", "--out", str(out))
    assert list(json.loads(path.read_text())) == before


@pytest.mark.skipif(not PEERS.exists(), reason="no .venv-peers (make bench-peers)")
@pytest.mark.parametrize("name", [n for n, one in measures.ALL.items() if one.peers])
def test_measures_with_peers(name):
    if measures.ALL[name].missing():
        pytest.skip(f"needs {measures.ALL[name].missing()}")
    shown = run(str(PEERS), "--quick", "--dry", "--only", name)
    assert " ms" in shown


@pytest.mark.skipif(not PEERS.exists(), reason="no .venv-peers (make bench-peers)")
def test_both_sides_compute_one_thing():
    code = "import peer_fast_transformers as p, native;p.check_causal_product(native.simd_target())"
    environment = dict(os.environ, PYTHONPATH=f"{ROOT}/bench:{ROOT}/python")
    build = pathlib.Path(os.environ.get("TARN_BUILD", ROOT / "build"))
    environment["TARN_LIBRARY"] = str(build / "libtarn_pytorch.so")
    done = subprocess.run([str(PEERS), "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_forms_of_recurrences_compute_one_thing():
    pytest.importorskip("transformers")
    code = (
        "import torch; from measures import families\n"
        "for name, _ in families.FORMS:\n"
        "    reads, calls = families._calls(name, families._Operands(192, 16))\n"
        "    wanted = calls.pop('tarn')(*reads)\n"
        "    for call in calls.values():\n"
        "        torch.testing.assert_close(call(*reads), wanted, rtol=1e-4, atol=1e-5)\n"
    )
    environment = dict(os.environ, PYTHONPATH=f"{ROOT}/bench:{ROOT}/python")
    build = pathlib.Path(os.environ.get("TARN_BUILD", ROOT / "build"))
    environment["TARN_LIBRARY"] = str(build / "libtarn_pytorch.so")
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_unknown_measures_are_refused():
    done = subprocess.run(
        [sys.executable, str(ROOT / "bench/run.py"), "--only", "forwards"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "forwards" in done.stderr


def test_goals_know_their_target_and_direction():
    target = native.simd_target()
    table = results.Table("t", "T")
    table.goal("a", {target: 6}, 5.9)
    table.goal("b", results.at_most(1.1), 1.09)
    table.goal("c", {"other": 6}, 5.9)
    table.goal("d", {target: 6}, None)
    assert [g["holds"] for g in table.goals] == [False, True, None, None]


def test_the_crossing_is_between_the_points():
    points = [(64, 0.5), (128, 2.0), (256, 8.0)]
    assert harness.crossing(points) == pytest.approx(64 * 2**0.5)
    assert harness.crossing([(64, 1.5), (128, 2.0)]) == 64
    assert harness.crossing([(64, 1.5), (128, 0.5)]) is None


def test_torch_forms_agree_with_the_operator():
    import tarn
    import torch
    import torch_forms

    q, k, v = (torch.randn(2, 128, 3, 16) for _ in range(3))
    wanted = tarn.ops.linear_attention(q, k, v)
    for form in torch_forms.CHUNKED.values():
        assert (form(q, k, v) - wanted).abs().max() < 1e-4


def test_every_machine_of_a_target_is_named():
    """Tables of two machines: each machine once, with what was measured there."""
    facts = {
        "cores": 2,
        "caches": "L2",
        "memory_gib": 8,
        "date": "2026-01-01",
        "torch": "2",
        "torch_build": ["AVX512"],
    }
    tables = {
        name: {"machine": {**facts, "cpu": cpu}}
        for name, cpu in (("decode", "A"), ("share", "B"), ("length", "A"))
    }
    lines = list(report._machine_lines("AVX3", tables))
    assert [line.split(",")[0] for line in lines] == ["- **AVX3**: A", "- **AVX3**: B"]
    assert lines[0].endswith("measured there: decode, length") and lines[1].endswith(": share")
    del tables["share"]
    assert "measured there" not in "".join(report._machine_lines("AVX3", tables))


def test_figures_are_rounded_in_storage():
    assert report._rounded({"a": [1.23456789]}) == {"a": [1.2346]}
