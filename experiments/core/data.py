"""Where the experiments' data are. Nothing is downloaded: a set is found or
named by the user, and its files are recorded with size and SHA-256."""

import functools
import hashlib
import os
import pathlib
from collections.abc import Mapping
from dataclasses import dataclass

from experiments.core.places import ROOT
from experiments.core.types import ExperimentError, JsonDict

SUFFIXES = ("", ".gz", ".zst")  # packed files serve as well as plain ones
_IDX = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


@dataclass(frozen=True)
class DataSet:
    """A set by name: the files it must hold (packed or not; none: all it
    holds), and the folder of a Debian package where there is one."""

    name: str
    title: str
    files: tuple[str, ...] = ()
    debian: str = ""


SETS = {
    one.name: one
    for one in (
        DataSet("mnist", "MNIST, 28 x 28 handwritten digits, IDX", _IDX),
        DataSet(
            "fashion-mnist",
            "Fashion-MNIST, 28 x 28 articles of clothing, IDX",
            _IDX,
            "/usr/share/datasets/fashion-mnist",
        ),
        DataSet("cifar10", "CIFAR-10, binary version (data_batch_*.bin, test_batch.bin)"),
        DataSet(
            "cifar10-lossless-4k",
            "4,000 images of CIFAR-10, binary version",
            ("data_batch_1_first4000.bin",),
        ),
        DataSet("fsdd", "Free Spoken Digit Dataset, wav files or fsdd.tar.zst"),
        DataSet("dna", "a genome, FASTA", ("NC_008253.fna",)),
        DataSet("text-shakespeare", "plain text", ("input.txt",)),
        DataSet("text-wikitext2", "WikiText-2, raw", ("wiki.valid.txt", "wiki.test.txt")),
        DataSet("listops", "ListOps, Long Range Arena's TSV"),
    )
}


def _file_in(folder: pathlib.Path, name: str) -> pathlib.Path | None:
    """`name` in a folder, packed or not."""
    for suffix in SUFFIXES:
        path = folder / (name + suffix)
        if path.is_file():
            return path
    return None


def _problem(data_set: DataSet, path: pathlib.Path) -> str:
    """Why this path does not serve; empty where it does."""
    if path.is_file():
        return ""
    if not path.is_dir():
        return "not there"
    missing = [name for name in data_set.files if _file_in(path, name) is None]
    if missing:
        return f"lacks {', '.join(missing)}"
    return "" if any(path.iterdir()) else "is empty"


def _places(name: str, given: Mapping[str, pathlib.Path]) -> list[pathlib.Path]:
    """The places where a set is looked for, in order; a path the user gave is the only one."""
    if name in given:
        return [given[name]]
    places = []
    if os.environ.get("TARN_DATA"):
        places.append(pathlib.Path(os.environ["TARN_DATA"]) / name)
    places.append(ROOT.parent / "shared" / "data" / name)
    if SETS[name].debian:
        places.append(pathlib.Path(SETS[name].debian))
    return places


def find(names: str, given: Mapping[str, pathlib.Path]) -> tuple[str, pathlib.Path]:
    """The first of "a|b" that is there: its name and its path. ExperimentError
    (3) names all that was looked at."""
    looked: list[str] = []
    for name in names.split("|"):
        for path in _places(name, given):
            problem = _problem(SETS[name], path)
            if not problem:
                return name, path
            looked.append(f"  {path}: {problem}")
            if name in given:  # never another set in place of the one asked for
                break
        else:
            continue
        break
    titles = " or ".join(SETS[name].title for name in names.split("|"))
    raise ExperimentError(
        f"no data {names.replace('|', ' or ')} ({titles}). Looked at:\n"
        + "\n".join(looked)
        + f"\nGive it as --data {names.split('|')[0]}=PATH, or set TARN_DATA to the folder that "
        "holds it.",
        3,
    )


def files_of(name: str, path: pathlib.Path) -> list[pathlib.Path]:
    """The files of a set that was found, sorted."""
    if path.is_file():
        return [path]
    wanted = SETS[name].files
    if wanted:
        found = (_file_in(path, one) for one in wanted)
        return [one for one in found if one is not None]
    return sorted(one for one in path.rglob("*") if one.is_file() and one.name != "SOURCE.txt")


def file(name: str, path: pathlib.Path, stem: str) -> pathlib.Path:
    """One file of a set, packed or not; the path itself where it is a file."""
    if path.is_file():
        return path
    found = _file_in(path, stem)
    if found is None:
        raise ExperimentError(
            f"data {name}: want {stem} in {path}, packed or not; got no such file", 3
        )
    return found


@functools.lru_cache(maxsize=4096)
def _sha256(path: pathlib.Path, size: int, mtime_ns: int) -> str:
    """The digest of a file as it was at that time; size and time are only the cache's key."""
    del size, mtime_ns
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def sha256(path: pathlib.Path) -> str:
    """SHA-256 of a file's content, hex; remembered while its size and time stay."""
    facts = path.stat()
    return _sha256(path, facts.st_size, facts.st_mtime_ns)


def describe(names: str, given: Mapping[str, pathlib.Path]) -> JsonDict:
    """What is recorded of a set: its name, files with size and SHA-256. Folders
    are this machine's business and left out."""
    name, path = find(names, given)
    files = files_of(name, path)
    base = path.parent if path.is_file() else path
    return {
        "name": name,
        "title": SETS[name].title,
        "files": [
            {"file": str(one.relative_to(base)), "bytes": one.stat().st_size, "sha256": sha256(one)}
            for one in files
        ],
    }
