"""Checks the direction of data flow: a folder includes only from its left.

core -> config -> feed_forward, mixers, kernels -> torch_ops -> torch_nn | text -> runtime -> front ends
(cli, train); data (files to rows) builds on text. The files of a family of mixers are
on floors by the prefix of their names: form*, what every side needs to know of a
layer; spec*, the rows of the registry; runtime*, the half that the runtime executes.
Other folders may include forms alone, and src/config names no family. The runtime and
what builds on it without training include no torch header. No folder of sources holds more
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
    "feed_forward": {"core", "config", "feed_forward"},
    "mixers/form": {"core", "config", "mixers/form"},
    "mixers/spec": {"core", "config", "mixers/form", "mixers/spec"},
    "mixers/runtime": {
        "core",
        "config",
        "kernels",
        "runtime",
        "mixers/form",
        "mixers/spec",
        "mixers/runtime",
    },
    "kernels": {"core", "kernels"},
    "weights": {"core", "weights"},
    "importers": {"core", "config", "weights", "mixers/form", "importers"},
    "text": {"core", "config", "text"},
    "data": {"core", "config", "text", "data"},
    "runtime": {
        "core",
        "config",
        "feed_forward",
        "importers",
        "kernels",
        "weights",
        "text",
        "runtime",
    },
    "capi": {"core", "config", "kernels", "text", "runtime", "capi"},
    "wasm": {"capi", "wasm"},
    "torch_ops": {"core", "config", "kernels", "weights", "importers", "torch_ops"},
    "torch_nn": {
        "core",
        "config",
        "feed_forward",
        "mixers/form",
        "kernels",
        "weights",
        "torch_ops",
        "torch_nn",
    },
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
    "serve": {"core", "config", "text", "runtime", "serve"},
    "cli": {"core", "config", "mixers/form", "data", "kernels", "text", "runtime", "serve", "cli"},
    "python": {"core", "config", "mixers/form", "kernels", "text", "runtime", "python"},
}
# Oracles and tests name what they test: they may include forms, and those of a family
# everything that its runtime half may.
TEST_FILE = re.compile(r"(_test\.cc|^(test|reference|plain)_\w+\.(h|cc)|^variants\.h)$")
# The floors of src/runtime, the lowest first: a folder includes only from itself
# and from below. The mixers' halves are on the first two.
RUNTIME = [
    "state",
    "mixer",
    "feed_forward",
    "weights",
    "stack",
    "model",
    "quantise",
    "sampling",
    "session",
    "speculate",
    "generate",
    "chat",
]
MIXERS_MOST = "mixer"
TORCH_FOLDERS = {"torch_ops", "torch_nn", "train"}
# The most files in one folder among which people find theirs.
MOST_FILES = 40
TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)


def floor_of(name: str) -> str:
    """The key of ALLOWED for a file, by its path from src: its folder, for a family of
    mixers also the beginning of its name. Without an entry: another text."""
    folder, *rest = name.split("/")
    if folder != "mixers":
        return folder
    if TEST_FILE.search(rest[-1]):
        return "mixers/runtime"
    found = re.match(r"(form|spec|runtime)(?![a-z])", rest[-1])
    return f"mixers/{found[1]}" if found else name


def broken_includes(root: pathlib.Path) -> tuple[list[str], int]:
    problems, count = [], 0
    folders = {floor.split("/")[0] for floor in ALLOWED}
    for path in sorted(root.rglob("*")):
        if path.suffix not in {".h", ".hpp", ".cc", ".cu", ".cuh"}:
            continue
        floor = floor_of(path.relative_to(root).as_posix())
        if floor not in ALLOWED:
            problems.append(f"{path}: src/{floor} is not in the graph")
            continue
        allowed = ALLOWED[floor] | ({"mixers/form"} if TEST_FILE.search(path.name) else set())
        for name in INCLUDE.findall(path.read_text()):
            count += 1
            if name.split("/")[0] in folders and "/" in name and floor_of(name) not in allowed:
                problems.append(f"{path}: src/{floor} may not include {name}")
            if TORCH.match(name) and floor not in TORCH_FOLDERS:
                problems.append(f"{path}: src/{floor} may not know torch ({name})")
    return problems, count


COMMENT = re.compile(r"//[^\n]*")
WORD = re.compile(r'"(?:[^"\\\n]|\\.)*"|\w+')


def families_named(root: pathlib.Path) -> list[str]:
    """Files of src/config, tests aside, with the name of a family or of one of its mixers
    as a text or in an identifier; words within help texts are not looked at."""
    folders = [p for p in (root / "mixers").iterdir() if (p / "spec.cc").is_file()]
    # Rows of a form; rows of a spec, and copies of them. Other names are of keys and weights.
    row = re.compile(r'(?:\.name = "([\w-]+)",\s*\.family|\w\.name = "([\w-]+)")')
    mixers = set()
    for folder in folders:
        for path in folder.glob("form*.cc"):
            mixers |= set(re.findall(r'\.name = "([\w-]+)"', path.read_text()))
        for path in folder.glob("spec*.cc"):
            mixers |= {one or other for one, other in row.findall(path.read_text())}
    texts = {f'"{name}"' for name in mixers | {folder.name for folder in folders}}
    camel = "|".join(folder.name.capitalize() for folder in folders)
    identifier = re.compile(f"({camel})(?![a-z])")
    found = []
    for path in sorted((root / "config").rglob("*")):
        if path.suffix not in {".h", ".cc"} or TEST_FILE.search(path.name):
            continue
        words = WORD.findall(COMMENT.sub("", path.read_text()))
        found += [
            f"{path}: src/config may not name {word}"
            for word in words
            if word in texts or (word[0] != '"' and identifier.search(word))
        ]
    return found


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
        # A form that includes a spec, a spec with a kernel, a module with a runtime half and
        # a file on no floor; what the last three lines include is allowed.
        family = root / "mixers" / "steady"
        family.mkdir(parents=True)
        (root / "torch_nn").mkdir()
        (family / "form.h").write_text('#include "mixers/steady/spec.h"\n')
        (family / "spec.cc").write_text('#include "kernels/k.h"\n.name = "steady-one", .family')
        (family / "other.cc").write_text("")
        (root / "torch_nn" / "m.cc").write_text('#include "mixers/steady/runtime.h"\n')
        (family / "runtime.cc").write_text('#include "mixers/steady/spec.h"\n')
        (root / "torch_nn" / "n.cc").write_text('#include "mixers/steady/form_sizes.h"\n')
        (root / "torch_nn" / "n_test.cc").write_text('#include "mixers/steady/form.h"\n')
        problems, _ = broken_includes(root)
        assert len(problems) == 2 + 4, problems
        (root / "config").mkdir()
        for name, text, count in (
            ("a.cc", '// steady "steady"\n"set steady"', 0),
            ("b.cc", '"steady"', 1),
            ("c.h", "bool IsSteady();", 1),
            ("d.cc", 'Find("steady-one")', 1),
            ("e_test.cc", '"steady"', 0),
        ):
            (root / "config" / name).write_text(text)
            problems = families_named(root)
            assert len(problems) == count, (name, problems)
            (root / "config" / name).unlink()
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
    found += families_named(ROOT)
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
