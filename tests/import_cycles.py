"""Circles among Python modules: what a module imports at its own level must not
need that module.

Imports inside functions do not count: they run when all modules are loaded.
Those below `if TYPE_CHECKING` do: a reader and a type checker follow them too.
`from package import name` needs the module package.name where there is one,
and the package's __init__ otherwise; Python runs the __init__ of a package
before any module of it, which is no circle.
"""

import ast
import pathlib
from collections.abc import Iterator


def _module_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Every statement that runs when the module is loaded."""
    for node in body:
        yield node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for field in ("body", "orelse", "finalbody"):
            yield from _module_level(getattr(node, field, []))
        for handler in getattr(node, "handlers", []):
            yield from _module_level(handler.body)
        for case in getattr(node, "cases", []):
            yield from _module_level(case.body)


def _base(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    """The absolute name after `from`, with dots resolved."""
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    kept = len(parts) - node.level + is_package
    return ".".join([*parts[:kept], *([node.module] if node.module else [])])


def _needed(tree: ast.Module, module: str, is_package: bool, known: set[str]) -> set[str]:
    needed = set()
    for node in _module_level(tree.body):
        if isinstance(node, ast.Import):
            needed |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = _base(node, module, is_package)
            for alias in node.names:
                name = f"{base}.{alias.name}"
                needed.add(name if name in known else base)
    return needed & known - {module}


def graph(folder: pathlib.Path, package: str) -> dict[str, set[str]]:
    """For each module below `folder`, named from `package` ("" where modules
    name each other without one), those modules of the folder that it needs."""
    paths = {}
    for path in sorted(folder.rglob("*.py")):
        parts = [package] if package else []
        parts += path.relative_to(folder).with_suffix("").parts
        if parts[-1] == "__init__":
            parts.pop()
        if parts:
            paths[".".join(parts)] = path
    known = set(paths)
    return {
        module: _needed(
            ast.parse(path.read_text("utf-8"), str(path)), module, path.name == "__init__.py", known
        )
        for module, path in paths.items()
    }


def _way_back(needs: dict[str, set[str]], start: str) -> list[str]:
    """The shortest circle through `start`, which is at both ends; empty where there
    is none."""
    came: dict[str, str] = {}
    queue = [start]
    for module in queue:
        for other in sorted(needs[module]):
            if other not in came:
                came[other] = module
                queue.append(other)
    if start not in came:
        return []
    way = [start]
    while len(way) == 1 or way[-1] != start:
        way.append(came[way[-1]])
    return way[::-1]


def circles(needs: dict[str, set[str]]) -> list[str]:
    """Circles as "a -> b -> a", enough of them to name every module on a circle at
    least once."""
    found, named = [], set()
    for module in sorted(needs):
        way = _way_back(needs, module) if module not in named else []
        if way:
            named |= set(way)
            found.append(" -> ".join(way))
    return found


def self_test() -> None:
    """The check itself must be able to fail, and to pass."""
    import tempfile

    texts = {
        "__init__": "from p.a import one\n",
        "a": "if True:\n    try:\n        import p.b\n    except ImportError:\n        pass\n",
        "b": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import c\n",
        "c": "from .a import one\n",
        "d": "from p import e\n",
        "e": "def late():\n    from p import d\n    import p\n",
        "sub/__init__": "from .f import g\n",
        "sub/f": "from p.sub import g\n",
    }
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "sub").mkdir()
        for module, text in texts.items():
            (folder / f"{module}.py").write_text(text)
        found = circles(graph(folder, "p"))
        assert found == ["p.a -> p.b -> p.c -> p.a", "p.sub -> p.sub.f -> p.sub"], found
        (folder / "c.py").write_text("import json\n")
        (folder / "sub/f.py").write_text("g = 1\n")
        assert circles(graph(folder, "p")) == []
        (folder / "x.py").write_text("import y\n")
        (folder / "y.py").write_text("from x import z\n")
        assert circles(graph(folder, "")) == ["x -> y -> x"]
