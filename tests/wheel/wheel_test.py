"""The wheel as a user installs it: wheel_test.py SOURCE BUILD

Builds the wheel from SOURCE into the folder BUILD-wheel, installs it into an
empty environment that sees this Python's torch, and runs the Python tests
there (but those of single operators); then into one with numpy and no torch, where the runtime part must work
and the rest must say in one line what is missing. BUILD holds the programs that
some tests start.
"""
import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import tempfile

SOURCE, BUILD = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
TESTS = SOURCE / "tests" / "python"
# Nothing of the source tree may be found but through these.
HIDDEN = ("PYTHONPATH", "PYTHONHOME", "TARN_LIBRARY", "TARN_BUILD_DIR", "VIRTUAL_ENV")
WITHOUT_TORCH = ("test_runtime.py", "test_runtime_models.py", "test_accounting.py")
# The operators' own tests check numbers that no installation changes, at length:
# the ctest test `python` runs them on the same objects.
LEFT_OUT = ("test_ops_*", "test_linear_attention_*", "test_softmax_attention*")


def run(*command, folder, **extra):
    """Output of a command that must succeed, in an environment that names
    neither the source tree nor its build."""
    environment = {k: v for k, v in os.environ.items() if k not in HIDDEN}
    done = subprocess.run([str(part) for part in command], cwd=folder, env=environment | extra,
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout[-6000:]}")
    return done.stdout


def build_wheel(folder):
    run(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index",
        "--no-cache-dir", "--disable-pip-version-check", "-w", folder,
        "-C", f"build-dir={BUILD}-wheel", SOURCE, folder=folder, CMAKE_GENERATOR="Ninja")
    (wheel,) = folder.glob("tarn-*.whl")
    return wheel


def make_environment(folder, wheel):
    """An empty environment with the wheel installed; its Python."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, folder=folder.parent)
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index",
        "--disable-pip-version-check", wheel, folder=folder)
    return python


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
    python = make_environment(folder / "torch", wheel)
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
    return run_tests(python, folder, TESTS, *(f"--ignore-glob={TESTS}/{name}" for name in LEFT_OUT))


def link_distributions(names, site):
    """Makes installed distributions visible in an environment, these alone."""
    for name in names:
        distribution = importlib.metadata.distribution(name)
        tops = {file.parts[0] for file in distribution.files or () if file.parts[0] != ".."}
        for top in sorted(tops - {"__pycache__"}):
            if not (site / top).exists():
                (site / top).symlink_to(pathlib.Path(str(distribution.locate_file(top))))


def check_without_torch(folder, wheel):
    python = make_environment(folder / "bare", wheel)
    link_distributions(("numpy", "pytest", "iniconfig", "pluggy", "packaging", "pygments"),
                       site_packages(python, folder))
    for part in ("tarn.ops", "tarn.models", "tarn.builders"):
        out = run(python, "-c", "import tarn, importlib\ntry:\n"
                  f"    importlib.import_module('{part}')\n"
                  "except ImportError as error:\n    print(error)", folder=folder)
        assert "torch" in out and len(out.splitlines()) == 1, f"{part}: {out}"
    # The tests' shared set-up wants torch.
    return run_tests(python, folder, "--noconftest", *(TESTS / name for name in WITHOUT_TORCH))


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        wheel = build_wheel(folder)
        lean, lean_skipped = check_without_torch(folder, wheel)
        full, full_skipped = check_with_torch(folder, wheel)
    print(f"{wheel.name}: {lean} tests passed without torch ({lean_skipped} skipped), "
          f"{full} with it ({full_skipped} skipped)")


main()
