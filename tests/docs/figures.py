"""Finds the measured figures of a document that no committed result file holds.

A document names its sources where the figures are:

    <!-- figures: benchmarks/avx3.json#curves, ../tests/counts/baselines.json -->
    <!-- not measured: 256 bytes, 25 ms -->

Files are relative to docs/; what follows # is a path of keys into the file. The
second comment lists numbers with units that are not measurements: limits, sizes of
formats, plans. Either holds for what follows it, up to the next of its kind or the
next heading.
A figure is a number with a unit in running text, or a number of a table whose
column, row or cell has one. It is found in a source when a number there rounds to
it, to the digits it is given with or, from 1,000 on, to three significant ones. What
it does not see: numbers without a unit, and whether a number that fits is in
the right row of its source; the narrower the path, the less is left to chance."""

import json
import math
import pathlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

# What one of the unit is in the units that result files use: milliseconds,
# seconds, bytes, GFLOP/s, shares or per cent.
_UNITS = {
    "ns": (1.0, 1e6),
    "us": (1.0, 1e3),
    "ms": (1.0, 1e3),
    "s": (1.0, 1e-3),
    "min": (1 / 60,),
    "h": (1 / 3600,),
    "seconds": (1.0, 1e-3),
    "minutes": (1 / 60,),
    "hours": (1 / 3600,),
    "%": (1.0, 100.0),
    "x": (1.0,),
    "times": (1.0,),
    "GFLOP/s": (1.0,),
    "GB/s": (1.0,),
    "tokens/s": (1.0,),
    "t/s": (1.0,),
    "images/s": (1.0,),
    "MB": (1e-6, 1.0),
    "GB": (1e-9, 1.0),
    "KiB": (1 / 1024, 1.0),
    "MiB": (1 / 2**20,),
    "GiB": (1 / 2**30, 1.0),
    "kB": (1e-3,),
    "cycles": (1.0,),
    "instructions": (1.0,),
    "bits per byte": (1.0,),
    "bits/dim": (1.0,),
}
_UNIT = (
    "(?P<unit>" + "|".join(sorted(map(re.escape, _UNITS), key=len, reverse=True)) + r")(?![\w/])"
)
_NUMBER = r"(?<![\w.,/^*-])\d[\d,]*(?:\.\d+)?(?![\w.]*\d)"
_JOINT = r"(?:\s?-\s?|\s?/\s?|\s(?:to|and|or|against|instead of|from)\s)"
# "14 x 14" is a size and 1.5x a ratio.
_FIGURE = re.compile(rf"(?P<numbers>{_NUMBER}(?:{_JOINT}\d[\d,]*(?:\.\d+)?)*)(?!\sx)\s?{_UNIT}")
# The unit in the head of a column or row: a separate word, or after a comma.
_HEAD = re.compile(rf"(?:^|[\s,(]){_UNIT}")
_MARK = re.compile(r"<!--\s*(figures|not measured):(.*?)-->", re.DOTALL)


@dataclass(frozen=True)
class Figure:
    """One number of a document, as it is written."""

    line: int
    text: str
    unit: str


@dataclass
class _Scope:
    """What the comments before a line say."""

    sources: list[str]
    not_measured: list[str]


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def _lines(text: str) -> Iterator[tuple[int, str, _Scope]]:
    """Every line without code, links' targets and comments, with its scope."""
    text = re.sub(r"^```.*?^```", _blank, text, flags=re.DOTALL | re.MULTILINE)
    scope = _Scope([], [])
    marks = {text[: m.end()].count("\n"): m for m in _MARK.finditer(text)}
    clean = re.sub(r"<!--.*?-->", _blank, text, flags=re.DOTALL)
    clean = re.sub(r"`[^`\n]*`", _blank, clean)
    clean = re.sub(r"\]\([^)\n]*\)", _blank, clean)
    for number, line in enumerate(clean.splitlines()):
        if line.startswith("#"):
            scope = _Scope([], [])
        if number in marks:
            names = [one.strip() for one in re.split(r",\s+", marks[number][2]) if one.strip()]
            scope = (
                _Scope(names, scope.not_measured)
                if marks[number][1] == "figures"
                else _Scope(scope.sources, names)
            )
        yield number + 1, line, scope


def _in_prose(number: int, line: str) -> Iterator[Figure]:
    line = re.sub(r"(\d+) min (\d+) s\b", lambda m: f"{60 * int(m[1]) + int(m[2])} s", line)
    for match in _FIGURE.finditer(line):
        for one in re.findall(r"\d[\d,]*(?:\.\d+)?", match["numbers"]):
            yield Figure(number, one.rstrip(","), match["unit"])


def _in_row(number: int, cells: list[str], head: list[str]) -> Iterator[Figure]:
    for index, cell in enumerate(cells):
        where = [head[index] if index < len(head) else "", cells[0]]
        unit = next(
            (
                m["unit"]
                for text in where
                if (m := _HEAD.search(text)) and m["unit"] not in ("x", "h")
            ),
            "",
        )
        if not unit or index == 0 or _FIGURE.search(cell):
            yield from _in_prose(number, cell)
            continue
        for match in re.finditer(_NUMBER, cell):
            yield Figure(number, match[0].rstrip(","), unit)


def figures(text: str) -> Iterator[tuple[Figure, _Scope]]:
    """All of a document, in order."""
    head: list[str] = []
    before = ""
    for number, line, scope in _lines(text):
        if line.startswith("|"):
            cells = [one.strip() for one in line.strip().strip("|").split("|")]
            if set(line) <= set("|-: "):
                head = [one.strip() for one in before.strip().strip("|").split("|")]
            elif head:
                yield from ((one, scope) for one in _in_row(number, cells, head))
        else:
            head = []
            yield from ((one, scope) for one in _in_prose(number, line))
        before = line


# --- The sources ----------------------------------------------------------------


def _numbers(value: object, unit: str) -> Iterator[float]:
    """All that may stand for a figure of this unit: what a file lists under a unit
    (docs/recorded.json) has that unit and no other."""
    if isinstance(value, dict):
        for key, one in value.items():
            if key == unit or key not in _UNITS or not isinstance(one, list):
                yield from _numbers(one, unit)
    elif isinstance(value, list):
        for one in value:
            yield from _numbers(one, unit)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield float(value)


def numbers_of(source: str, unit: str) -> list[float]:
    """The numbers at "file.json#key/key", for figures of this unit. KeyError or OSError
    where there is no such place."""
    name, _, path = source.partition("#")
    text = (DOCS / name).read_text("utf-8")
    value = (
        [json.loads(line) for line in text.splitlines()]
        if name.endswith(".jsonl")
        else json.loads(text)
    )
    for key in path.split("/") if path else []:
        value = value[int(key)] if isinstance(value, list) else value[key]
    return list(_numbers(value, unit))


def is_held(figure: Figure, numbers: list[float]) -> bool:
    """Whether one of the numbers rounds to it."""
    plain = figure.text.replace(",", "")
    value = float(plain)
    decimals = len(plain.partition(".")[2])
    exact = 0.5 * 10.0**-decimals
    three = 0.5 * 10.0 ** (math.floor(math.log10(value)) - 2) if value > 0 else 0.0
    slack = (exact if decimals or value < 1000 else max(exact, three)) * (1 + 1e-9)
    return any(
        abs(one * scale - value) <= slack for one in numbers for scale in _UNITS[figure.unit]
    )


def unsourced(text: str) -> list[str]:
    """A line for each figure that none of its sources holds."""
    known: dict[tuple[str, str], list[float]] = {}
    missing = []
    for figure, scope in figures(text):
        if any(re.match(rf"{re.escape(figure.text)}\b", one) for one in scope.not_measured):
            continue
        for source in scope.sources:
            if (source, figure.unit) not in known:
                known[source, figure.unit] = numbers_of(source, figure.unit)
        if not any(is_held(figure, known[source, figure.unit]) for source in scope.sources):
            where = ", ".join(scope.sources) or "no source is named"
            missing.append(f"line {figure.line}: {figure.text} {figure.unit}: {where}")
    return missing
