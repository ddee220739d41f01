"""Figures have the same bytes each time, those of the repository included, and
benchmarks print without matplotlib."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as tree

import plots
import pytest

import native
import report
import plotting

ROOT = native.ROOT
DOCS = ROOT / "docs"
CURVE = {
    "name": "c",
    "kind": "log-log",
    "title": "a < b",
    "x": "N",
    "y": "ms",
    "series": {"tarn": [(1, 2.0), (10, 30.0)], "x": [(1, 5.0)], "bound: y": [(1, 1), (10, 1)]},
}
BARS = {
    "name": "b",
    "kind": "bars",
    "title": "c",
    "x": "ms",
    "y": "",
    "series": {"tarn": 1.0, "y": 2.0},
}


def pinned():
    """Whether matplotlib is the one that drew the committed figures."""
    pin = re.search(r"^matplotlib==(.+)$", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    return pin and importlib.metadata.version("matplotlib") == pin.group(1)


def run(*words, **environment):
    return subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )


def draw_log(log, out, **environment):
    """What `tarn plot LOG --out OUT` hands over to."""
    environment.setdefault("PYTHONPATH", str(ROOT))
    return run("-m", "plotting", log, "--out", out, **environment)


@pytest.mark.parametrize("plot", [CURVE, BARS], ids=["lines", "bars"])
def test_plots_are_svg_with_text_and_no_date(plot):
    drawn = plots.draw(plot)
    assert drawn == plots.draw(plot)
    root = tree.fromstring(drawn)
    assert root.tag.endswith("svg")
    words = "".join(root.itertext())
    assert all(one in words for one in (plot["title"], plot["x"], *plot["series"]))
    assert b"dc:date" not in drawn
    assert plots.draw(plot, "png") == plots.draw(plot, "png")
    assert plots.draw(plot, "png").startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="form: want svg or png, got 'gif'"):
        plots.draw(plot, "gif")


@pytest.mark.skipif(not pinned(), reason="not the matplotlib of requirements.txt")
def test_committed_figures_are_what_their_results_tell():
    drawn = {}
    for path in (DOCS / "benchmarks").glob("*.json"):
        drawn |= report.drawn_figures(path.stem, json.loads(path.read_text()))
    committed = {one.name: one.read_bytes() for one in (DOCS / "benchmarks").glob("*.svg")}
    assert set(drawn) == set(committed)
    changed = [name for name in drawn if drawn[name] != committed[name]]
    assert not changed, "run `bench/run.py --report`"


def test_machines_of_one_target_have_columns_and_figures_of_their_own(tmp_path):
    """avx3.json and avx3_amd.json: neither's figures are taken for stale ones of the other."""
    goal = {
        "measure": "a ratio",
        "relation": ">=",
        "bound": 2.0,
        "unit": "x",
        "value": 3.0,
        "holds": True,
        "valid": True,
        "beside": "",
    }
    facts = {
        "cpu": "A",
        "cores": 2,
        "caches": "L2",
        "memory_gib": 8,
        "date": "2026-01-01",
        "torch": "2",
        "torch_build": ["AVX512"],
    }
    for name, value in (("avx3", 3.0), ("avx3_amd", 1.5)):
        goals = [goal | {"value": value, "holds": value >= 2}]
        table = {
            "title": "Forward",
            "note": "",
            "rows": [],
            "goals": goals,
            "machine": facts,
            "plots": [CURVE | {"name": "forward"}],
        }
        (tmp_path / f"{name}.json").write_text(json.dumps({"forward": table}))
    for _ in range(2):
        done = run(DOCS.parent / "bench" / "run.py", "--report", "--out", tmp_path)
        assert done.returncode == 0, done.stderr
        assert {one.name for one in tmp_path.glob("*.svg")} == {
            "avx3-forward.svg",
            "avx3_amd-forward.svg",
        }
    page = (tmp_path / "README.md").read_text()
    assert "| measure | target | measured | met | notes |" in page
    first, operators = (
        page.index("| a ratio | 2.00x | 3.00x | yes |  |"),
        page.index("### Operators"),
    )
    assert first < operators  # the first screen, then a table a machine
    assert (
        page.index("\nAVX3: ", operators)
        < page.index("| 3.00x |", operators)
        < page.index("\nAVX3 on AMD: ", operators)
        < page.index("| a ratio | 2.00x | 1.50x | **no** |  |")
    )
    assert "- **AVX3 on AMD**: 0 of 1 goals are met, 1 are missed." in page


def test_the_crossover_is_a_table_by_length():
    """A row a target; a length that one target does not have stays empty."""

    def plots(points):
        return {"crossover": {"plots": [{"series": {"torch softmax / tarn": points}}]}}

    stored = {
        "AVX3": plots([[16, 1.026], [32, 1.44]]),
        "AVX2_AMD": plots([[32, 0.99]]),
        "AVX2": {"forward": {}},
    }
    lines = list(report._crossings(stored))
    assert lines[1:] == [
        "| N | 16 | 32 |",
        "|---|--:|--:|",
        "| AVX3 | 1.03x | 1.44x |",
        "| AVX2 on AMD |  | 0.99x |",
    ]
    goal = {
        "measure": "crossover against torch",
        "relation": "<=",
        "bound": 256,
        "value": 16,
        "unit": "tokens",
        "holds": True,
        "valid": True,
        "beside": "N 16: 1.03x, N 32: 1.44x",
    }
    assert "N 16" not in report._goal_line(goal, {"rows": []})


def test_a_share_by_medians_is_told_where_pairs_flatter():
    goal = {
        "measure": "mamba2, decode, batch 1: of the read bandwidth",
        "relation": ">=",
        "bound": 0.88,
        "value": 0.975,
        "unit": "share",
        "holds": True,
        "valid": True,
        "beside": "46 tokens/s",
    }
    rows = [
        {"side": "step", "model": "mamba2", "median_ms": 21.8, "contended": True},
        {"side": "read", "model": "mamba2", "median_ms": 18.0, "contended": False},
    ]
    line = report._goal_line(goal, {"rows": rows})
    assert "**82.6 % by medians**, on a busy machine" in line
    rows[0]["median_ms"] = 18.5
    assert "medians" not in report._goal_line(goal, {"rows": rows})


def test_what_can_be_exceeded_is_a_reference():
    goal = {
        "measure": "step: of the bandwidth of a copy",
        "relation": ">=",
        "bound": 0.8,
        "value": 1.53,
        "unit": "share",
        "holds": True,
        "valid": True,
        "beside": "",
    }
    assert "over that of a copy (a reference, no bound) | 80 % | 153 %" in report._goal_line(
        goal, {"rows": []}
    )


@pytest.mark.skipif(not pinned(), reason="not the matplotlib of requirements.txt")
def test_committed_curve_of_the_demo_is_drawn_from_its_log(tmp_path):
    """In a separate process, so that no order of a set or a run affects the bytes."""
    log = DOCS / "demonstrations" / "demo.jsonl"
    done = draw_log(log, tmp_path / "demo.svg", PYTHONHASHSEED="7")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "demo.svg").read_bytes() == (DOCS / "demo.svg").read_bytes()


def test_names_next_to_lines_stay_on_the_figure():
    """Those of curves that end early too; all are complete and below each other."""
    series = {f"line{i}": [(1, 1 + i / 1000), (10 if i else 2, 1 + i / 1000)] for i in range(8)}
    drawn = plots.draw(CURVE | {"series": series})
    root = tree.fromstring(drawn)
    width, height = (float(one) for one in root.attrib["viewBox"].split()[2:])
    named = re.findall(rb"translate\(([\d.]+) ([\d.]+)\)[^>]*>line\d", drawn) or re.findall(
        rb'<text[^>]* x="([\d.]+)" y="([\d.]+)"[^>]*>line\d', drawn
    )
    assert len(named) == 8
    assert len({float(x) for x, _ in named}) == 1 and float(named[0][0]) < width - 20
    heights = sorted(float(y) for _, y in named)
    assert min(b - a for a, b in zip(heights, heights[1:])) > 9
    assert 0 < heights[0] and heights[-1] < height


def test_numbers_below_an_axis_do_not_touch():
    """Of two that would touch, the right one stays; the mark of the other stays, too."""
    lengths = [256, 1024, 4096, 8192, 16384, 65536]
    drawn = plots.draw(
        CURVE | {"series": {"a long name, " * 3: [(x, x) for x in lengths]}}
    ).decode()
    below = drawn[drawn.index('id="xtick_1"') : drawn.index('id="matplotlib.axis_2"')]
    assert re.findall(r">([\d,]+)</text>", below) == ["256", "1,024", "4,096", "16,384", "65,536"]
    assert below.count('id="xtick_') == len(lengths)


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "want rows of a training log, got none"),
        ('{"step": 1}\n', "want rows of a training log, got none"),
        ('{"step": 1, "bits_per_byte": 2}\n{"step\n', "log.jsonl:2: want a row"),
        ('{"bits_per_byte": 2}\n', "want rows of a training log, got none"),
        ('{"step": "1", "bits_per_byte": 2}\n', "log.jsonl:1: want a row"),
        ("3\n", "log.jsonl:1: want a row"),
        ('{"step": 1, "bits_per_byte": null}\n', "want rows of a training log, got none"),
        ('{"step": 1, "bits_per_byte": NaN}\n', "want rows of a training log, got none"),
        ("[" * 60000 + "\n", "log.jsonl:1: want a row"),
        ("[" * 100000, "log.jsonl:1: want at most"),
    ],
    ids=[
        "empty",
        "no bits",
        "no json",
        "no step",
        "bad step",
        "no object",
        "null",
        "nan",
        "deep",
        "long",
    ],
)
def test_broken_logs_are_named(tmp_path, text, said):
    (tmp_path / "log.jsonl").write_text(text)
    done = draw_log(tmp_path / "log.jsonl", tmp_path / "out.svg")
    assert done.returncode == 3 and said in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr) < 500 and not (tmp_path / "out.svg").exists()


@pytest.mark.parametrize("rows", [1, 3, 500])
@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_logs_of_any_length_are_drawn(tmp_path, rows, suffix):
    log, out = tmp_path / "log.jsonl", tmp_path / f"out.{suffix}"
    log.write_text(
        "".join(f'{{"step": {i}, "bits_per_byte": {8 / (i + 1)}}}\n' for i in range(rows))
    )
    done = draw_log(log, out)
    assert done.returncode == 0, done.stderr
    assert out.stat().st_size > 0


def test_plot_says_how_to_call_it(tmp_path):
    for words in ([], ["a.jsonl", "--out", "b.gif"]):
        done = run("-m", "plotting", *words, PYTHONPATH=str(ROOT))
        assert done.returncode == 2 and "LOG" in done.stderr and "Traceback" not in done.stderr


@pytest.fixture
def without_matplotlib(tmp_path):
    """PYTHONPATH of a Python without matplotlib."""
    folder = tmp_path / "hidden"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("import sys\nsys.modules['matplotlib'] = None\n")
    return os.pathsep.join([str(folder), str(ROOT), str(ROOT / "python")])


def test_benchmarks_print_and_store_without_matplotlib(tmp_path, without_matplotlib):
    bench, out = ROOT / "bench" / "run.py", tmp_path / "out"
    words = ("--quick", "--only", "crossover", "--out", out)  # has a figure
    done = run(bench, *words, PYTHONPATH=without_matplotlib)
    assert done.returncode == 0, done.stderr
    assert " ms" in done.stdout and "not regenerated" in done.stderr
    assert "want matplotlib" in done.stderr and not list(out.glob("*.svg"))
    assert not (out / "README.md").exists()
    done = run(bench, "--report", "--out", out, PYTHONPATH=without_matplotlib)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    done = run(bench, "--report", "--out", out)
    assert done.returncode == 0 and len(list(out.glob("*.svg"))) == 1
    assert "-crossover.svg)" in (out / "README.md").read_text()


def test_plot_without_matplotlib(tmp_path, without_matplotlib):
    log = DOCS / "demonstrations" / "demo.jsonl"
    done = draw_log(log, tmp_path / "x.svg", PYTHONPATH=without_matplotlib)
    assert done.returncode == 1 and "want matplotlib" in done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "x.svg").exists()


def test_drawing_is_the_first_to_load_matplotlib():
    code = (
        "import sys, plots, report, plotting, experiments.core; print('matplotlib' in sys.modules)"
    )
    path = os.pathsep.join(map(str, (ROOT, ROOT / "bench", ROOT / "python")))
    done = run("-c", code, PYTHONPATH=path)
    assert done.stdout.strip() == "False", done.stderr
    assert plotting.available()
