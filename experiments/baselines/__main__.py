"""`python -m experiments.baselines [FOLDER]` fits all baselines and writes
FOLDER/baselines.json, by default where `tarn experiment report` reads it."""

from __future__ import annotations

import pathlib
import sys
import tempfile

from experiments.baselines.fits import EXPERIMENT
from experiments.core import Progress, Settings
from experiments.core import result as results
from experiments.core.files import dumps, write_text
from experiments.core.places import ROOT
from experiments.core.types import ExperimentError

COMMAND = "python -m experiments.baselines"


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    to = pathlib.Path(arguments[0]) if arguments else ROOT / "docs" / "paper" / "results"
    try:
        with tempfile.TemporaryDirectory() as folder:
            settings = Settings(EXPERIMENT, "cpu", pathlib.Path(folder))
            found = results.measure(settings, Progress(EXPERIMENT.name))
            write_text(to / "baselines.json", dumps(found | {"command": COMMAND}) + "\n")
    except ExperimentError as error:
        print(f"baselines: error: {error}", file=sys.stderr)
        return error.code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
