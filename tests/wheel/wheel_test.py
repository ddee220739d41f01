"""The wheel as a user installs it: wheel_test.py SOURCE BUILD

With this Python's torch: builds the wheel from SOURCE into the folder
BUILD-wheel, installs it into an empty environment that sees that torch and runs
the Python tests there (except those of single operators). Without torch: the same in
an environment that sees numpy and the build tools alone, where the runtime part
must work and the rest say in one line what is missing. BUILD holds the programs
that some tests start. Exits with 77 where the build tools are missing.
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

SOURCE, BUILD = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
TESTS = SOURCE / "tests" / "python"
# The source tree could only be found through these.
HIDDEN = ("PYTHONPATH", "PYTHONHOME", "TARN_LIBRARY", "TARN_BUILD_DIR", "VIRTUAL_ENV")
WITHOUT_TORCH = ("runtime/test_runtime.py", "runtime/test_runtime_models.py",
                 "runtime/test_accounting.py", "package/test_python_page.py")
LEAN_TOOLS = ("scikit-build-core", "nanobind", "pathspec", "packaging", "numpy", "pytest",
              "iniconfig", "pluggy", "pygments")
# The operators' own tests check numbers that no installation changes, at length:
# the ctest test `python` runs them on the same objects.
LEFT_OUT = ("operators/test_ops_*", "operators/test_linear_attention_*",
            "operators/test_softmax_attention*", "distributed/*", "flash_linear/test_fla_functions*",
            "flash_linear/test_fla_rest*", "flash_linear/test_transformers*")


def run(*command, folder, **extra):
    """Output of a command that must succeed, in an environment that names
    neither the source tree nor its build."""
    environment = {k: v for k, v in os.environ.items() if k not in HIDDEN}
    done = subprocess.run([str(part) for part in command], cwd=folder, env=environment | extra,
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout[-6000:]}")
    return done.stdout


def build_wheel(python, build, folder):
    """The wheel that a Python builds for itself."""
    out = folder / "wheels" / build.name
    run(sys.executable, "-m", "pip", "--python", python, "wheel", "--no-build-isolation",
        "--no-deps", "--no-index", "--no-cache-dir", "--disable-pip-version-check", "-w", out,
        "-C", f"build-dir={build}", SOURCE, folder=folder, CMAKE_GENERATOR="Ninja")
    (wheel,) = out.glob("tarn-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for notice in ["LICENSE", *(SOURCE / "licenses").glob("*.txt")]:
        wanted = f"/{pathlib.Path(notice).name}"
        assert any(name.endswith(wanted) for name in names), f"{wheel.name} lacks {wanted}"
    return wheel


def make_environment(folder):
    """The Python of an empty environment."""
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "venv", "--without-pip", folder, folder=folder.parent)
    return folder / "bin" / "python"


def install(python, wheel, folder):
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index",
        "--force-reinstall", "--disable-pip-version-check", wheel, folder=folder)


def site_packages(python, folder):
    lines = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return pathlib.Path(run(python, "-c", lines, folder=folder).strip())


def run_tests(python, folder, *arguments):
    """Tests passed and skipped, out of pytest's last line."""
    out = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments, folder=folder,
              TARN_BUILD_DIR=str(BUILD), PYTHONDONTWRITEBYTECODE="1")
    last = out.strip().splitlines()[-1]
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|skipped)", last)}
    return counts.get("passed", 0), counts.get("skipped", 0)


def check_with_torch(folder, wheel):
    python = make_environment(folder / "torch")
    install(python, wheel, folder)
    # A path in a .pth file is not searched for .pth files: this Python's own
    # link to the source tree stays without effect.
    site = site_packages(python, folder)
    (site / "beside.pth").write_text(sysconfig.get_path("purelib") + "\n")
    where = run(python, "-c", "import tarn, tarn.ops, tarn.runtime as r; "
                "print(tarn.__file__); print(r._library.module.__file__)", folder=folder)
    for line in where.split():
        assert pathlib.Path(line).is_relative_to(site), where
    program = python.parent / "tarn"
    version = run(program, "--version", folder=folder)
    run(BUILD / "write_random_model", folder / "model", folder=folder)
    facts = run(program, "info", folder / "model", folder=folder)
    assert version.startswith("tarn ") and "parameters" in facts, version + facts
    left_out = (f"--ignore-glob={TESTS}/{name}" for name in LEFT_OUT)
    return run_tests(python, folder, TESTS, *left_out)


def link_distributions(names, site):
    """Makes installed distributions visible in an environment, these alone."""
    for name in names:
        distribution = importlib.metadata.distribution(name)
        tops = {file.parts[0] for file in distribution.files or () if file.parts[0] != ".."}
        for top in sorted(tops - {"__pycache__"}):
            if not (site / top).exists():
                (site / top).symlink_to(pathlib.Path(str(distribution.locate_file(top))))


def check_refusals(python, folder):
    """Without a torch, operators and layers end in one line that says so."""
    for part in ("tarn.ops", "tarn.models", "tarn.builders"):
        out = run(python, "-c", "import tarn, tarn.runtime, importlib\ntry:\n"
                  f"    importlib.import_module('{part}')\n"
                  "except ImportError as error:\n    print(error)", folder=folder)
        assert "torch" in out and len(out.splitlines()) == 1, f"{part}: {out}"


def holds_operators(wheel):
    return any(name.endswith("libtarn_pytorch.so") for name in zipfile.ZipFile(wheel).namelist())


def check_without_torch(folder, full_wheel):
    # Always in one place: the folder is part of what ccache compares.
    build = pathlib.Path(f"{BUILD}-wheel-lean")
    build.mkdir(exist_ok=True)
    python = make_environment(build / "environment")
    link_distributions(LEAN_TOOLS, site_packages(python, folder))
    install(python, full_wheel, folder)
    check_refusals(python, folder)
    wheel = build_wheel(python, build, folder)
    assert holds_operators(full_wheel) and not holds_operators(wheel)
    install(python, wheel, folder)
    check_refusals(python, folder)
    # The tests' shared set-up wants torch.
    return run_tests(python, folder, "--noconftest", *(TESTS / name for name in WITHOUT_TORCH))


def main():
    for tool in ("scikit_build_core", "nanobind", "pip"):
        if importlib.util.find_spec(tool) is None:
            print(f"wheel: {sys.executable} has no {tool}")
            sys.exit(77)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        wheel = build_wheel(sys.executable, pathlib.Path(f"{BUILD}-wheel"), folder)
        lean, lean_skipped = check_without_torch(folder, wheel)
        full, full_skipped = check_with_torch(folder, wheel)
    print(f"{wheel.name}: {lean} tests passed without torch ({lean_skipped} skipped), "
          f"{full} with it ({full_skipped} skipped)")


main()
