"""Runs experiments one after the other, those that are not current."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from experiments.core import result as results
from experiments.core.progress import Overall, Progress, duration
from experiments.core.settings import Settings
from experiments.core.types import ExperimentError


def run_all(wanted: Sequence[Settings], quiet: bool = False) -> list[str]:
    """Runs those whose result is not current; returns the names of what ran.
    An experiment that fails stops the rest: what was measured is kept."""
    reasons = {one.experiment.name: "asked for by --force" if one.force else results.stale(one)
               for one in wanted}
    planned = {one.experiment.name: 60 * one.experiment.minutes.get(one.size, 10.0)
               for one in wanted if reasons[one.experiment.name]}
    overall = Overall(planned)
    ran: list[str] = []
    for settings in wanted:
        name = settings.experiment.name
        progress = Progress(name, overall, quiet=quiet)
        if not reasons[name]:
            progress.note(f"{name}: current, nothing to do ({results.path_of(settings)})")
            continue
        progress.note(f"{name}: {reasons[name]}; planned {duration(planned[name])}")
        try:
            result = results.measure(settings, progress)
        except ExperimentError as error:
            raise ExperimentError(f"{name}: {error}", error.code) from error
        finally:
            progress.clear()
        overall.done.append(name)
        ran.append(name)
        _tell(settings, result)
    return ran


def _tell(settings: Settings, result: dict) -> None:
    """The criteria on stdout, as the payload of the command."""
    name = settings.experiment.name
    marks = {True: "holds", False: "MISSED", None: "not measured"}
    for one in settings.experiment.criteria(result):
        print(f"{name}: {marks[one.holds]}: {one.name}: wanted {one.wanted}, got {one.got}")
    print(f"{name}: result in {results.path_of(settings)}")
    sys.stdout.flush()
