"""What this distribution calls a package of Debian, by scripts/packages.txt."""

from __future__ import annotations

import os
import pathlib

_TABLE = pathlib.Path(__file__).resolve().parents[1] / "scripts" / "packages.txt"
_INSTALL = {"debian": "apt-get install", "ubuntu": "apt-get install", "fedora": "dnf install"}


def distribution() -> str:
    """debian, ubuntu or fedora: this one, or one that it says it is like; else debian.
    TARN_OS_RELEASE names another file than /etc/os-release (for tests)."""
    path = pathlib.Path(os.environ.get("TARN_OS_RELEASE", "/etc/os-release"))
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    facts = dict(line.split("=", 1) for line in lines if "=" in line)
    for key in ("ID", "ID_LIKE"):
        for name in facts.get(key, "").strip("\"'").split():
            if name in _INSTALL:
                return name
    return "debian"


def install_command(packages: list[str]) -> str:
    """The command that installs packages, which are given by Debian's names."""
    here = distribution()
    column = list(_INSTALL).index(here)
    names: dict[str, list[str]] = {}
    for line in _TABLE.read_text(encoding="utf-8").splitlines():
        if line.count("|") == 2 and not line.startswith("#"):
            cells = [cell.strip() for cell in line.split("|")]
            own = cells[0] if cells[column] == "=" else cells[column]
            names.setdefault(cells[0], own.split())
    wanted = [own for package in packages for own in names.get(package, [package])]
    return f"{_INSTALL[here]} {' '.join(dict.fromkeys(wanted))}"
