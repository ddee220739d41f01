"""Where the package and the programs lie."""

import os
import pathlib

# The checkout, or lib/tarn of an installed tree.
ROOT = pathlib.Path(__file__).resolve().parents[2]


def programs() -> pathlib.Path:
    """The folder of the programs tarn and tarn-train."""
    return pathlib.Path(os.environ.get("TARN_PROGRAMS")
                        or os.environ.get("TARN_BUILD") or ROOT / "build")
