"""The page of llama.cpp from results that are made up: what is bold, what is absent."""

import json

import measures
import pytest
import race_page
import report


def row(side, part, weights, rate=None, over=None, **more):
    line = {"side": side, "part": part, "weights": weights, "model": "m", "valid": True, **more}
    line |= {"threads": 2, "target": "AVX3", "median_ms": 1.0, "min_ms": 1.0, "repeats": 5}
    line |= {"cpu_per_wall": 2.0, "contended": False}
    if rate is not None:
        line["tokens_per_s"] = rate
    if over is not None:
        line["tarn_over"] = over
    return line


def decoded(weights, ours, theirs, depth=0):
    found = [row("llama.cpp", "decode", weights, theirs, depth=depth, share_of_read=0.5)]
    if ours is not None:
        found[0]["tarn_over"] = ours / theirs
        found.append(row("tarn", "decode", weights, ours, depth=depth, share_of_read=0.9))
    return found


def stored(rows, goals=()):
    name = f"{measures.RACE}:mamba2-130m"
    machine = {"cpu": "C", "cores": 2, "caches": "L2", "date": "2026-01-01", "memory_gib": 8}
    machine |= {"torch": "2", "torch_build": ["MKL"]}
    table = {"title": "T", "note": "N.", "rows": rows, "goals": list(goals), "plots": []}
    return {"AVX3": {name: table | {"machine": machine, "threads": 2}}}


def page(rows, goals=()):
    of = stored(rows, goals)
    lines = race_page.lines(of, str, report._GOAL_HEAD, report._goal_line)
    return "\n".join(lines)


def test_the_faster_side_decides_what_is_bold(monkeypatch):
    rows = decoded("bf16", 20.0, 25.0) + decoded("int8", 40.0, 30.0)
    text = page(rows)
    assert "**20.0 / 25.0, 0.80x**" in text
    assert "| 40.0 / 30.0, 1.33x |" in text and "**40.0" not in text
    assert "(1)" not in text
    monkeypatch.setitem(race_page.REASONS, ("decode", "bf16"), "tiles")
    text = page(rows)
    assert "**20.0 / 25.0, 0.80x** (1)" in text and "(1) tiles" in text


def test_what_tarn_did_not_run_is_a_dash():
    text = page(decoded("int4", None, 200.0))
    assert "| - / 200 |" in text and "x" not in text.split("| - / 200 |")[1].splitlines()[0]


def test_depths_have_tables_and_limits_that_moved_are_told():
    rows = decoded("f32", 20.0, 10.0) + decoded("f32", 10.0, 8.0, depth=4096)
    rows[-1]["valid"] = False
    text = page(rows)
    assert "after 0 tokens" in text and "after 4,096 tokens" in text
    assert "10.0 / 8.0, 1.25x, limits moved" in text


def test_missed_goals_are_listed_and_counted():
    goal = {"measure": "g1", "relation": ">=", "bound": 2.0, "unit": "x", "value": 1.0}
    goal |= {"holds": False, "valid": True, "beside": ""}
    met = goal | {"measure": "g2", "holds": True}
    shown = goal | {"measure": "g3", "holds": None}
    text = page(decoded("f32", 2.0, 1.0), [goal, met, shown])
    assert "1 of 2 goals are met" in text
    assert "g1" in text and "g2" not in text


def test_smaller_memory_is_the_better():
    rows = [
        row("tarn", "open", "f32", seconds_per_gb=0.2, resident_over_weights=1.04),
        row("llama.cpp", "open", "f32", seconds_per_gb=0.3, resident_over_weights=1.01),
    ]
    text = page(rows)
    assert "| 0.20 / 0.30 |" in text and "**1.04x / 1.01x**" in text


def test_the_report_links_the_page_and_keeps_its_own_goals(tmp_path):
    pytest.importorskip("matplotlib")
    goal = {"measure": "race goal", "relation": ">=", "bound": 2.0, "unit": "x", "value": 1.0}
    goal |= {"holds": False, "valid": True, "beside": ""}
    of = stored(decoded("f32", 2.0, 1.0), [goal])
    (tmp_path / "avx3.json").write_text(json.dumps(of["AVX3"]))
    report.write(tmp_path)
    readme = (tmp_path / "README.md").read_text()
    assert f"]({race_page.PAGE})" in readme and "race goal" not in readme
    assert "race goal" in (tmp_path / race_page.PAGE).read_text()
    (drawn,) = tmp_path.glob("*.svg")
    assert f"]({drawn.name})" in (tmp_path / race_page.PAGE).read_text()
    assert (tmp_path / race_page.PAGE).read_text().isascii()
    del of["AVX3"][f"{measures.RACE}:mamba2-130m"]
    assert race_page.lines(of, str, report._GOAL_HEAD, report._goal_line) == []
