"""Where the package and the programs are."""

import os
import pathlib
import shutil
import subprocess

_TARGETS = ("tarn", "tarn-train", "tarn_pytorch")

# The checkout, or lib/tarn of an installed tree.
ROOT = pathlib.Path(__file__).resolve().parents[2]


def out_of_date(build: pathlib.Path) -> str:
    """What a build tree of a checkout would rebuild before its programs are those of the sources,
    one line; empty where all is up to date or, as in an installed tree, nothing is built. Asks
    ninja, so other generators pass."""
    if not (build / "build.ninja").is_file() or shutil.which("ninja") is None:
        return ""
    # Through a manifest of another name: ninja would want to run CMake for its own first.
    done = subprocess.run(
        ["ninja", "-C", str(build), "-f", "/dev/stdin", "-n", *_TARGETS],
        input="include build.ninja\n",
        capture_output=True,
        text=True,
    )
    if done.returncode == 0 and "no work to do" in done.stdout:
        return ""
    said = (done.stdout + done.stderr).strip().splitlines()
    return said[-1] if said else f"ninja ended with {done.returncode}"


def programs() -> pathlib.Path:
    """The folder of the programs tarn and tarn-train."""
    return pathlib.Path(
        os.environ.get("TARN_PROGRAMS") or os.environ.get("TARN_BUILD") or ROOT / "build"
    )
