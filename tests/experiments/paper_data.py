"""Exits with 3, as `tarn experiment all` does after the experiments that need no data, where
data of an experiment are not on this machine."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from experiments import registry  # noqa: E402
from experiments.core import data  # noqa: E402
from experiments.core.types import ExperimentError  # noqa: E402

try:
    for name in registry.in_all():
        for names in registry.find(name).data:
            if not names.startswith("?"):  # an experiment runs without it
                data.find(names, {})
except ExperimentError as error:
    print(error, file=sys.stderr)
    sys.exit(3)
