"""Every experiment keeps to experiments/README.md."""

import ast
import importlib.util
import pathlib
import re

import pytest

from experiments import registry
from experiments.core import data, digest
from experiments.core.command import _names
from experiments.core.progress import Progress
from experiments.core.settings import Experiment, Settings
from experiments.core.types import ATTENTION_FLAG, FAMILIES, SIZES, ExperimentError

ROOT = pathlib.Path(__file__).resolve().parents[2]
KINDS = {*ATTENTION_FLAG, "lstm", *FAMILIES}


@pytest.fixture(autouse=True)
def the_real_ones(only_toy, monkeypatch):
    monkeypatch.undo()


def _all() -> list[Experiment]:
    return [registry.find(name) for name in registry.names()]


def test_each_declares_what_decides_it():
    for one in _all():
        module = registry.MODULES[one.name]
        spec = importlib.util.find_spec(module)
        assert spec is not None and spec.origin is not None
        own = str(pathlib.Path(spec.origin).relative_to(ROOT))
        assert own in one.sources, one.name
        assert not any(source.endswith("_page.py") for source in one.sources), one.name
        for source in one.sources:
            assert (ROOT / source).exists(), f"{one.name}: {source}"
        for names in one.data:
            assert set(names.removeprefix("?").split("|")) <= data.SETS.keys(), one.name


def test_each_says_what_it_is():
    for one in _all():
        assert one.title and one.claim.endswith(".") and one.paper, one.name
        assert set(one.attention) <= KINDS and one.attention, one.name
        assert one.minutes.keys() == set(SIZES), one.name


class _Planned(Exception):
    """Seconds by part, before anything is measured."""


class _Plan(Progress):
    def plan(self, seconds):
        raise _Planned(dict(seconds))


def _minutes(one: Experiment, size: str, out: pathlib.Path) -> float:
    """The sum of the parts it plans."""
    settings = Settings(one, size, out / one.name)
    with pytest.raises(_Planned) as caught:
        one.run(settings, _Plan(one.name, quiet=True))
    return sum(caught.value.args[0].values()) / 60


@pytest.mark.parametrize(("size", "most"), [("cpu", 130), ("quick", 6)])
def test_time_is_kept(size, most, tmp_path):
    """130 minutes at the size of two cores, six at the smoke size: what is
    declared, and what the parts add up to."""
    try:
        planned = {one.name: _minutes(one, size, tmp_path) for one in _all()}
    except ExperimentError as error:
        pytest.skip(f"data are missing: {str(error).splitlines()[0]}")
    declared = {one.name: one.minutes[size] for one in _all()}
    together = registry.in_all()
    assert sum(declared[name] for name in together) <= most, declared
    assert sum(planned[name] for name in together) <= most, planned
    for name, minutes in planned.items():
        assert size == "quick" or minutes <= 1.05 * declared[name], (name, minutes)


# Words of a call and what then decides the figures.
TRAINS = {
    "src/config",
    "src/core",
    "src/data",
    "src/kernels",
    "src/text",
    "src/torch_nn",
    "src/torch_ops",
    "src/train",
}
CALLS = {
    "train": TRAINS,
    "run_tarn": {"src/cli", "src/config", "src/core", "src/runtime", "src/text"},
    "tarn_json": {"src/cli", "src/config", "src/core", "src/runtime", "src/text"},
}


def _file_of(module: str) -> str | None:
    """Below the repository; tarn.ops and its kind are folders of their own."""
    path = pathlib.Path(*module.split("."))
    if module.startswith("tarn"):
        path = pathlib.Path("python") / path
    for one in (path.with_suffix(".py"), path):
        if (ROOT / one).exists():
            return str(one)
    return None


def _needs(source: str) -> set[str]:
    """What a module of an experiment depends on: the modules it imports or starts, of
    bench/ too, and the engine's folders that it calls."""
    needs: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / source).read_text("utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = [f"{node.module}.{one.name}" for one in node.names]
            names = [one for one in inner if _file_of(one)] or [node.module]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value] if re.fullmatch(r"(experiments|bench)\.\w+", node.value) else []
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            needs |= CALLS.get(node.func.id, set())
            if node.func.id == "bench" and isinstance(node.args[0], ast.Constant):
                names = [f"bench.{node.args[0].value}"]
                needs.add("experiments/core/machine.py")  # which starts it
        for name in names:
            if name.split(".")[0] not in ("experiments", "tarn", "bench"):
                continue
            path = _file_of(name)
            if path and not path.startswith("experiments/core") and not path.endswith("_page.py"):
                needs.add(path)
    return needs


@pytest.mark.parametrize("name", registry.names())
def test_sources_hold_all_that_decides_the_figures(name):
    one = registry.find(name)
    todo = [
        s
        for s in one.sources
        if s.startswith("experiments/") and not s.startswith("experiments/core/")
    ]
    seen = set()
    while todo:
        source = todo.pop()
        seen.add(source)
        for need in _needs(source):
            # A need of src/cli is met by the sources of the commands that are called.
            covered = [
                s
                for s in one.sources
                if need == s
                or need.startswith(s + "/")
                or need == "src/cli"
                and s.startswith("src/cli/")
            ]
            assert covered, f"{name}: sources lack {need}, which {source} uses"
            own = need.startswith("experiments/") and not need.startswith("experiments/core/")
            if own and need not in seen:
                todo.append(need)


def test_the_check_sees_what_is_missing():
    assert "python/tarn/ops" in _needs("experiments/state_error.py")
    assert _needs("experiments/scaling_point.py") >= {
        "bench/harness.py",
        "experiments/core/machine.py",
        "python/tarn/ops",
    }
    assert "experiments/scaling_point.py" in _needs("experiments/scaling.py")


def test_what_drives_the_runs_is_there():
    assert all((ROOT / source).is_file() for source in digest.DRIVING)


def test_all_leaves_out_what_runs_by_its_name():
    assert set(_names("all")) == set(registry.names()) - {"distributed", "families"}
    assert _names("list") == registry.names() and _names("families") == ["families"]


def test_unknown_name():
    with pytest.raises(KeyError):
        registry.find("nonsense")
