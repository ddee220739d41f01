"""What can be checked of the Containerfile without a container daemon:
containerfile_test.py SOURCE

Stages, copied files, packages and pins are those of the tree; the steps themselves are
what the test of the wheel runs.
"""

import pathlib
import re
import shlex
import sys

SOURCE = pathlib.Path(sys.argv[1]).resolve()


def instructions():
    """(instruction, arguments) in order, with continued lines joined."""
    text = (SOURCE / "Containerfile").read_text(encoding="utf-8")
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    joined = lines.replace("\\\n", " ").splitlines()
    parts = [line.split(maxsplit=1) for line in joined if line.strip()]
    return [(part[0], part[1]) for part in parts]


def check(condition, *facts):
    if not condition:
        sys.exit("containerfile_test: " + "\n".join(map(str, facts)))


def main():
    found = instructions()
    known = {"FROM", "RUN", "WORKDIR", "COPY", "USER", "ENTRYPOINT", "CMD"}
    check({name for name, _ in found} <= known, found)
    stages = [rest for name, rest in found if name == "FROM"]
    check(len(stages) == 2 and stages[0].endswith(" AS build"), stages)
    for stage in stages:  # an image's full name with a tag that is not "latest"
        check(re.match(r"[a-z.]+/[a-z/]+:(?!latest)[\w.-]+( AS \w+)?$", stage), stage)

    for name, rest in found:
        if name == "COPY":
            *sources, _ = rest.split()
            if sources[0] == "--from=build":
                check(sources[1:] == ["/tarn/dist"], rest)
            else:
                check(all((SOURCE / source).exists() for source in sources), rest)

    runs = [rest for name, rest in found if name == "RUN"]
    section = re.search(
        r"\[base\]\n(.*?)\n\[", (SOURCE / "scripts/packages.txt").read_text(), re.DOTALL
    )
    assert section is not None
    listed = {line.split("|")[0].strip() for line in section.group(1).splitlines()}
    asked = re.search(r"--no-install-recommends(.*?)&&", runs[0])
    assert asked is not None
    installed = set(asked.group(1).split())
    check(installed <= listed, installed - listed)
    needed = set(
        re.findall(r'", "([a-z0-9-]+)"\)', (SOURCE / "cmake/wheel_backend.py").read_text())
    )
    check(len(needed) >= 8 and needed <= installed, needed - installed)

    # Every pin that a step picks out of requirements.txt is there.
    pins = (SOURCE / "requirements.txt").read_text().splitlines()
    for pattern in re.findall(r"grep -E '([^']+)' requirements\.txt", " ".join(runs)):
        names = re.sub(r"[\^()=]", "", pattern).split("|")
        for tool in names:
            check(any(re.match(rf"{tool}==\d", pin) for pin in pins), tool)
    builds = [run for run in runs if "build_wheels.py" in run]
    check(len(builds) == 1 and "build_wheels.py build dist runtime" in builds[0], runs)

    # The image runs the wheel's program, not as root; the build context is small.
    last = dict(found)
    check(
        shlex.split(last["ENTRYPOINT"].strip("[]")) == ["tarn"] and last["USER"] == "nobody", last
    )
    ignored = (SOURCE / ".dockerignore").read_text().split()
    check({".git", "build*", ".venv*", "models", "dist"} <= set(ignored), ignored)


main()
print("containerfile_test: stages, files, packages and pins")
