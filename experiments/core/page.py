"""The pages of the report: what an experiment tells, as Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from plotting import number


@dataclass(frozen=True)
class Table:
    """Head and rows of cells. Numbers are written with number(), or come as
    text; None is a dash. `note` is shown below."""

    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    note: str = ""

    def markdown(self) -> str:
        for row in self.rows:
            if len(row) != len(self.head):
                raise ValueError(f"Table: want {len(self.head)} cells a row, got {len(row)}")
        numeric = [
            self.rows and all(_is_number(row[i]) for row in self.rows)
            for i in range(len(self.head))
        ]
        lines = [_line(self.head), "|" + "|".join("--:" if n else "---" for n in numeric) + "|"]
        lines += [_line([cell(one) for one in row]) for row in self.rows]
        return "\n".join(lines) + (f"\n\n{self.note}" if self.note else "")


@dataclass(frozen=True)
class Picture:
    """A file that Figures wrote, next to the page."""

    file: str
    alt: str
    caption: str = ""

    def markdown(self) -> str:
        return f"![{self.alt}]({self.file})" + (f"\n\n*{self.caption}*" if self.caption else "")


@dataclass(frozen=True)
class Section:
    """A heading and what is below it, in order."""

    title: str
    parts: Sequence[str | Table | Picture]


@dataclass(frozen=True)
class Page:
    """One experiment's page, all but its head and its criteria, which are
    written for it.

    headline     by how much the claim holds here: one short sentence for the
                 summary's first table, with figures
    short        the claim in a few words, and
    figure       the one figure that tells most of it, for the summary's first screen
    table        what the summary shows with `agrees`, if anything
    scale        parameters, updates, minutes and seeds of it, or what else it was measured
                 with: the claim is told with them
    seeds        where not all parts have the seeds of the result
    agrees       one or two sentences: what agrees with the paper and what not
    differences  from the paper's setting: data, size, hardware, ... one a line
    theirs       the paper's figure or table in a few words, with its numbers
    picture      the one to show in the summary, if any
    notes        what else is to be said
    tried        by the name of a criterion, one sentence or two on what was tried
                 to reach it: printed only where that criterion is missed
    """

    headline: str
    agrees: str
    differences: Sequence[str]
    sections: Sequence[Section]
    theirs: str = ""
    short: str = ""
    figure: str = ""
    table: Table | None = None
    scale: str = ""
    seeds: str = ""
    picture: Picture | None = None
    notes: Sequence[str] = field(default=())
    tried: Mapping[str, str] = field(default_factory=dict)


def size(count: float | None) -> str:
    """Bytes for people: "67.6 kB", "25.3 MB", decimal."""
    if count is None:
        return "-"
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{number(count / scale)} {unit}"
    return f"{number(int(count))} B"


def cell(value: object) -> str:
    """One table cell."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return number(value)
    return str(value).replace("|", "\\|").replace("\n", " ")


_FIGURE = re.compile(r"-|[-+]?[0-9][0-9.,]*(e[-+]?[0-9]+)?x?( ?[^ 0-9]{1,8})?")


def _is_number(value: object) -> bool:
    """A number, or text of one figure with its unit: the column is right-aligned."""
    if isinstance(value, str):
        return _FIGURE.fullmatch(value) is not None
    return value is None or isinstance(value, (int, float)) and not isinstance(value, bool)


def _line(cells: Sequence[object]) -> str:
    return "| " + " | ".join(str(one) for one in cells) + " |"
