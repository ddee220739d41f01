"""Environments to install a wheel into: empty virtual environments, and a view of this
machine without compilers, development packages and the source tree."""

import importlib.metadata
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

# The source tree could only be found through these.
HIDDEN = ("PYTHONPATH", "PYTHONHOME", "TARN_LIBRARY", "TARN_BUILD_DIR", "VIRTUAL_ENV")
# What only packages of apt bring: headers, compilers, and libraries that tarn links.
DEVELOPMENT = ("/usr/include", "/usr/lib/gcc", "/usr/local/include")
LIBRARIES = ("libhwy", "libarchive", "libutf8proc", "libzstd", "libCLI")


def run(*command, folder, environment=None, **extra):
    """Output of a command that must succeed, in an environment that names neither the
    source tree nor its build."""
    if environment is None:
        environment = {k: v for k, v in os.environ.items() if k not in HIDDEN}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=environment | extra,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout[-6000:]}")
    return done.stdout


def make_environment(folder):
    """The Python of an empty environment."""
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "venv", "--without-pip", folder, folder=folder.parent)
    return folder / "bin" / "python"


def install(python, wheel, folder):
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--no-deps",
        "--no-index",
        "--force-reinstall",
        "--disable-pip-version-check",
        wheel,
        folder=folder,
    )


def site_packages(python, folder):
    lines = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return pathlib.Path(run(python, "-c", lines, folder=folder).strip())


def link_distributions(names, site, seen_at=None):
    """Makes these installed distributions, and no others, visible in an environment.
    seen_at: the path of the folder that holds them in that environment."""
    for name in names:
        distribution = importlib.metadata.distribution(name)
        tops = {file.parts[0] for file in distribution.files or () if file.parts[0] != ".."}
        for top in sorted(tops - {"__pycache__"}):
            if not (site / top).exists():
                target = pathlib.Path(str(distribution.locate_file(top)))
                (site / top).symlink_to(seen_at / top if seen_at else target)


def can_hide():
    """Whether this process may give a child its own view of the file system."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0


def run_elsewhere(command, folder, hidden, packages):
    """Output of a command with a bare environment, in a view of the machine where the
    folders `hidden`, compilers, headers and libraries of packages are empty, and what was
    in the folder `packages` is in /mnt. Without the right to make such a view (can_hide),
    with the bare environment alone, and /mnt is a plain link's target."""
    python = pathlib.Path(command[0])
    bare = {
        "PATH": str(python.parent),
        "HOME": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
    }
    # Some processors need these set for numpy to compute what is right.
    bare |= {k: v for k, v in os.environ.items() if k.startswith("OPENBLAS_")}
    libraries = [
        path
        for name in LIBRARIES
        for path in pathlib.Path("/usr/lib").glob(f"*/{name}*.so*")
        if path.is_file()
    ]
    lines = [f"mount --bind {shlex.quote(str(packages))} /mnt"]
    for hide in (*DEVELOPMENT, *map(str, hidden)):
        lines.append(f"[ ! -d {shlex.quote(hide)} ] || mount -t tmpfs none {shlex.quote(hide)}")
    for path in {path.resolve() for path in libraries}:
        lines.append(f"mount --bind /dev/null {shlex.quote(str(path))}")
    bare_words = " ".join(shlex.quote(f"{k}={v}") for k, v in bare.items())
    lines.append(f"exec env -i {bare_words} {shlex.join(map(str, command))}")
    return run("unshare", "--mount", "bash", "-ec", "\n".join(lines), folder=folder)
