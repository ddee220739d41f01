"""Criteria and page of the experiment same_start, from results made up here."""

import math
import pathlib
import sys

import pytest

from experiments import same_start
from experiments.core import ExperimentError, Figures
from experiments.core.progress import Progress
from experiments.core.settings import Settings
from experiments.same_start import EXPERIMENT

ROOT = pathlib.Path(__file__).resolve().parents[2]


def result(size="cpu", first=2e-7, early=1e-5, late=5e-3, moved=5e-3, end=1.6):
    """Differences that grow evenly on a log axis, from `first` at the first update
    over `early` at the hundredth to `late` at the end."""
    steps = 500

    def run(last, at_100=early):
        losses = [2.5 - (2.5 - end) * i / (steps - 1) for i in range(steps)]
        differences = [first] + [at_100] * 99 + [last] * (steps - 100)
        return {"losses": losses, "differences": differences, "seconds": 20.0}

    runs = {
        "peer": run(0.0) | {"differences": [0.0] * steps},
        "tarn": run(late),
        "tarn_radam": run(late),
        "peer_moved": run(moved),
    }
    asked = {
        "steps": steps,
        "d_model": 128,
        "n_layers": 2,
        "n_heads": 4,
        "seq_len": 64,
        "batch": 16,
        "seed": 0,
        "threads": 2,
    }
    return {
        "size": size,
        "measured": {
            "asked": asked,
            "runs": runs,
            "parameters": 398_923,
            "torch": "2",
            "peer_version": "0.4.0",
        },
    }


def held(of):
    return [one.holds for one in EXPERIMENT.criteria(of) if not one.reported]


def test_every_criterion_can_hold_and_fail():
    assert held(result()) == [True] * 6
    assert held(result(first=2e-5))[0] is False
    assert held(result(early=2e-3)) == [True, False, True, False, True, True]
    assert held(result(late=1.6e-2)) == [True, True, False, True, False, True]
    assert held(result(end=2.4))[-1] is False
    assert held(result(first=math.nan))[0] is None


def test_the_quick_size_judges_the_first_loss_alone():
    assert held(result("quick")) == [True, None, None, None, None, None]
    assert held(result("quick", first=1e-3))[0] is False


def test_figures_are_reported_too():
    reported = [one for one in EXPERIMENT.criteria(result(moved=4e-3)) if one.reported]
    assert [one.got for one in reported] == ["0.005 nats", "0.005 nats", "0.004 nats"]
    assert {one.wanted for one in reported} == {"reported"}


def test_page_names_the_build_and_all_terms_that_differ(tmp_path):
    page = EXPERIMENT.page(result(), Figures(tmp_path, "same_start"))
    text = " ".join(str(part) for section in page.sections for part in section.parts)
    assert "is built by pip" in text and "1e-6 to the denominator" in text
    assert "elu(x) + 1 as exp(x)" in text and "one term that differs" not in text


@pytest.mark.parametrize(
    "late, told",
    [(5e-3, "This is the effect of rounding"), (5e-2, "Rounding alone explains 5.0e-03 of it")],
)
def test_page_tells_what_rounding_explains(tmp_path, late, told):
    page = EXPERIMENT.page(result(late=late), Figures(tmp_path, "same_start"))
    assert told in page.agrees and f"{late:.1e}" in page.headline
    assert (tmp_path / "same_start-losses.svg").is_file()
    assert page.tried.keys() == {one.name for one in EXPERIMENT.criteria(result())}


def test_without_the_peer_it_is_not_measured(tmp_path, monkeypatch, capsys):
    """And what comes after it runs all the same."""
    monkeypatch.setattr(same_start, "_PEERS", tmp_path / "none")
    settings = Settings(EXPERIMENT, "cpu", tmp_path)
    measured = EXPERIMENT.run(settings, Progress("same_start"))
    assert "scripts/bench_setup.sh" in measured["missing"]
    assert "not measured" in capsys.readouterr().err
    of = {"size": "cpu", "measured": measured}
    assert set(held(of)) == {None}
    page = EXPERIMENT.page(of, Figures(tmp_path, "same_start"))
    assert page.headline == "not measured" and "scripts/bench_setup.sh" in page.agrees


def test_the_peers_code_decides_the_result(tmp_path, monkeypatch):
    """So that a result without it is measured again once it is there."""
    monkeypatch.setattr(same_start, "ROOT", tmp_path)
    monkeypatch.setattr(same_start, "_PEERS", tmp_path / ".venv-peers")
    assert same_start._peer_files() == ()
    package = (
        tmp_path / ".venv-peers" / "lib" / "python3.11" / "site-packages" / "fast_transformers"
    )
    package.mkdir(parents=True)
    assert same_start._peer_files() == (str(package.relative_to(tmp_path)),)
    assert same_start._python() is None  # a package alone runs nothing


def test_a_side_that_fails_is_told_by_its_last_line(tmp_path):
    """Asked for a shape that no model has."""
    asked = {"threads": 1, "steps": 1, "seed": 0}
    with pytest.raises(ExperimentError, match="same_start: "):
        same_start._both(pathlib.Path(sys.executable), asked, Progress("same_start", quiet=True))


class Planned(Exception):
    """Ends a run when it has told its plan."""

    def plan(self, seconds):
        self.seconds = sum(seconds.values())
        raise self


@pytest.mark.parametrize("size", ["quick", "cpu", "full"])
def test_the_plan_is_within_the_time(tmp_path, size):
    with pytest.raises(Planned) as told:
        EXPERIMENT.run(Settings(EXPERIMENT, size, tmp_path, threads=2), Planned())
    assert 0 < told.value.seconds <= 60 * EXPERIMENT.minutes[size]


def test_files_of_the_repository_are_named():
    for source in EXPERIMENT.sources:
        assert (ROOT / source).exists(), source
