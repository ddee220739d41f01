"""scripts/setup.sh on three distributions: setup_test.py SOURCE

The distribution's programs are stand-ins on PATH that write down how they were called,
and /etc/os-release is a file of the test. Nothing is installed.
"""

import importlib
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(sys.argv[1]).resolve()
RELEASES = {
    "debian": 'NAME="Debian GNU/Linux"\nID=debian\nVERSION_ID="12"\n',
    "ubuntu": 'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\n',
    "mint": 'ID=linuxmint\nID_LIKE="ubuntu debian"\n',
    "fedora": "ID=fedora\nVERSION_ID=42\n",
    "rocky": 'ID="rocky"\nID_LIKE="rhel centos fedora"\n',
    "arch": "ID=arch\n",
}
# What is missing on the machine of the test, by Debian's names, and what each
# distribution's installer must be asked for.
COMMON = ["cmake", "libhwy-dev", "nlohmann-json3-dev", "libutf8proc-dev", "python3-dev"]
DNF = "cmake highway-devel json-devel utf8proc-devel python3-devel"
WANTED = {
    "debian": (COMMON, " ".join(["apt-get install -y --no-install-recommends", *COMMON])),
    "ubuntu": (COMMON, " ".join(["apt-get install -y --no-install-recommends", *COMMON])),
    "mint": (COMMON, " ".join(["apt-get install -y --no-install-recommends", *COMMON])),
    "fedora": (DNF.split(), f"dnf install -y {DNF}"),
    "rocky": (DNF.split(), f"dnf install -y {DNF}"),
}
# Tools of the script itself; nothing else of this machine is on PATH.
TOOLS = ("bash", "awk", "cat", "dirname", "grep", "sed", "tr")


def stand_in(folder, name, body):
    path = folder / name
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(0o755)


def machine(folder, release, missing, managers, root=True):
    """A PATH with the tools of the script and stand-ins of package managers."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for old in programs.iterdir():
        old.unlink()
    for tool in TOOLS:
        found = subprocess.run(["which", tool], capture_output=True, text=True).stdout.strip()
        if found:
            (programs / tool).symlink_to(found)
    (folder / "os-release").write_text(release)
    log = f'echo "${{0##*/}} $*" >> {folder}/log'
    stand_in(programs, "id", f"echo {0 if root else 1000}")
    for manager in managers:
        stand_in(programs, manager, log)
    cases = "|".join(missing) or "none"
    stand_in(
        programs,
        "dpkg-query",
        f'case "${{@: -1}}" in {cases}) exit 1;; esac; echo -n "install ok installed"',
    )
    stand_in(
        programs,
        "rpm",
        'shift 2; for p in "$@"; do case "$p" in '
        f'{cases}) echo "no package provides $p";; *) echo "$p-1.0";; esac; done; exit 1',
    )
    (folder / "log").write_text("")
    return {"PATH": str(programs), "TARN_OS_RELEASE": str(folder / "os-release")}


def setup(folder, environment, *arguments):
    done = subprocess.run(
        [SOURCE / "scripts" / "setup.sh", "--lean", *arguments],
        env=environment,
        capture_output=True,
        text=True,
    )
    return done, (folder / "log").read_text().splitlines()


def check(condition, *facts):
    if not condition:
        sys.exit("setup_test: " + "\n".join(str(fact) for fact in facts))


def main(folder):
    for name, (missing, command) in WANTED.items():
        manager = command.split()[0]
        environment = machine(folder, RELEASES[name], missing, [manager])
        done, log = setup(folder, environment)
        update = [] if manager == "dnf" else ["apt-get update -q"]
        check(done.returncode == 0 and log == [*update, command], name, log, done.stderr)

        # Everything is there: no installer is called.
        environment = machine(folder, RELEASES[name], [], [manager])
        done, log = setup(folder, environment)
        check(done.returncode == 0 and not log, name, log, done.stderr)

        # No root and no sudo: the whole command to type, and nothing called.
        environment = machine(folder, RELEASES[name], missing, [manager], root=False)
        done, log = setup(folder, environment)
        check(done.returncode == 1 and not log and command in done.stderr, name, done.stderr)

        # The distribution's installer is missing: its names.
        environment = machine(folder, RELEASES[name], missing, [])
        done, log = setup(folder, environment)
        check(
            done.returncode == 1
            and f"{manager} is not here" in done.stderr
            and missing[1] in done.stderr,
            name,
            done.stderr,
        )

    environment = machine(folder, RELEASES["arch"], ["cmake"], [])
    done, _ = setup(folder, environment)
    check(
        done.returncode == 1
        and "neither Debian, Ubuntu nor Fedora" in done.stderr
        and "  cmake\n" in done.stderr,
        done.stderr,
    )

    # A section with its own names.
    cross = "gcc-c++-aarch64-linux-gnu"
    environment = machine(folder, RELEASES["fedora"], [cross], ["dnf"])
    done, log = setup(folder, environment, "--arm")
    check(done.returncode == 0 and log == [f"dnf install -y {cross}"], log, done.stderr)

    # What fuzzing needs is installed for it alone.
    for release, missing, command in (
        ("debian", ["clang", "libclang-rt-14-dev"], "apt-get install -y --no-install-recommends"),
        ("ubuntu", ["clang", "libclang-rt-18-dev"], "apt-get install -y --no-install-recommends"),
        ("fedora", ["clang", "compiler-rt"], "dnf install -y"),
    ):
        environment = machine(folder, RELEASES[release], missing, [command.split()[0]])
        done, log = setup(folder, environment)
        check(done.returncode == 0 and not log, release, log, done.stderr)
        done, log = setup(folder, environment, "--fuzz")
        check(done.returncode == 0 and log[-1] == f"{command} {' '.join(missing)}", release, log)

    # The build of the wheel asks for packages by the same table.
    sys.path.insert(0, str(SOURCE / "cmake"))
    install_command = importlib.import_module("system_packages").install_command
    for name, (missing, command) in WANTED.items():
        (folder / "os-release").write_text(RELEASES[name])
        os.environ["TARN_OS_RELEASE"] = str(folder / "os-release")
        asked = install_command(COMMON)
        check(asked == f"{command.split()[0]} install {' '.join(missing)}", name, asked)


with tempfile.TemporaryDirectory() as name:
    main(pathlib.Path(name))
print(f"setup_test: {len(WANTED)} distributions")
