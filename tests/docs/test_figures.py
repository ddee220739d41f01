"""Every measured figure of the documents that people write is in a committed
result file. docs/benchmarks, docs/paper and docs/demonstrations are written by
programs from such files, and their own tests compare them."""

import json
import re
import subprocess

import figures
import pytest

GENERATED = ("docs/benchmarks/", "docs/paper/", "docs/demonstrations/")


def listed(*pattern):
    """Committed files; None outside of a clone."""
    done = subprocess.run(
        ["git", "-C", figures.ROOT, "ls-files", *pattern],
        check=False,
        capture_output=True,
        text=True,
    )
    return done.stdout.split() if done.returncode == 0 else None


def pages():
    found = listed("*.md")
    if found is None:
        found = [
            str(one.relative_to(figures.ROOT))
            for folder in (".", "docs", "bench")
            for one in sorted((figures.ROOT / folder).glob("*.md"))
        ]
    return [one for one in found if not one.startswith(GENERATED)]


@pytest.mark.parametrize("page", pages())
def test_figures_have_a_source(page):
    assert figures.unsourced((figures.ROOT / page).read_text("utf-8")) == []


def test_sources_are_committed():
    """A file that is only on this machine is no source."""
    named = set()
    for page in pages():
        for _, scope in figures.figures((figures.ROOT / page).read_text("utf-8")):
            named |= {one.partition("#")[0] for one in scope.sources}
    assert named
    if listed() is None:
        pytest.skip("this is no clone")
    for one in sorted(named):
        path = str((figures.DOCS / one).resolve().relative_to(figures.ROOT))
        assert listed(path) == [path], path


_MET = [
    (
        "AVX3",
        r"On this Xeon (?P<met>\d+) of tarn's (?P<all>\d+) speed targets are met, (?P<moved>\d+) of",
    ),
    ("AVX3 on AMD", r"on an AMD EPYC (?P<met>\d+) of (?P<all>\d+) are met, (?P<moved>\d+) of"),
]


@pytest.mark.parametrize(("column", "sentence"), _MET)
def test_the_page_of_speed_counts_the_targets_as_the_benchmarks_do(column, sentence):
    told = re.search(sentence, (figures.DOCS / "speed.md").read_text("utf-8"))
    report = (figures.DOCS / "benchmarks" / "README.md").read_text("utf-8")
    counted = re.search(
        rf"\*\*{column}\*\*: (?P<met>\d+) of (?P<all>\d+) goals are met \((?P<moved>\d+) of them in "
        r"runs whose limits moved\), \d+ are missed",
        report,
    )
    assert told and counted
    assert told.groupdict() == counted.groupdict()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It takes 12.5 ms.", ["12.5 ms"]),
        ("between 2.5 and 2.9 times as fast", ["2.5 times", "2.9 times"]),
        ("in 6 min 26 s", ["386 s"]),
        ("a ratio of 1.55x, images of 14 x 14 pixels", ["1.55 x"]),
        ("`--lr 5 ms` and [3 ms](4 ms)", ["3 ms"]),
        ("| n | tarn, ms | kind |\n|---|---|---|\n| 64 | 7.5 | 8 |", ["7.5 ms"]),
        ("| n | kind |\n|---|---|\n| 64 | 7.5 |", []),
        ("```\n12 ms\n```", []),
        ("step 12 of the plan, H = 8", []),
    ],
)
def test_what_counts_as_a_figure(text, found):
    assert [f"{one.text} {one.unit}" for one, _ in figures.figures(text)] == found


def test_a_source_holds_until_the_next_heading():
    text = "<!-- figures: a.json -->\n1 ms\n\n2 ms\n## Next\n3 ms"
    assert [scope.sources for _, scope in figures.figures(text)] == [["a.json"], ["a.json"], []]


@pytest.mark.parametrize(
    ("text", "unit", "number", "held"),
    [
        ("57.5", "ms", 57.518, True),
        ("57.5", "ms", 57.56, False),
        ("2.5", "times", 2.5297, True),
        ("2.5", "times", 2.56, False),
        ("94", "%", 0.94425, True),
        ("94", "%", 94.6, False),
        ("6,290", "tokens/s", 6295.0, True),  # three digits
        ("6,290", "tokens/s", 6298.0, False),
        ("70", "us", 0.0704, True),  # of milliseconds
    ],
)
def test_what_a_source_holds(text, unit, number, held):
    assert figures.is_held(figures.Figure(1, text, unit), [number]) is held


def test_a_unit_of_recorded_figures_holds_for_no_other():
    section = json.loads((figures.DOCS / "recorded.json").read_text("utf-8"))["matmul"]["figures"]
    only = next(one for one in section["%"] if one not in section["us"])
    assert only in figures.numbers_of("recorded.json#matmul", "%")
    assert only not in figures.numbers_of("recorded.json#matmul", "us")


def test_the_check_sees_a_changed_figure():
    """The first figure of two rows of the table of times by length, moved by a tenth, is
    found to be without a source."""
    text = (figures.DOCS / "speed.md").read_text("utf-8")
    rows = [line for line in text.splitlines() if line.startswith(("| 1,024 |", "| 4,096 |"))]
    assert len(rows) == 2
    for row in rows:
        first = row.split("|")[2].strip()
        wrong = row.replace(f"| {first} |", f"| {float(first) * 1.1:.1f} |", 1)
        assert len(figures.unsourced(text.replace(row, wrong))) == 1
