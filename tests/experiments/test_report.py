"""Pages and figures from stored results, hostile ones among them."""

import dataclasses
import importlib.machinery
import importlib.metadata
import json
import pathlib
import re
import shutil
import sys
import types

import numpy as np
import pytest
import toy

from experiments import registry
from experiments.core import files, report, result
from experiments.core.figures import Figures, pack_images, unpack_images
from experiments.core.page import Page, Section, Table, size
from experiments.core.runner import run_all
from experiments.core.types import Criterion, ExperimentError
from plotting import Panel, Series, number

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAPER = ROOT / "docs" / "paper"


@pytest.fixture
def stored(settings):
    """The work folder of a finished run."""
    run_all([settings], quiet=True)
    return settings.out.parent


def _contents(folder):
    return {
        str(one.relative_to(folder)): one.read_bytes()
        for one in sorted(folder.rglob("*"))
        if one.is_file()
    }


def test_report_has_all_that_is_asked(stored, tmp_path):
    pages = report.write(stored, tmp_path / "paper")
    assert [one.name for one in pages] == ["README.md", "scaling.md"]
    page, summary = pages[1].read_text(), pages[0].read_text()
    for text in (
        "Toys are small.",
        "Figure 1",
        "0.333 a point",
        "All agrees.",
        "`tarn experiment scaling --size quick`",
        "| linear loss | at most 0.5 | 0.125 | yes |",
        "| speed | at least 1.7x | not measured | not measured |",
        "The data are a text.",
        "Smoke size",
        "(results/scaling.json)",
        "0, 7",
        "input.txt",
    ):
        assert text in page, text
    screen = summary.split("\n\n")[1]
    assert screen.startswith("| claim | verdict | figure |") and (
        "| [A toy](scaling.md) | smoke size | 0.333 a point |" in screen
    )
    first = summary[summary.index("| experiment") :].split("\n\n")[0]
    assert "Toys are small." in first and "| smoke size |" in first and "0.333 a point" in first
    for name in re.findall(r"\]\(([\w./-]+)\)", page + summary):
        assert (tmp_path / "paper" / name).exists(), name
    assert str(tmp_path) not in page + summary


def test_report_names_the_commands_that_were_not_of_make_paper(stored, tmp_path):
    told = report.tell(stored / "scaling" / "result.json", "scaling", tmp_path)
    assert "not all those of `make paper`" in report.summary_text([told])
    plain = dict(told.result, size="cpu", command="tarn experiment scaling --size cpu")
    told = report.Told(told.experiment, plain, told.page, told.criteria, [])
    text = report.summary_text([told])
    assert "comes from `make paper`. " in text and "further attempts are written by hand" in text
    other = report.Told(
        told.experiment, dict(plain, commit="0123456789"), told.page, told.criteria, []
    )
    assert (
        f"`make paper`, run at several commits ({plain['commit']}, 0123456789)."
        in report.summary_text([told, other])
    )


@pytest.fixture
def apart(settings, monkeypatch):
    """Settings of an experiment that `all` leaves out."""
    module = types.ModuleType("other_toy")
    module.__spec__ = importlib.machinery.ModuleSpec("other_toy", None)
    module.EXPERIMENT = dataclasses.replace(toy.EXPERIMENT, name="other")
    monkeypatch.setitem(sys.modules, "other_toy", module)
    monkeypatch.setattr(registry, "MODULES", {"scaling": "toy", "other": "other_toy"})
    monkeypatch.setattr(registry, "APART", ("other",))
    return dataclasses.replace(
        settings, experiment=module.EXPERIMENT, out=settings.out.parent / "other"
    )


def test_what_all_leaves_out_keeps_its_page(stored, apart, tmp_path):
    """Where the work folder has no result of it, and is not said to be missing."""
    paper = tmp_path / "paper"
    assert registry.in_all() == ["scaling"]
    assert "Not run" not in report.write(stored, paper)[0].read_text()
    run_all([apart], quiet=True)
    assert [one.name for one in report.write(stored, paper)] == [
        "README.md",
        "scaling.md",
        "other.md",
    ]
    before = (paper / "other.md").read_text()
    shutil.rmtree(apart.out)
    summary = report.write(stored, paper)[0].read_text()
    assert "(other.md)" in summary and (paper / "other.md").read_text() == before


def test_summary_names_the_command_of_what_all_leaves_out(stored, apart, tmp_path):
    run_all([apart], quiet=True)
    told = []
    for name in ("scaling", "other"):
        one = report.tell(stored / name / "result.json", name, tmp_path)
        plain = dict(
            one.result,
            size="cpu",
            seconds=60.0 if name == "scaling" else 3600.0,
            command=f"tarn experiment {name} --size cpu",
        )
        told.append(report.Told(one.experiment, plain, one.page, one.criteria, []))
    text = report.summary_text(told)
    assert "comes from `make paper` or from `tarn experiment other --size cpu`." in text
    assert "Total: 1 h 01 min, those of `make paper` 1 min 00 s." in text
    assert "those of `make paper`" not in report.summary_text(told[:1])


def test_redrawn_from_its_own_results_is_the_same(stored, tmp_path):
    """Figures included, byte for byte."""
    report.write(stored, tmp_path / "a")
    report.write(tmp_path / "a" / "results", tmp_path / "b")
    report.write(tmp_path / "a" / "results", tmp_path / "a")
    (tmp_path / "b" / "scaling-old.svg").write_text("of a page that was")
    (tmp_path / "b" / "scaling.txt").write_text("of another program")
    report.write(tmp_path / "a" / "results", tmp_path / "b")
    (tmp_path / "b" / "scaling.txt").unlink()
    first, second = _contents(tmp_path / "a"), _contents(tmp_path / "b")
    assert first == second and {"scaling-loss.svg", "scaling-grid.png"} <= first.keys()
    assert b"<dc:date>" not in first["scaling-loss.svg"]


def test_committed_report_is_what_its_results_tell(tmp_path, monkeypatch):
    """docs/paper is written by the command, never by hand."""
    monkeypatch.undo()
    if not (PAPER / "results").is_dir():
        pytest.skip("no report is committed")
    names = {one.stem for one in (PAPER / "results").glob("*.json")} - {"baselines"}
    if not names <= set(registry.names()):
        pytest.skip("an experiment of the report is not in this tree")
    report.write(PAPER / "results", tmp_path)
    for path in sorted(PAPER.glob("*.md")) + sorted((PAPER / "results").glob("*.json")):
        drawn = tmp_path / path.relative_to(PAPER)
        assert drawn.read_text() == path.read_text(), (
            f"{path.name}: run `tarn experiment report --redraw`"
        )
    drawn = {one.name for one in tmp_path.iterdir()}
    assert {one.name for one in PAPER.iterdir()} == drawn
    pin = re.search(r"^matplotlib==(.+)$", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    if pin and importlib.metadata.version("matplotlib") == pin.group(1):  # another draws otherwise
        changed = [
            one.name
            for one in PAPER.glob("*.svg")
            if one.read_bytes() != (tmp_path / one.name).read_bytes()
        ]
        assert not changed, "run `tarn experiment report --redraw`"


DEEP = "[" * 100000 + "]" * 100000
HOSTILE = {
    "empty": "",
    "truncated": '{"format": 1, "exp',
    "list": "[]",
    "nan": '{"format": NaN}',
    "deep": DEEP,
    "deep in it": f'{{"format": {DEEP}}}',
    "binary": "\udcff\udcfe",
    "huge number": '{"format": 1' + "0" * 5000 + "}",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files_are_named(stored, tmp_path, kind):
    path = stored / "scaling" / "result.json"
    path.write_bytes(HOSTILE[kind].encode("utf-8", "surrogateescape"))
    with pytest.raises(ExperimentError) as caught:
        report.write(stored, tmp_path / "paper")
    assert caught.value.code == 3 and "result.json" in str(caught.value)
    assert len(str(caught.value)) < 500


CHANGES = {
    "format": 2,
    "format ": True,
    "experiment": "copy",
    "size": "huge",
    "machine": [],
    "seeds": "0",
    "seconds": None,
    "seconds ": "1",
    "measured": {"curves": 3},
    "inputs": None,
    "measured ": {},
    "machine ": {"cpu": "/proc/cpuinfo"},
    "seeds ": ["~/models"],
}


@pytest.mark.parametrize("key", CHANGES)
def test_wrong_values_are_named(stored, tmp_path, key):
    path = stored / "scaling" / "result.json"
    value = json.loads(path.read_text())
    value[key.strip()] = CHANGES[key]
    path.write_text(json.dumps(value))
    with pytest.raises(ExperimentError) as caught:
        report.write(stored, tmp_path / "paper")
    assert caught.value.code == 3 and "result.json" in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"machine": {}},
        {"inputs": {}},
        {"settings": {}},
        {"seeds": []},
        {"inputs": {"data": [{"title": "x"}]}},
    ],
)
def test_bare_envelopes_are_told(stored, tmp_path, change):
    """What an older or another machine's envelope may lack."""
    path = stored / "scaling" / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert len(report.write(stored, tmp_path / "paper")) == 2


@pytest.mark.parametrize("inputs", [{"data": 3}, {"data": [3]}, {"data": [{"files": [{}]}]}])
def test_broken_inputs_are_named(stored, tmp_path, inputs):
    path = stored / "scaling" / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"inputs": inputs}))
    with pytest.raises(ExperimentError) as caught:
        report.write(stored, tmp_path / "paper")
    assert caught.value.code == 3


def test_too_large_a_file(stored, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MOST_BYTES", 100)
    with pytest.raises(ExperimentError, match="at most 100 bytes"):
        report.write(stored, tmp_path / "paper")


def test_nothing_to_report(tmp_path):
    with pytest.raises(ExperimentError, match="got none"):
        report.write(tmp_path, tmp_path / "paper")
    assert not (tmp_path / "paper").exists()


def test_broken_result_is_stale(settings, stored):
    result.path_of(settings).write_text("{}")
    assert "want int" in result.stale(settings)


# --- Criteria, cells, images --------------------------------------------------


@pytest.mark.parametrize(
    "value, bound, at_most, at_least",
    [
        (1.02, 1.02, True, True),
        (1.0200001, 1.02, False, True),
        (0, 1, True, False),
        (None, 1, None, None),
        (float("nan"), 1, None, None),
        (float("inf"), 1, False, True),
    ],
)
def test_bounds(value, bound, at_most, at_least):
    assert Criterion.at_most("x", value, bound).holds is at_most
    assert Criterion.at_least("x", value, bound).holds is at_least


def test_between():
    held = [Criterion.between("x", v, 0.9, 1.1).holds for v in (0.89, 0.9, 1.1, 1.11, None)]
    assert held == [False, True, True, False, None]
    assert Criterion.between("x", 1, 0.9, 1.1).wanted == "0.9 to 1.1"
    assert Criterion.at_least("x", 2.5, 1.7, "x").got == "2.5x"


def _line(name, holds, **more):
    return Criterion(name, "", "", holds, **more)


@pytest.mark.parametrize(
    "holds, text",
    [
        ([], "not measured"),
        ([None], "not measured"),
        ([True, True], "**shown** (2 of 2)"),
        ([True, None], "**in part** (1 of 2); not shown: b (not measured)"),
        ([True, False], "**in part** (1 of 2); not shown: b"),
        ([False, None], "**not shown** (0 of 2): a, b (not measured)"),
        ([True, False, None], "**in part** (1 of 3); not shown: b, c (not measured)"),
    ],
)
def test_verdict(holds, text):
    assert report.verdict([_line(name, one) for name, one in zip("abc", holds)]) == text


def test_the_opposite_is_a_word_of_its_own():
    """And only where it is measured."""
    line = _line("b", False, part="faster", opposite=True)
    assert report.verdict([line]) == "**contradicted here** (0 of 1): faster"
    assert report.verdict([line, _line("x", False), _line("y", None)]) == (
        "**contradicted here** (0 of 3): faster; not shown: x, y (not measured)"
    )
    both = [
        _line("a", True),
        line,
        _line("c", False, part="smaller"),
        _line("d", False, part="smaller"),
    ]
    assert report.verdict(both) == (
        "**in part** (1 of 4); not shown: smaller; contradicted here: faster"
    )
    for holds in (True, None):
        assert "contradicted" not in report.verdict(
            [_line("a", True), _line("b", holds, opposite=True)]
        )


def test_what_must_only_be_stated_and_goals_of_our_own_do_not_count():
    for told in (_line("x", True, reported=True), _line("x", False, goal=True)):
        assert report.verdict([told]) == "not measured"
        assert report.verdict([told, _line("y", True)]) == "**shown** (1 of 1)"
        assert report.verdict([told, _line("y", False)]) == "**not shown** (0 of 1): y"


def test_goals_stand_in_a_table_of_their_own(stored, tmp_path):
    told = report.tell(stored / "scaling" / "result.json", "scaling", tmp_path)
    full = {**told.result, "size": "cpu"}
    lines = [Criterion("x", "1", "1", True), Criterion("fast", "9", "8", False, goal=True)]
    one = report.Told(told.experiment, full, Page("h", "a", [], []), lines, [])
    for text in (report.page_text(one), report.summary_text([one])):
        claim, goals = text.split("arn's own goals")
        assert "| fast | 9 | 8 |" in goals and "| x | 1 | 1 | yes |" in claim
        assert "| fast" not in claim and "**shown** (1 of 1)" in claim


def test_what_was_tried_is_told_where_it_is_missed(stored, tmp_path):
    told = report.tell(stored / "scaling" / "result.json", "scaling", tmp_path)
    page = Page("h", "a", [], [], tried={"x": "Twice the work.", "y": "Half of it."})
    lines = [
        Criterion("x", "1", "2", False),
        Criterion("y", "1", "1", True),
        Criterion("z", "1", "2", False),
        Criterion("u", "told", "3", False, reported=True),
    ]
    full = {**told.result, "size": "cpu"}
    text = report.page_text(report.Told(told.experiment, full, page, lines, []))
    assert "- x: Twice the work." in text and "Half of it" not in text
    assert "- z: no further attempt was made." in text and "| u | told | 3 | reported |" in text
    assert "- u:" not in text
    text = report.page_text(report.Told(told.experiment, full, page, lines[1:2], []))
    assert "tried" not in text
    text = report.page_text(report.Told(told.experiment, told.result, page, lines, []))
    assert "tried" not in text  # a smoke run misses nothing


@pytest.mark.parametrize(
    "value, text",
    [
        (None, "-"),
        (float("nan"), "-"),
        (0, "0"),
        (0.0, "0"),
        (1234567, "1,234,567"),
        (1234.5, "1,234"),
        (0.012345, "0.0123"),
        (1.5, "1.5"),
        (999.6, "1,000"),
        (-2.345, "-2.35"),
        (1e-9, "1e-09"),
    ],
)
def test_number(value, text):
    assert number(value) == text


def test_cells():
    assert size(67584) == "67.6 kB" and size(25.3e6) == "25.3 MB" and size(12) == "12 B"
    table = Table(["a", "b"], [["x | y\nz", 1.5], [True, None]], "A note.").markdown()
    assert table == "| a | b |\n|---|--:|\n| x \\| y z | 1.5 |\n| yes | - |\n\nA note."
    columns = Table(["a", "b", "c"], [["12.5 MB", "0.333 a point", "3x"], [None, "1", "1e-09"]])
    assert columns.markdown().splitlines()[1] == "|--:|---|--:|"
    with pytest.raises(ValueError, match="want 2 cells"):
        Table(["a", "b"], [["x"]]).markdown()


def test_images_there_and_back():
    images = np.random.default_rng(0).integers(0, 256, (3, 5, 4, 3), dtype=np.uint8)
    assert np.array_equal(unpack_images(json.loads(json.dumps(pack_images(images)))), images)
    with pytest.raises(ValueError, match="uint8"):
        pack_images(images.astype(np.float32))


@pytest.mark.parametrize(
    "packed",
    [
        {},
        {"shape": [2]},
        {"shape": [2], "deflate": "!"},
        {"shape": [2], "deflate": "AAAA"},
        {"shape": [-1], "deflate": ""},
        {"shape": [1 << 40], "deflate": ""},
        {"shape": 3, "deflate": ""},
        pack_images(np.zeros(5, np.uint8)) | {"shape": [4]},
        pack_images(np.zeros(5, np.uint8)) | {"shape": [6]},
        {"shape": ["a"], "deflate": ""},
    ],
)
def test_hostile_images(packed):
    with pytest.raises(ValueError):
        unpack_images(packed)


def test_figures_of_little(tmp_path):
    """One point, none, gaps, one image: the quick sizes give such results."""
    figures = Figures(tmp_path, "x")
    figures.lines(
        "a",
        Panel(
            [Series("linear", [(1, 2)], "linear"), Series("none", [])],
            "x",
            "y",
            log_x=True,
            log_y=True,
        ),
        "alt",
    )
    figures.lines("b", Panel([], "x", "y"), "alt")
    figures.bars("c", ["a"], {"linear": [None]}, "y", "alt", texts=number)
    figures.images("d", [[np.zeros((2, 2), np.uint8)], []], "alt")
    assert figures.files == ["x-a.svg", "x-b.svg", "x-c.svg", "x-d.png"]
    assert all((tmp_path / one).stat().st_size > 0 for one in figures.files)
    with pytest.raises(ValueError, match="want 1 values"):
        figures.bars("e", ["a"], {"linear": [1, 2]}, "y", "alt")


def test_line_ends_do_not_meet(tmp_path):
    """Names of lines that end together do not overlap."""
    series = [Series(f"line{i}", [(0, 0), (1, 1 + i / 1000)]) for i in range(5)]
    picture = Figures(tmp_path, "x").lines("a", Panel(series, "x", "y"), "alt")
    text = (tmp_path / picture.file).read_text()
    heights = sorted(
        float(y)
        for y in re.findall(r"<text[^>]*translate\([\d.]+ ([\d.]+)\)[^>]*>line\d", text)
        or re.findall(r'<text[^>]* y="([\d.]+)"[^>]*>line\d', text)
    )
    assert len(heights) == 5
    assert min(b - a for a, b in zip(heights, heights[1:])) > 9


def test_page_of_nothing(stored, tmp_path):
    told = report.tell(stored / "scaling" / "result.json", "scaling", tmp_path)
    bare = report.Told(told.experiment, told.result, Page("h", "a", [], [Section("s", [])]), [], [])
    assert "None." in report.page_text(bare) and "not measured" in report.summary_text([bare])
