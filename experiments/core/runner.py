"""Runs experiments one after the other, those that are not current."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

from experiments.core import result as results
from experiments.core.progress import Overall, Progress, duration
from experiments.core.settings import Settings
from experiments.core.types import ExperimentError, JsonDict
from experiments.core.verdict import Outcome, outcome


class Failures:
    """What went wrong with some of several experiments, told at the end."""

    def __init__(self) -> None:
        self._errors: dict[str, ExperimentError] = {}

    def add(self, name: str, error: Exception) -> None:
        """Keeps the error for the end and prints it now, a fault of the program with its stack."""
        if not isinstance(error, (ExperimentError, OSError)):
            traceback.print_exception(error)
            error = ExperimentError(f"{type(error).__name__}: {error}")
        elif isinstance(error, OSError):
            error = ExperimentError(str(error))
        print(f"{name}: error: {error}", file=sys.stderr)
        self._errors[name] = error

    def raise_any(self) -> None:
        """Raises where an experiment failed, with the exit code of the first that did."""
        if self._errors:
            first = next(iter(self._errors.values()))
            raise ExperimentError(
                f"not finished: {', '.join(self._errors)} (see above)", first.code
            )


def _reason(settings: Settings) -> str:
    """Why the experiment runs; empty where there is nothing to do."""
    return "asked for by --force" if settings.force else results.stale(settings)


def run_all(wanted: Sequence[Settings], quiet: bool = False) -> list[str]:
    """Runs those whose result is not current; returns the names of what ran.
    One that fails or lacks its data does not keep the others from running;
    ExperimentError tells of them at the end."""
    failures, reasons = Failures(), {}
    for one in wanted:
        try:
            reasons[one.experiment.name] = _reason(one)
        except ExperimentError as error:
            failures.add(one.experiment.name, error)
    planned = {
        one.experiment.name: 60 * one.experiment.minutes.get(one.size, 10.0)
        for one in wanted
        if reasons.get(one.experiment.name)
    }
    overall = Overall(planned)
    ran: list[str] = []
    for settings in wanted:
        name = settings.experiment.name
        progress = Progress(name, overall, quiet=quiet)
        if not reasons.get(name):
            if name in reasons:
                progress.note(f"{name}: current, nothing to do ({results.path_of(settings)})")
            continue
        progress.note(f"{name}: {reasons[name]}; planned {duration(planned[name])}")
        try:
            _tell(settings, results.measure(settings, progress))
            ran.append(name)
        except BrokenPipeError:
            raise
        except Exception as error:
            progress.clear()
            failures.add(name, error)
        finally:
            progress.clear()
        overall.done.append(name)
    failures.raise_any()
    return ran


def _tell(settings: Settings, result: JsonDict) -> None:
    """The criteria on stdout, as the payload of the command."""
    name = settings.experiment.name
    marks = {Outcome.HOLDS: "holds", Outcome.FAILS: "MISSED", Outcome.OPPOSITE: "MISSED"}
    for one in settings.experiment.criteria(result):
        found = outcome(one)
        mark = (
            "reported" if one.reported and one.holds else marks.get(found, found.value.strip("*"))
        )
        mark += " (a goal of tarn's own)" if one.goal else ""
        print(f"{name}: {mark}: {one.name}: wanted {one.wanted}, got {one.got}")
    print(f"{name}: result in {results.path_of(settings)}")
    sys.stdout.flush()
