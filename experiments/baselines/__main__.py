"""`python -m experiments.baselines [FOLDER]` fits all baselines and writes
FOLDER/baselines.json, by default where `tarn experiment report` reads it."""

from __future__ import annotations

import pathlib
import sys
import tempfile

from experiments.baselines.fits import EXPERIMENT
from experiments.core import Progress, Settings
from experiments.core import result as results
from experiments.core.files import write_bytes
from experiments.core.places import ROOT
from experiments.core.types import ExperimentError


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    to = pathlib.Path(arguments[0]) if arguments else ROOT / "docs" / "paper" / "results"
    try:
        with tempfile.TemporaryDirectory() as folder:
            settings = Settings(EXPERIMENT, "cpu", pathlib.Path(folder))
            results.measure(settings, Progress(EXPERIMENT.name))
            write_bytes(to / "baselines.json", results.path_of(settings).read_bytes())
    except ExperimentError as error:
        print(f"baselines: error: {error}", file=sys.stderr)
        return error.code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
