"""What an experiment's module stands on is among its sources: a result whose
measuring code has changed is not current."""

import ast
import importlib.util
import pathlib

import pytest

from experiments import registry

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What of experiments.core decides figures, by the names it is imported under.
DECIDING = {"train": "experiments/core/training.py", "run_tarn": "experiments/core/program.py",
            "tarn_json": "experiments/core/program.py", "bench": "experiments/core/machine.py"}


@pytest.fixture(autouse=True)
def the_real_ones(only_toy, monkeypatch):
    monkeypatch.undo()


def path_of(module):
    """Of a module of the repository, relative to it; python/tarn/<part> of tarn."""
    if module.startswith("tarn."):
        part = "python/tarn/" + module.split(".")[1]
        return part if (ROOT / part).is_dir() else part + ".py"
    spec = importlib.util.find_spec(module)
    return str(pathlib.Path(spec.origin).relative_to(ROOT))


def needed(source):
    """Paths that a Python file stands on: modules it imports or runs with -m,
    and what it takes from bench/."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / source).read_text())):
        modules, names = [], []
        if isinstance(node, ast.Import):
            modules = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules, names = [node.module], [one.name for one in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            modules = [node.value] if node.value.startswith("experiments.") else []
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "bench":
            found.add(f"bench/{node.args[0].value}.py")
        for module in modules:
            if module.startswith("experiments.core"):
                found |= {DECIDING[name] for name in names if name in DECIDING}
            elif module.startswith(("experiments.", "tarn.")) and not module.endswith("_page"):
                found.add(path_of(module))
    return found


def covered(path, sources):
    return any(path == one or path.startswith(one + "/") for one in sources)


@pytest.mark.parametrize("name", ["scaling", "generation", "long"])
def test_what_decides_the_figures_is_among_the_sources(name):
    sources = registry.find(name).sources
    own = [one for one in sources if one.endswith(".py") and one.startswith("experiments/")
           and not one.startswith("experiments/core/")]
    missing = {path for one in own for path in needed(one) if not covered(path, sources)}
    assert not missing


def test_the_check_sees_what_is_missing():
    assert "python/tarn/ops" in needed("experiments/state_error.py")
    assert needed("experiments/scaling_point.py") >= {
        "bench/harness.py", "experiments/core/machine.py", "python/tarn/ops"}
    assert "experiments/scaling_point.py" in needed("experiments/scaling.py")
