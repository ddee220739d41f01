"""Runs docs/tutorial.md: every block in order, Python in one process, and compares the
output with what is shown; also its notebook, made from the same page."""

import importlib.util
import json
import re

import make_notebook
import pytest
from conftest import ROOT
from make_notebook import Code, parts

PAGE = make_notebook.PAGE.read_text(encoding="utf-8")
BLOCKS = [one for one in parts(PAGE) if isinstance(one, Code)]
EQUATION = re.compile(r"\((\d+)\)")


@pytest.mark.parametrize(
    "code", [pytest.param(one, id=f"{one.line}-{one.language}") for one in BLOCKS]
)
def test_block(clone, code):
    clone.block(code)


def test_page_has_all_that_is_promised():
    assert {one.language for one in BLOCKS} == {"python", "sh", "cpp"}
    assert {int(n) for n in EQUATION.findall(PAGE)} >= {3, 4, 5, 6, 7, 8, 9, 16, 17, 18, 19, 20}
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", PAGE):
        assert (make_notebook.PAGE.parent / link).exists(), link
    fences = len(re.findall("^```", PAGE, re.MULTILINE))
    assert fences == 2 * (len(BLOCKS) + sum(one.output is not None for one in BLOCKS))


@pytest.mark.parametrize("text", ["print(1)", "pass", "print(2, 2)"])
def test_another_output_is_found(fresh, text):
    with pytest.raises(AssertionError, match="line 7"):
        fresh.block(Code("python", "", text, 7, "2\n"))


def test_what_fails_is_found(fresh):
    with pytest.raises(AssertionError, match="false"):
        fresh.block(Code("sh", "", "false\ntrue\n", 1, None))
    with pytest.raises(ZeroDivisionError) as caught:
        fresh.block(Code("python", "", "a = 1\n1 / 0\n", 40, None))
    assert caught.traceback[-1].lineno == 40  # from 0: line 41 of the page


def test_an_output_belongs_to_a_block():
    assert parts("```sh\na\n```\n\n```text\nb\n```\n") == [Code("sh", "", "a\n", 2, "b\n")]
    for page in (
        "```text\nb\n```\n",
        "```sh\na\n```\n\nc\n\n```text\nb\n```\n",
        "```sh\na\n```\n```text\nb\n```\n```text\nb\n```\n",
    ):
        with pytest.raises(ValueError, match="right below a block"):
            parts(page)


def cells(kind):
    found = json.loads(make_notebook.NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return [one for one in found if one["cell_type"] == kind]


def test_notebook_is_made_of_the_page(page):
    """scripts/make_notebook.py writes it; it is not edited by hand."""
    stored = make_notebook.NOTEBOOK.read_text(encoding="utf-8")
    assert stored == make_notebook.text_of(page), "run scripts/make_notebook.py"
    changed = page.replace("manual_seed(0)", "manual_seed(1)")
    assert changed != page and stored != make_notebook.text_of(changed)
    code = ["".join(one["source"]) for one in cells("code")]
    assert code == [one.text.rstrip("\n") for one in BLOCKS if one.language == "python"]
    assert str(ROOT) not in stored
    for one in cells("markdown"):
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", "".join(one["source"])):
            assert (make_notebook.NOTEBOOK.parent / link).exists(), link


def test_notebook_runs(fresh):
    """From top to bottom, with a kernel of Jupyter where there is one."""
    shown = [
        "".join(text for out in one["outputs"] for text in out["text"]) for one in cells("code")
    ]
    assert any(shown)
    if importlib.util.find_spec("nbclient") and importlib.util.find_spec("ipykernel"):
        import nbclient
        import nbformat

        book = nbformat.read(make_notebook.NOTEBOOK, as_version=4)
        nbformat.validate(book)
        nbclient.NotebookClient(
            book, timeout=600, resources={"metadata": {"path": str(fresh.folder)}}
        ).execute()
        told = [
            "".join(out["text"] for out in one["outputs"] if out["output_type"] == "stream")
            for one in book["cells"]
            if one["cell_type"] == "code"
        ]
    else:
        told = [fresh.python("".join(one["source"]), "tutorial.ipynb") for one in cells("code")]
    assert [one.rstrip("\n") for one in told] == [one.rstrip("\n") for one in shown]
