"""Docstrings of the package as the generator's Google style reads them (an
extension of griffe, named in mkdocs.yml).

The package lists the errors raised as running text, several on a line, and
continues at the same margin; short docstrings have a section on one line. Read
without changes, all but the first line of a section would be dropped or become
entries of their own.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

SECTION = re.compile(r"^(Args|Raises|Returns|Yields|Attributes):$")
ONE_LINE = re.compile(r"^(Args|Raises|Returns|Yields|Source|Children): (?=\S)")
ENTRY = {
    "Args": re.compile(r"^\*{0,2}\w+(?:, \*{0,2}\w+)*(?: \([^)]*\))?:(?:\s|$)"),
    "Raises": re.compile(r"^\w+(?:, \w+)*:\s"),
    "Attributes": re.compile(r"^\w+(?:, \w+)*:\s"),
}
NEXT_ERROR = re.compile(r"(?<=[.;]) (?=\w*(?:Error|Exception): )")


def rewritten(text: str) -> str:
    """The docstring with one entry per line, and the continuation of one indented."""
    lines: list[str] = []
    section = ""
    for line in text.splitlines():
        if ONE_LINE.match(line):
            line = ONE_LINE.sub(r"**\1:** ", line)
            lines.append("")
        heading = SECTION.match(line)
        if heading:
            section = heading[1]
        elif line.strip() and not line.startswith(" "):
            section = ""
        entry = ENTRY.get(section)
        inside = line.startswith("    ") and not line.startswith("     ")
        if heading or not entry or not inside:
            lines.append(line)
            continue
        parts = NEXT_ERROR.split(line[4:]) if section == "Raises" else [line[4:]]
        for part in parts:
            margin = " " * (4 if entry.match(part) else 8)
            lines.append(margin + part)
    return "\n".join(lines)


SET_LATER = re.compile(r'^(\w+)\.__doc__ = "(.*)"$', re.MULTILINE)


class Docstrings(griffe.Extension):
    """Rewrites every docstring before it is parsed, reads those that a module sets
    on its own names, and gives names that are only assigned their value as one."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        named = attr.parent and attr.parent.is_module and not attr.name.startswith("_")
        if named and not attr.docstring and attr.value is not None:
            attr.docstring = griffe.Docstring(f"It is `{attr.value}`.", parent=attr)

    def on_module_members(self, *, mod: griffe.Module, **_: Any) -> None:
        for name, text in SET_LATER.findall(mod.source):
            if name in mod.members:
                parent = mod.members[name]
                parent.docstring = griffe.Docstring(text, parent=parent)

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = rewritten(obj.docstring.value)
