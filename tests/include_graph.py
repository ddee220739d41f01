"""Holds the direction of data flow: a folder includes only from its left.

core -> kernels -> pytorch | runtime -> front ends (cli, train); data (files
in official formats) stands on core alone. The runtime and what stands on it
without training know no torch header. In Python the package knows neither
experiments nor benchmarks, what experiments share knows no experiment, plotting
knows none of them, and no modules need each other in a circle
(import_cycles.py).
Exits 1 with one line for each include or import that breaks the promise.
"""
import pathlib
import re
import sys

import import_cycles

ROOT = pathlib.Path(__file__).resolve().parent.parent / "src"
ALLOWED = {
    "core": {"core"},
    "kernels": {"core", "kernels"},
    "data": {"core", "data"},
    "runtime": {"core", "kernels", "runtime"},
    "capi": {"core", "kernels", "runtime", "capi"},
    "pytorch": {"core", "kernels", "pytorch"},
    "train": {"core", "data", "kernels", "runtime", "pytorch", "train"},
    "cli": {"core", "data", "kernels", "runtime", "cli"},
    "python": {"core", "kernels", "runtime", "python"},
}
TORCH_FOLDERS = {"pytorch", "train"}
TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)


def broken_includes(root: pathlib.Path) -> tuple[list[str], int]:
    problems, count = [], 0
    for path in sorted(root.rglob("*")):
        if path.suffix not in {".h", ".hpp", ".cc", ".cu"}:
            continue
        folder = path.relative_to(root).parts[0]
        if folder not in ALLOWED:
            problems.append(f"{path}: folder src/{folder} is not in the graph")
            continue
        for name in INCLUDE.findall(path.read_text()):
            count += 1
            target = name.split("/")[0]
            if target in ALLOWED and "/" in name and target not in ALLOWED[folder]:
                problems.append(f"{path}: src/{folder} may not include {name}")
            if TORCH.match(name) and folder not in TORCH_FOLDERS:
                problems.append(f"{path}: src/{folder} may not know torch ({name})")
    return problems, count


# Folder below the repository: modules its imports may not name.
PYTHON = {
    "python/tarn": re.compile(r"^(experiments|bench|plotting)\b"),
    "plotting": re.compile(r"^(experiments|bench|tarn|torch)\b"),
    "bench": re.compile(r"^experiments\b"),
    "experiments/core": re.compile(r"^experiments\.(?!core\b|registry\b)"),
}
# Folders without circles, and the package that their modules are named from.
ACYCLIC = {"python/tarn": "tarn", "plotting": "plotting", "bench": "",
           "experiments": "experiments"}
IMPORT = re.compile(r"^[ \t]*(?:from|import) ([\w.]+)", re.MULTILINE)


def broken_imports(root: pathlib.Path) -> tuple[list[str], int]:
    problems, count = [], 0
    for folder, forbidden in PYTHON.items():
        for path in sorted((root / folder).rglob("*.py")):
            names = IMPORT.findall(path.read_text())
            count += len(names)
            problems += [f"{path}: {folder} may not import {name}"
                         for name in names if forbidden.match(name)]
    return problems, count


def import_circles(root: pathlib.Path) -> list[str]:
    return [f"{folder}: modules import each other in a circle: {circle}"
            for folder, package in ACYCLIC.items()
            for circle in import_cycles.circles(import_cycles.graph(root / folder, package))]


def self_test() -> None:
    """The check itself must be able to fail."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "core").mkdir()
        (root / "core" / "a.h").write_text('#include "runtime/model.h"\n#include <torch/torch.h>\n')
        problems, _ = broken_includes(root)
        assert len(problems) == 2, problems
        (root / "experiments" / "core").mkdir(parents=True)
        (root / "experiments" / "core" / "a.py").write_text(
            "import experiments.scaling\nfrom experiments.core import page\n")
        problems, _ = broken_imports(root)
        assert len(problems) == 1, problems
        assert import_circles(root) == []
        (root / "experiments" / "core" / "page.py").write_text("import experiments.core.a\n")
        problems = import_circles(root)
        assert len(problems) == 1, problems
    import_cycles.self_test()


if __name__ == "__main__":
    self_test()
    found, includes = broken_includes(ROOT)
    found_too, imports = broken_imports(ROOT.parent)
    found += found_too + import_circles(ROOT.parent)
    includes += imports
    for line in found:
        print(line, file=sys.stderr)
    print(f"{includes} includes and imports, {len(found)} against the direction of data flow")
    sys.exit(1 if found else 0)
