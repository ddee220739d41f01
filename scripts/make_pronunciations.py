#!/usr/bin/env python3
"""Writes names with their pronunciation, as a speech synthesiser says them.

Reads a list of names, one a line, has espeak-ng turn each into IPA, and writes
NAME TAB PHONEMES: OUT/train.tsv and OUT/held_out.tsv. No name is in both. The
data are synthetic: rules of a program, not of a speaker; results must say so.
OUT/pronunciations.json keeps counts, version, voice, seed and SHA-256.

Names are lower case, sorted and without duplicates; a fixed seed shuffles them
and the first HELD_OUT are held out. What espeak-ng leaves empty is dropped.
"""

import argparse
import hashlib
import json
import pathlib
import random
import shutil
import subprocess
import sys
import unicodedata

VERSION = 1
PACKAGE = "espeak-ng"
NAMES = pathlib.Path("../shared/data/names/names.txt")
# Lines per call: starting espeak-ng for every name would take minutes.
BATCH = 500


def read_names(path: pathlib.Path) -> list[str]:
    """Distinct names of letters, lower case, sorted. Raises ValueError naming
    the line of one that is no name."""
    names: set[str] = set()
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        name = unicodedata.normalize("NFC", line.strip().lower())
        if not name:
            continue
        if len(name) > 64 or not all(c.isalpha() or c in "'-" for c in name):
            raise ValueError(f"{path}:{number}: want a name of letters, got {line[:80]!r}")
        names.add(name)
    return sorted(names)


def pronounce(names: list[str], voice: str) -> list[str]:
    """The IPA of each name, in order, spaces removed. Raises ValueError when
    espeak-ng gives another number of lines than it was given."""
    phonemes: list[str] = []
    for begin in range(0, len(names), BATCH):
        part = names[begin : begin + BATCH]
        # A blank line ends a clause, so that every name is a separate clause.
        done = subprocess.run(
            [PACKAGE, "-q", "--ipa", "-v", voice],
            input="".join(f"{name}\n\n" for name in part).encode(),
            capture_output=True,
            check=True,
        )
        lines = [line for line in done.stdout.decode().split("\n") if line.strip()]
        if len(lines) != len(part):
            # A name without sound shifts the others: pronounce them one by one then.
            lines = [pronounce_one(name, voice) for name in part]
        phonemes += ["".join(line.split()) for line in lines]
    return phonemes


def pronounce_one(name: str, voice: str) -> str:
    """The IPA of one name, "" when it has none."""
    done = subprocess.run(
        [PACKAGE, "-q", "--ipa", "-v", voice, "--", name],
        capture_output=True,
        check=True,
    )
    return " ".join(done.stdout.decode().split())


def version() -> str:
    """The version that espeak-ng reports, without paths."""
    done = subprocess.run([PACKAGE, "--version"], capture_output=True, check=True)
    return done.stdout.decode().split("  Data at")[0].strip()


def write(path: pathlib.Path, pairs: list[tuple[str, str]]) -> dict[str, object]:
    """Writes a TSV file; returns its count and SHA-256."""
    data = "".join(f"{name}\t{ipa}\n" for name, ipa in pairs).encode()
    path.write_bytes(data)
    return {"examples": len(pairs), "sha256": hashlib.sha256(data).hexdigest()}


def make(options: argparse.Namespace) -> dict[str, object]:
    """Reads, pronounces, splits and writes; returns the facts to keep."""
    names = read_names(options.names)
    pairs = [
        (name, ipa) for name, ipa in zip(names, pronounce(names, options.voice), strict=True) if ipa
    ]
    if len(pairs) <= options.held_out:
        raise ValueError(
            f"{options.names}: want more than {options.held_out} names, got {len(pairs)}"
        )
    # Each is sorted by a random number: shuffle() may change between versions.
    draw = random.Random(options.seed)
    order = sorted((draw.random(), pair) for pair in pairs)
    pairs = [pair for _, pair in order]
    options.out.mkdir(parents=True, exist_ok=True)
    facts: dict[str, object] = {
        "generator": "make_pronunciations.py",
        "version": VERSION,
        "kind": "synthetic",
        "synthesiser": version(),
        "voice": options.voice,
        "seed": options.seed,
        "names": len(names),
        "without_sound": len(names) - len(pairs),
        "source_sha256": hashlib.sha256(options.names.read_bytes()).hexdigest(),
        "held_out": write(options.out / "held_out.tsv", pairs[: options.held_out]),
        "train": write(options.out / "train.tsv", pairs[options.held_out :]),
    }
    text = json.dumps(facts, indent=1) + "\n"
    (options.out / "pronunciations.json").write_text(text)
    return facts


def main(arguments: list[str]) -> int:
    """The program: 0 done, 1 without espeak-ng, 3 for names it cannot use."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=pathlib.Path, help="folder for the files")
    parser.add_argument("--names", type=pathlib.Path, default=NAMES, help=f"[{NAMES}]")
    parser.add_argument("--held-out", type=int, default=2000)
    parser.add_argument("--voice", default="en-us")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    if options.held_out < 1:
        parser.error("--held-out: want 1 or more")
    if shutil.which(PACKAGE) is None:
        print(
            f"make_pronunciations: error: no {PACKAGE}; install it with "
            f"`apt-get install {PACKAGE}`",
            file=sys.stderr,
        )
        return 1
    try:
        facts = make(options)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        print(f"make_pronunciations: error: {error}", file=sys.stderr)
        return 3
    print(json.dumps(facts, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
