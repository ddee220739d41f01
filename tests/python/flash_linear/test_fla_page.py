"""docs/flash-linear-attention.md lists the functions of that package: those that run on the CPU
are those that tarn has, and the package, where it is installed, has no others."""

import ast
import importlib.util
import pathlib
import re

import pytest
from test_fla_signatures import TABLES

from tarn import _fla_package

PAGE = (pathlib.Path(__file__).parents[3] / "docs/flash-linear-attention.md").read_text()


def rows(heading):
    """Of the table below the heading: sets of the names in each cell."""
    part = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")][2:]
    return [
        [set(re.findall(r"`([\w.]+)`", cell)) for cell in line.strip("|").split("|")]
        for line in lines
    ]


def forms(prefix):
    return {
        (path.removeprefix(prefix), name)
        for places in _fla_package._FORMS.values()
        for path, names in places.items()
        if path.startswith(prefix)
        for name in names
    }


def test_functions():
    table = rows("Functions of fla.ops")
    served = set.union(*[row[1] for row in table])
    assert served == set(TABLES["fla"]) | {name for _, name in forms("ops.")}
    assert not served & set.union(*[row[2] for row in table])


def test_modules():
    table = rows("Functions of fla.modules")
    found = {
        (path.removeprefix("fla.modules."), name)
        for paths, names in table
        for path in paths
        for name in names
    }
    assert found == forms("modules.")


@pytest.mark.skipif(
    importlib.util.find_spec("fla") is None, reason="flash-linear-attention is not installed"
)
def test_the_package_has_no_others():
    """Its sources are read, not imported."""
    root = pathlib.Path(importlib.util.find_spec("fla").origin).parent
    listed = {next(iter(row[0])): row[1] | row[2] for row in rows("Functions of fla.ops")}
    every = set.union(*listed.values())
    for path in root.joinpath("ops").rglob("__init__.py"):
        place = path.parent.relative_to(root / "ops").parts
        if not place or {"backends", "common", "cp", "utils"} & set(place):
            continue
        exported = [
            name
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
            for name in ast.literal_eval(node.value)
        ]
        exported = {
            name for name in exported if not name.startswith("naive") and not name.endswith("_ref")
        }
        assert exported <= every, (place, exported - every)
        assert not exported or place[0] in listed, place
    sources = "".join(
        one.read_text()
        for part in ("layers", "models", "modules")
        for one in root.joinpath(part).rglob("*.py")
    )
    for names, _ in rows("Options of layers and models"):
        assert all(re.search(rf"\b{name}\b", sources) for name in names), names
