"""Work that must grow linearly, judged by instructions instead of a clock: twice
the text, at most 2.2 times the instructions, on a machine however busy.

  growth_counts.py DRIVER

DRIVER is the program count_growth of a Release build. Counts are callgrind's; a
sort or a heap over twice the elements is a little more than twice the work, an
algorithm of the next power four times. Vocabularies of other programs are taken
from TARN_DATA, or from shared/data next to the repository, if they are there.
Ends as skipped (77) where kernel_counts.py does.
"""

import argparse
import os
import pathlib
import sys
import tempfile

import kernel_counts

MOST = 2.2
ROOT = pathlib.Path(__file__).resolve().parents[2]
VOCABULARIES = ("gpt2_encoder.json", "20B_tokenizer.json", "rwkv_vocab_v20230424.txt")


def compare(names, counts):
    """Lines for people, and whether every pair of counts grows linearly."""
    if not names or len(counts) != 2 * len(names):
        raise kernel_counts.CountError(
            f"want two profiles for each of {len(names)} names, got {len(counts)}"
        )
    lines, good = [], True
    for name, once, twice in zip(names, counts[::2], counts[1::2]):
        line = f"{name}: {once} instructions, {twice} for twice the size"
        if twice > MOST * once:
            good = False
            line += f": MORE THAN {MOST} TIMES AS MANY"
        lines.append(line)
    return lines, good


def count(driver, vocabularies):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "counts")
        names = kernel_counts.run(
            [
                "valgrind",
                "--tool=callgrind",
                "--toggle-collect=CountedRun",
                "--dump-after=CountedRun",
                f"--callgrind-out-file={out}",
                driver,
                *map(str, vocabularies),
            ]
        ).splitlines()
        # counts.1, counts.2, ...; the last one belongs to the program's end.
        parts = sorted(
            pathlib.Path(folder).glob("counts.*"), key=lambda path: int(path.suffix[1:])
        )[: 2 * len(names)]
        return names, [kernel_counts.total(path.read_text()) for path in parts]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("driver")
    parser.add_argument("--build", default="Release", help="CMAKE_BUILD_TYPE")
    parser.add_argument("--sanitizers", default="", help="TARN_SANITIZE")
    arguments = parser.parse_args()
    reason = kernel_counts.reason_to_skip(arguments.build, arguments.sanitizers)
    if reason is not None:
        print(f"skipped: {reason}")
        return kernel_counts.SKIPPED
    data = pathlib.Path(os.environ.get("TARN_DATA", ROOT / "../shared/data"))
    files = [data / "tokenizers" / name for name in VOCABULARIES]
    vocabularies = [path for path in files if path.is_file()]
    try:
        lines, good = compare(*count(arguments.driver, vocabularies))
    except kernel_counts.CountError as error:
        print(error)
        return 1
    print("\n".join(lines))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
