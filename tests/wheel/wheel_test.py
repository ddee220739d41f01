"""The wheels as users install them: wheel_test.py SOURCE BUILD

Builds both wheels as `make wheel` does and installs each into an empty environment, where
it must work without compilers, packages of apt and the source tree (installed.py). Then
it runs the tests of the runtime and the documents' Python there, and checks the tags, the
limited API, a torch of another version, and what pip says where packages are missing.
What no installation can break is left to the ctest test `python`. BUILD holds the
programs that some tests start. Exits with 77 where the build tools are missing.
"""

import importlib.metadata
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

from environments import (
    can_hide,
    install,
    link_distributions,
    make_environment,
    run,
    run_elsewhere,
    site_packages,
)

SOURCE, BUILD = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
TESTS = SOURCE / "tests" / "python"
TOOLS = ("scikit_build_core", "auditwheel", "abi3info", "elftools", "pip")
LEAN = ("numpy", "pytest", "iniconfig", "packaging", "pluggy", "pygments")
WITHOUT_TORCH = ("runtime", "package/test_python_page.py")
WITH_TORCH = (
    "package/test_package.py",
    "package/test_python_page.py",
    "runtime/test_runtime_models.py",
)


def build_wheels(folder):
    """The runtime's wheel and that of the operators."""
    out = folder / "dist"
    run(sys.executable, SOURCE / "scripts" / "build_wheels.py", BUILD, out, folder=folder)
    wheels = sorted(out.glob("tarn-*.whl"), key=lambda path: "+torch" in path.name)
    assert len(wheels) == 2, wheels
    return wheels


def check_tags(runtime, torch):
    """One wheel for Python 3.11 and newer; the runtime's for glibc 2.28 or older."""
    for wheel in (runtime, torch):
        assert "-cp311-abi3-manylinux_2_" in wheel.name, wheel.name
    for minor in re.findall(r"manylinux_2_(\d+)_x86_64", runtime.name):
        assert int(minor) <= 28, runtime.name
    version = importlib.metadata.version("torch").split("+")[0].split(".")
    assert f"+torch{version[0]}.{version[1]}-" in torch.name, torch.name


def check_contents(wheel, has_torch):
    """Notices of what it holds, its dependencies, and whether it has operators."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(n for n in names if n.endswith("/METADATA"))).decode()
    for notice in ["LICENSE", *(SOURCE / "licenses").glob("*.txt")]:
        wanted = f"/{pathlib.Path(notice).name}"
        assert any(name.endswith(wanted) for name in names), f"{wheel.name} lacks {wanted}"
    assert any(name.endswith("libtarn_pytorch.so") for name in names) == has_torch, wheel.name
    needed = re.findall(r"^Requires-Dist: torch([^;\n]*)$", metadata, re.MULTILINE)
    assert len(needed) == has_torch and "numpy>=1.26" in metadata, metadata[:2000]


def check_limited_api(wheel, folder):
    """Every function of Python that the extension calls has been in the stable ABI since
    3.11 or longer."""
    from abi3info import DATAS, FUNCTIONS
    from abi3info.models import PyVersion, Symbol
    from elftools.elf.elffile import ELFFile

    with zipfile.ZipFile(wheel) as archive:
        path = archive.extract("tarn/runtime/_tarn_runtime.abi3.so", folder / "extension")
    with open(path, "rb") as file:
        section = ELFFile(file).get_section_by_name(".dynsym")
        assert section is not None
        wanted = [
            symbol.name
            for symbol in section.iter_symbols()  # type: ignore[attr-defined]
            if symbol["st_shndx"] == "SHN_UNDEF" and symbol.name.startswith(("Py", "_Py"))
        ]
    assert len(wanted) > 20, wanted
    for name in wanted:
        found = FUNCTIONS.get(Symbol(name)) or DATAS.get(Symbol(name))
        assert found is not None and found.added <= PyVersion(3, 11), f"{name}: {found}"


def run_tests(python, folder, *arguments):
    """Tests passed and skipped, out of pytest's last line."""
    out = run(
        python,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *arguments,
        folder=folder,
        TARN_BUILD_DIR=str(BUILD),
        PYTHONDONTWRITEBYTECODE="1",
    )
    last = out.strip().splitlines()[-1]
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|skipped)", last)}
    return counts.get("passed", 0), counts.get("skipped", 0)


def check_installed(wheel, folder, kind, distributions):
    """installed.py in an environment that sees these distributions, apart from the
    machine's compilers, packages and the source tree."""
    here = folder / kind
    here.mkdir()
    hides = can_hide()
    packages = pathlib.Path(sysconfig.get_path("purelib"))
    python = make_environment(here / "environment")
    site = site_packages(python, here)
    if kind == "torch":
        # A path in a .pth file is not searched for .pth files: this Python's own
        # link to the source tree stays without effect.
        (site / "others.pth").write_text(f"{'/mnt' if hides else packages}\n")
    else:
        link_distributions(distributions, site, pathlib.Path("/mnt") if hides else None)
    install(python, wheel, here)
    run(BUILD / "write_random_model", here / "model", folder=here)
    shutil.copy(SOURCE / "tests" / "wheel" / "installed.py", here)
    command = [python, here / "installed.py", site, here / "model", kind]
    work = here / "work"
    work.mkdir()
    if hides:
        print(run_elsewhere(command, work, [SOURCE, BUILD], packages), end="")
    else:
        print("wheel: no right to hide folders here; a bare environment alone")
        print(run(*command, folder=work, environment={"PATH": str(python.parent)}), end="")


def check_suites(wheel, folder, kind):
    """The tests of the source tree on the installed package."""
    here = folder / f"{kind}-tests"
    here.mkdir()
    python = make_environment(here / "environment")
    site = site_packages(python, here)
    install(python, wheel, here)
    if kind == "torch":
        (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
        return run_tests(python, here, *(TESTS / name for name in WITH_TORCH))
    link_distributions(LEAN, site)
    # The tests' shared set-up wants torch.
    return run_tests(python, here, "--noconftest", *(TESTS / name for name in WITHOUT_TORCH))


def check_other_torch(wheel, folder):
    """A torch of another minor version is an ImportError that names both versions, before
    anything of it is loaded; a patch release is accepted."""
    here = folder / "other-torch"
    here.mkdir()
    python = make_environment(here / "environment")
    site = site_packages(python, here)
    install(python, wheel, here)
    built = importlib.metadata.version("torch").split("+")[0]
    major, minor, _ = built.split(".")
    package = site / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('torch was imported')\n")
    facts = site / "torch-0.dist-info"
    facts.mkdir()
    cases = (
        (f"{major}.{int(minor) + 1}.0+cpu", True),
        (f"{major}.{int(minor) - 1}.1", True),
        (f"{major}.{minor}.99", False),
    )
    for version, is_refused in cases:
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
        out = run(
            python,
            "-c",
            "try:\n    import tarn\n    print('imported')\n"
            "except ImportError as error:\n    print(error)",
            folder=here,
        )
        if is_refused:
            shown = version.split("+")[0]
            assert f"want torch {built}" in out and f"got torch {shown}" in out, out
            assert len(out.splitlines()) == 1, out
        else:
            assert out == "imported\n", out


def check_missing_packages(folder):
    """pip's output where the system lacks what the build needs: one message, with this
    distribution's package names, before anything is compiled."""
    here = folder / "missing"
    here.mkdir()
    programs = here / "bin"
    programs.mkdir()
    (here / "os-release").write_text("ID=fedora\n")
    environment = {k: v for k, v in os.environ.items() if k not in ("CXX", "CC")}
    environment |= {"PATH": str(programs), "TARN_OS_RELEASE": str(here / "os-release")}
    command = [
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
        here,
        "--config-settings",
        f"build-dir={here / 'build'}",
        SOURCE,
    ]

    def said():
        done = subprocess.run(
            command,
            env=environment,
            cwd=here,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert done.returncode, done.stdout
        assert "Nothing has been compiled" in done.stdout, done.stdout
        assert not list((here / "build").glob("*.ninja")), done.stdout
        assert "Traceback" not in done.stdout, done.stdout
        return done.stdout

    out = said()
    for name in ("a C++20 compiler", "CMake 3.25", "dnf install cmake gcc-c++ make"):
        assert name in out, out
    # A compiler that finds no header of any package.
    compiler = programs / "c++"
    compiler.write_text(f'#!/bin/bash\nexec {shutil.which("c++")} -nostdinc "$@"\n')
    compiler.chmod(0o755)
    (programs / "cmake").symlink_to(str(shutil.which("cmake")))
    environment["C_INCLUDE_PATH"] = environment["CPLUS_INCLUDE_PATH"] = ""
    out = said()
    for name in (
        "Highway (hwy/highway.h)",
        "utf8proc (utf8proc.h)",
        "dnf install highway-devel",
        "utf8proc-devel",
        "cli11-devel",
        "libarchive-devel",
    ):
        assert name in out, out
    assert "a C++20 compiler" not in out and "CMake" not in out, out


def main():
    for tool in TOOLS:
        if importlib.util.find_spec(tool) is None:
            print(f"wheel: {sys.executable} has no {tool}")
            sys.exit(77)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        check_missing_packages(folder)
        runtime, torch = build_wheels(folder)
        check_tags(runtime, torch)
        check_contents(runtime, False)
        check_contents(torch, True)
        check_limited_api(runtime, folder)
        check_installed(runtime, folder, "runtime", ("numpy",))
        check_installed(torch, folder, "torch", ())
        check_other_torch(torch, folder)
        counts = [
            check_suites(wheel, folder, kind)
            for wheel, kind in ((runtime, "runtime"), (torch, "torch"))
        ]
    for wheel, (passed, skipped) in zip((runtime, torch), counts):
        print(f"{wheel.name}: {passed} tests passed ({skipped} skipped)")


main()
