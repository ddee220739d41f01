"""What pip calls: scikit-build-core, after a check that the system has what the build
needs, so that a missing package is one message and not a compiler's."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

from scikit_build_core import build as _build
from scikit_build_core.build import build_sdist, get_requires_for_build_sdist

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

_HERE = pathlib.Path(__file__).resolve().parent
# What finds each header, with the Debian package that scripts/packages.txt lists.
_HEADERS = {
    "hwy/highway.h": ("Highway", "libhwy-dev"),
    "nlohmann/json.hpp": ("JSON for Modern C++", "nlohmann-json3-dev"),
    "CLI/CLI.hpp": ("CLI11", "libcli11-dev"),
    "archive.h": ("libarchive", "libarchive-dev"),
    "zlib.h": ("zlib", "zlib1g-dev"),
    "zstd.h": ("zstd", "libzstd-dev"),
    "utf8proc.h": ("utf8proc", "libutf8proc-dev"),
    "Python.h": ("Python's headers", "python3-dev"),
}
_COMPILERS = ("c++", "g++", "clang++")


def _compiler() -> list[str] | None:
    named = os.environ.get("CXX", "").split()
    for command in [named] if named else [[name] for name in _COMPILERS]:
        if shutil.which(command[0]):
            return command
    return None


def _missing_headers(compiler: list[str]) -> list[str]:
    """Those of _HEADERS that the compiler does not find. The preprocessor answers for
    all in one run."""
    folders = [sysconfig.get_path("include")]
    for variable in ("CMAKE_PREFIX_PATH", "CMAKE_INCLUDE_PATH"):
        for folder in filter(None, os.environ.get(variable, "").split(os.pathsep)):
            folders += [folder, os.path.join(folder, "include")]
    asked = "".join(
        f"#if !__has_include(<{header}>)\nmissing {header}\n#endif\n" for header in _HEADERS
    )
    command = [*compiler, "-std=c++20", "-x", "c++", "-E", "-P", "-"]
    command += [part for folder in folders for part in ("-I", folder)]
    done = subprocess.run(command, input=asked, text=True, capture_output=True)
    if done.returncode:
        return ["a compiler of C++20"]
    lines = done.stdout.splitlines()
    return [line.split()[1] for line in lines if line.startswith("missing ")]


def _packages(debian: list[str]) -> str:
    """The command that installs packages, by this distribution's names."""
    sys.path.insert(0, str(_HERE))
    from system_packages import install_command

    return install_command(debian)


def _check_system(wants_cmake: bool = True) -> None:
    """Exits with one message that names everything that is missing."""
    missing, packages = [], []
    has_cmake = shutil.which("cmake") or importlib.util.find_spec("cmake")
    if wants_cmake and not has_cmake:
        missing.append("CMake 3.25 or newer")
        packages.append("cmake")
    compiler = _compiler()
    if compiler is None:
        missing.append("a C++20 compiler: g++ 12 or newer (in PATH or CXX)")
        packages.append("build-essential")
    else:
        for header in _missing_headers(compiler):
            name, package = _HEADERS.get(header, (header, "build-essential"))
            missing.append(f"{name} ({header})" if header in _HEADERS else name)
            packages.append(package)
    if missing:
        lines = "".join(f"  - {line}\n" for line in missing)
        sys.exit(
            f"\ntarn: the build needs system packages that are not here:\n{lines}"
            f"Install them with\n  {_packages(packages)}\n"
            "or, for libraries elsewhere, set CXX and CMAKE_PREFIX_PATH. "
            "Nothing has been compiled.\n"
        )


Settings = dict[str, list[str] | str]


def get_requires_for_build_wheel(config_settings: Settings | None = None) -> list[str]:
    _check_system(wants_cmake=False)  # pip fetches it
    return _build.get_requires_for_build_wheel(config_settings)


def get_requires_for_build_editable(config_settings: Settings | None = None) -> list[str]:
    _check_system(wants_cmake=False)
    return _build.get_requires_for_build_editable(config_settings)


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: Settings | None = None
) -> str:
    _check_system()
    return _build.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def prepare_metadata_for_build_editable(
    metadata_directory: str, config_settings: Settings | None = None
) -> str:
    _check_system()
    return _build.prepare_metadata_for_build_editable(metadata_directory, config_settings)


def build_wheel(
    wheel_directory: str,
    config_settings: Settings | None = None,
    metadata_directory: str | None = None,
) -> str:
    _check_system()
    return _build.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(
    wheel_directory: str,
    config_settings: Settings | None = None,
    metadata_directory: str | None = None,
) -> str:
    _check_system()
    return _build.build_editable(wheel_directory, config_settings, metadata_directory)
