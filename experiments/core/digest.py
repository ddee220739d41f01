"""Whether a result is still current: a digest of everything that decided it."""

import ast
import functools
import hashlib
import json
import pathlib
import re
from collections.abc import Iterable
from typing import Any

from experiments.core.data import sha256
from experiments.core.places import ROOT, programs

# Functions of an experiment's module that only tell what was measured.
_TELLING = {"criteria", "page"}
# These modules drive every experiment: flags, clocks, and when a point serves again.
DRIVING = (
    "experiments/core/points.py",
    "experiments/core/program.py",
    "experiments/core/job.py",
    "experiments/core/training.py",
)
# Comments of C++, and the literals in which what looks like one is none.
_CPP = re.compile(
    r"""R"([^()\\\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|//[^\n]*|/\*.*?\*/""",
    re.DOTALL,
)
_CPP_FILES = (".h", ".hpp", ".c", ".cc", ".cu")
_SKIPPED = ("_test.cc", "_bench.cc", "_ref.cc", ".md")


def of_json(value: Any) -> str:
    """SHA-256 of a value, whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


class _Measuring(ast.NodeTransformer):
    """Leaves the code that measures: no documentation, no telling functions."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | None:
        if node.name in _TELLING:
            return None
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        constant = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if constant else self.generic_visit(node)


def of_python(text: str) -> str:
    """SHA-256 of a module's code: comments, documentation, layout and the
    functions `criteria` and `page` do not count."""
    tree = _Measuring().visit(ast.parse(text))
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def of_cpp(text: str) -> str:
    """SHA-256 of a C++ file's code: comments and empty lines do not count. A digit
    separator (1'000) may hide a comment after it, which then counts."""
    code = _CPP.sub(lambda found: " " if found[0].startswith(("//", "/*")) else found[0], text)
    lines = [line.rstrip() for line in code.splitlines() if line.strip()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _digest(path: pathlib.Path) -> str:
    if path.suffix == ".py":
        return of_python(path.read_text("utf-8"))
    return of_cpp(path.read_text("utf-8")) if path.suffix in _CPP_FILES else sha256(path)


def _files(root: pathlib.Path, source: str) -> Iterable[pathlib.Path]:
    path = root / source
    if path.is_file():
        return [path]
    return sorted(
        one
        for one in path.rglob("*")
        if one.is_file()
        and "__pycache__" not in one.parts
        and not one.name.endswith(_SKIPPED)
        and one.suffix not in (".pyc", ".so")
        and not one.name.startswith("test_")
    )


@functools.lru_cache(maxsize=64)
def of_sources(sources: tuple[str, ...], root: pathlib.Path = ROOT) -> str:
    """SHA-256 over files and folders of the repository. Where the engine's
    sources are not there, as in an installed tree, its programs count."""
    lines = []
    if not (root / "src").is_dir():
        parts = (programs() / "tarn", programs() / "tarn-train")
        lines = [f"{one.name} {sha256(one)}" for one in parts if one.is_file()]
    for source in sorted(set(sources)):
        files = list(_files(root, source))
        lines.append(f"{source} {len(files)}")
        for path in files:
            name = path.relative_to(root) if path.is_relative_to(root) else path.name
            lines.append(f"{name} {_digest(path)}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def engine_sources(sources: tuple[str, ...]) -> tuple[str, ...]:
    """The engine's sources among these: they decide a training, whatever drives it."""
    return tuple(one for one in sources if one.startswith("src/"))
