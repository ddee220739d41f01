"""Which trivial baselines a page shows, and a report with them."""

import copy
import dataclasses
import json
import pathlib

import pytest
import toy

from experiments import registry
from experiments.core import ExperimentError, Page, Series, report
from experiments.core.baselines import KEY, best, check, fitted, table
from experiments.core.runner import run_all

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "paper" / "results"


def fit(part="x/text", value=2.0, chosen=True, data="dna", **more):
    return {
        "part": part,
        "name": "counts of order 2",
        "unit": "bits",
        "value": value,
        "learned": 10,
        "judged": 5,
        "data": data,
        "seconds": 0.5,
        "chosen": chosen,
        **more,
    }


def result(size="cpu", sha="ab"):
    files = [{"file": "genome.fna", "bytes": 1, "sha256": sha}]
    return {
        "size": size,
        "measured": {},
        "inputs": {"data": [{"name": "dna", "title": "a genome", "files": files}]},
    }


def stored(*fits):
    return result() | {"measured": {"fits": list(fits)}}


def test_the_chosen_one_is_to_beat():
    both = result() | {KEY: stored(fit(value=3.0, chosen=False), fit(value=2.0), fit("y/text"))}
    assert [one.value for one in fitted(both, "x/text")] == [3.0, 2.0]
    found = best(both, "x/text")
    assert found is not None and found.value == 2.0 and found.time == "0.5"
    assert found.title == "trivial baseline: counts of order 2"
    assert best(both, "z/text") is None and best(result(), "x/text") is None


def test_another_size_or_other_data_have_none():
    for other in (result("quick"), result(sha="cd"), result() | {"inputs": {}}):
        assert best(other | {KEY: stored(fit())}, "x/text") is None
    generated = {
        "size": "cpu",
        KEY: stored(fit(data="", pairs=8), fit(data="", pairs=16, value=4.0)),
    }
    sixteen = best(generated, "x/text", 16)
    assert sixteen is not None and sixteen.value == 4.0 and best(generated, "x/text") is None


def test_the_line_is_as_long_as_the_others():
    found = best(result() | {KEY: stored(fit())}, "x/text")
    assert found is not None and found.line([]) == []
    (line,) = found.line([Series("a", [(1, 5), (4, 3)]), Series("b", [(2, 5), (9, 3)])], scale=100)
    assert line.points == [(1, 200.0), (9, 200.0)] and line.dash == 2


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"fits": {}},
        {"fits": [1]},
        {"fits": [{"part": "x"}]},
        {"fits": [fit() | {"value": "2"}]},
    ],
)
def test_broken_fits_are_refused(broken):
    check(stored(fit()), "here")
    with pytest.raises(ExperimentError, match="here: measured: fits") as caught:
        check(result() | {"measured": broken}, "here")
    assert caught.value.code == 3


def test_table_has_a_row_a_fit():
    text = table(stored(fit(), fit(chosen=False, pairs=4, accuracy=0.25))).markdown()
    assert "| x | text | **counts of order 2** | 2.0000 | bits | - | 10 | 5 | 0.5 |" in text
    assert "| x | text, 4 pairs | counts of order 2 | 2.0000 | bits | 25.0 | 10 | 5 | 0.5 |" in text


def test_report_passes_them_on(settings, tmp_path, monkeypatch):
    """To the page; the result of the page stays as it is, theirs is stored with it, and a
    work folder without any leaves what the report had."""
    seen = []

    def page(told, figures) -> Page:
        seen.append(KEY in told)
        return toy.page(told, figures)

    monkeypatch.setattr(toy, "EXPERIMENT", dataclasses.replace(toy.EXPERIMENT, page=page))
    run_all([settings], quiet=True)
    work, paper = settings.out.parent, tmp_path / "paper"
    report.write(work, paper)
    assert seen == [False] and not (paper / "results" / "baselines.json").exists()
    envelope = json.loads((settings.out / "result.json").read_text())
    theirs = copy.deepcopy(envelope) | {"experiment": "baselines", "measured": {"fits": [fit()]}}
    (work / "baselines").mkdir()
    (work / "baselines" / "result.json").write_text(json.dumps(theirs))
    summary = report.write(work, paper)[0].read_text()
    assert seen == [False, True] and "## Trivial baselines" in summary
    assert KEY not in (paper / "results" / "scaling.json").read_text()
    (work / "baselines" / "result.json").unlink()
    assert report.write(work, paper)[0].read_text() == summary and seen[-1]


@pytest.mark.skipif(not (RESULTS / "baselines.json").is_file(), reason="no report is committed")
@pytest.mark.parametrize(
    "name, parts",
    [
        ("images", ("grey", "whole", "colour")),
        ("earlier", ("text",)),
        ("maps", ("text", "copy")),
        ("families", ("text", "dna", "copy")),
        ("long", ("stream", "listops")),
        ("speech", ("unseen",)),
        ("copy", ("copy",)),
    ],
)
def test_every_page_of_learning_has_its_baselines(name, parts, monkeypatch):
    """Those of the data that its committed result was measured on."""
    monkeypatch.undo()
    told = json.loads((RESULTS / f"{name}.json").read_text())
    told[KEY] = json.loads((RESULTS / "baselines.json").read_text())
    page = (ROOT / "docs" / "paper" / f"{name}.md").read_text()
    assert name in registry.names()
    for part in parts:
        found = best(told, f"{name}/{part}")
        assert found is not None and found.title in page, part
