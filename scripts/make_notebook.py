#!/usr/bin/env python3
"""Makes examples/tutorial.ipynb of docs/tutorial.md: scripts/make_notebook.py [--to FILE]

Prose and the blocks of other languages become markdown cells, Python blocks code
cells with the output that the tutorial shows. The same page makes the same bytes.
"""

import argparse
import json
import pathlib
import re
import typing

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "tutorial.md"
NOTEBOOK = ROOT / "examples" / "tutorial.ipynb"
FENCE = re.compile(r"^(?:<!-- file: (\S+) -->\n)?```(\w+)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)


class Prose(typing.NamedTuple):
    text: str


class Code(typing.NamedTuple):
    """A fenced block. `line` is that of its first line in the page, `output` what
    the block of language text below it shows, None where there is none."""

    language: str
    name: str  # of the file it is, "" for none
    text: str
    line: int
    output: str | None


def parts(page):
    """A page cut into prose and blocks, in order. ValueError for an output that
    is below no block."""
    found, end = [], 0
    for block in FENCE.finditer(page):
        between, end_before = page[end : block.start()], end
        end = block.end()
        name, language, text = block.groups()
        if language == "text":
            line = page.count("\n", 0, block.start()) + 1
            if end_before == 0 or between.strip() or found[-1].output is not None:
                raise ValueError(f"line {line}: want an output right below a block")
            found[-1] = found[-1]._replace(output=text)
            continue
        if between.strip():
            found.append(Prose(between.strip() + "\n"))
        line = page.count("\n", 0, block.start(3)) + 1
        found.append(Code(language, name or "", text, line, None))
    if page[end:].strip():
        found.append(Prose(page[end:].strip() + "\n"))
    return found


def fenced(code):
    """A block of another language as it appears in a markdown cell."""
    text = f"```{code.language}\n{code.text}```\n"
    return text if code.output is None else f"{text}\n```text\n{code.output}```\n"


def relinked(text):
    """Links that are right in docs/ made right in examples/."""
    return re.sub(r"\]\((?!\w+:|\.\./|#)", "](../docs/", text)


def notebook(page):
    """The notebook of a page, as an object of nbformat 4.5."""
    cells = []

    def add(kind, text, **more):
        source = text.rstrip("\n").splitlines(keepends=True)
        cells.append(
            {
                "cell_type": kind,
                "id": f"cell-{len(cells) + 1}",
                "metadata": {},
                "source": source,
                **more,
            }
        )

    pending = []  # markdown of one cell

    def flush():
        if pending:
            add("markdown", "\n".join(pending))
            pending.clear()

    for part in parts(page):
        if isinstance(part, Prose):
            pending.append(relinked(part.text))
        elif part.language == "python":
            flush()
            outputs = []
            if part.output is not None:
                outputs = [
                    {
                        "output_type": "stream",
                        "name": "stdout",
                        "text": part.output.splitlines(keepends=True),
                    }
                ]
            add("code", part.text, execution_count=None, outputs=outputs)
        else:
            pending.append(fenced(part))
    flush()
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def text_of(page):
    """The notebook of a page, as the text of its file."""
    return json.dumps(notebook(page), indent=1, ensure_ascii=False) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--to", type=pathlib.Path, default=NOTEBOOK)
    options = parser.parse_args()
    options.to.write_text(text_of(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
