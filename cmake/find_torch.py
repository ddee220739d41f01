"""Prints "version;directory;abi" of this Python's torch, or of the torch in the folder
that is named, without importing it: importing takes seconds, and a torch for another
machine may not run here."""

import importlib.util
import pathlib
import re
import sys

if len(sys.argv) > 1:
    folder = pathlib.Path(sys.argv[1])
    if not (folder / "version.py").is_file():
        sys.exit(f"{folder} has no version.py: want the folder torch of a site-packages")
else:
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("torch is not installed for " + sys.executable)
    folder = pathlib.Path(spec.submodule_search_locations[0])
version = re.search(r"__version__ = '([0-9.]+)", (folder / "version.py").read_text())
if version is None:
    sys.exit(f"{folder}/version.py names no version")
# Wheels use the new C++ ABI since 2.7.
print(f"{version.group(1)};{folder};1")
