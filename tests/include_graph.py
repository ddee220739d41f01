"""Checks the direction of data flow: a folder includes only from its left.

core -> config -> mixers, kernels -> torch_ops -> torch_nn | text -> runtime -> front ends
(cli, train); data (files to rows) builds on text. The runtime and what builds
on it without training include no torch header. No folder of sources holds more
files than a reader can survey. In Python the package knows neither experiments
nor benchmarks, what experiments share knows no experiment, plotting knows none
of them, and no modules need each other in a circle (import_cycles.py).
Exits 1 with one line for each include or import that breaks these rules.
"""

import pathlib
import re
import sys

import import_cycles

ROOT = pathlib.Path(__file__).resolve().parent.parent / "src"
ALLOWED = {
    "core": {"core"},
    "config": {"core", "config"},
    "mixers": {"core", "config", "kernels", "runtime", "mixers"},
    "kernels": {"core", "kernels"},
    "text": {"core", "config", "text"},
    "data": {"core", "config", "text", "data"},
    "runtime": {"core", "config", "kernels", "text", "runtime"},
    "capi": {"core", "config", "kernels", "text", "runtime", "capi"},
    "torch_ops": {"core", "config", "kernels", "torch_ops"},
    "torch_nn": {"core", "config", "kernels", "torch_ops", "torch_nn"},
    "train": {
        "core",
        "config",
        "data",
        "kernels",
        "text",
        "runtime",
        "torch_ops",
        "torch_nn",
        "train",
    },
    "cli": {"core", "config", "data", "kernels", "text", "runtime", "cli"},
    "python": {"core", "config", "kernels", "text", "runtime", "python"},
}
# The floors of src/runtime, the lowest first: a folder includes only from itself
# and from below. The mixers' halves stand on the first two.
RUNTIME = ["state", "mixer", "weights", "stack", "model", "session", "generate"]
MIXERS_MOST = "mixer"
TORCH_FOLDERS = {"torch_ops", "torch_nn", "train"}
# The most files in one folder among which people find theirs.
MOST_FILES = 40
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


def upward_includes(root: pathlib.Path) -> list[str]:
    """Includes of src/runtime and src/mixers that climb a floor of the runtime."""
    problems = []
    for path in sorted(p for top in ("runtime", "mixers") for p in (root / top).rglob("*")):
        if path.suffix not in {".h", ".cc"}:
            continue
        top, folder = path.relative_to(root).parts[:2]
        if top == "runtime" and folder not in RUNTIME:
            problems.append(f"{path}: folder src/runtime/{folder} has no floor")
            continue
        floor = RUNTIME.index(MIXERS_MOST if top == "mixers" else folder)
        for name in INCLUDE.findall(path.read_text()):
            parts = name.split("/")
            if parts[0] == "runtime" and parts[1] in RUNTIME[floor + 1 :]:
                problems.append(
                    f"{path}: src/{top}/{folder} may not include {name}, which is above"
                )
    return problems


def full_folders(root: pathlib.Path, most: int) -> list[str]:
    """Folders with more files than `most`, build rules aside."""
    found = []
    for folder in [root, *sorted(p for p in root.rglob("*") if p.is_dir())]:
        count = sum(
            p.is_file() and p.name != "CMakeLists.txt" and p.suffix != ".pyc"
            for p in folder.iterdir()
        )
        if count > most:
            found.append(f"{folder}: {count} files, more than {most}")
    return found


# Folder below the repository: modules its imports may not name.
PYTHON = {
    "python/tarn": re.compile(r"^(experiments|bench|plotting)\b"),
    "plotting": re.compile(r"^(experiments|bench|tarn|torch)\b"),
    "bench": re.compile(r"^experiments\b"),
    "experiments/core": re.compile(r"^experiments\.(?!core\b|registry\b)"),
}
# Folders without circles, and the package that their modules are named from.
ACYCLIC = {"python/tarn": "tarn", "plotting": "plotting", "bench": "", "experiments": "experiments"}
IMPORT = re.compile(r"^[ \t]*(?:from|import) ([\w.]+)", re.MULTILINE)


def broken_imports(root: pathlib.Path) -> tuple[list[str], int]:
    problems, count = [], 0
    for folder, forbidden in PYTHON.items():
        for path in sorted((root / folder).rglob("*.py")):
            names = IMPORT.findall(path.read_text())
            count += len(names)
            problems += [
                f"{path}: {folder} may not import {name}" for name in names if forbidden.match(name)
            ]
    return problems, count


def import_circles(root: pathlib.Path) -> list[str]:
    return [
        f"{folder}: modules import each other in a circle: {circle}"
        for folder, package in ACYCLIC.items()
        for circle in import_cycles.circles(import_cycles.graph(root / folder, package))
    ]


def self_test() -> None:
    """The check itself must be able to fail."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "core").mkdir()
        (root / "core" / "a.h").write_text(
            '#include "runtime/model/model.h"\n#include <torch/torch.h>\n'
        )
        problems, _ = broken_includes(root)
        assert len(problems) == 2, problems
        assert full_folders(root, 0) and not full_folders(root, 1)
        for below, text in {
            "runtime/stack": '#include "runtime/state/a.h"\n#include "runtime/model/a.h"\n',
            "runtime/attic": "",
            "mixers/linear": '#include "runtime/mixer/a.h"\n#include "runtime/stack/a.h"\n',
        }.items():
            (root / below).mkdir(parents=True)
            (root / below / "a.h").write_text(text)
        assert len(upward_includes(root)) == 3, upward_includes(root)
        (root / "experiments" / "core").mkdir(parents=True)
        (root / "experiments" / "core" / "a.py").write_text(
            "import experiments.scaling\nfrom experiments.core import page\n"
        )
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
    found += upward_includes(ROOT)
    found += full_folders(ROOT, MOST_FILES)
    found += full_folders(ROOT.parent / "python" / "tarn", MOST_FILES)
    includes += imports
    for line in found:
        print(line, file=sys.stderr)
    print(f"{includes} includes and imports, {len(found)} against the direction of data flow")
    sys.exit(1 if found else 0)
