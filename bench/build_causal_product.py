"""Compiles fast-transformers' causal product for the instruction sets that tarn
is measured on: build_causal_product.py SOURCE.cpp FOLDER (bench_setup.sh)."""

import pathlib
import platform
import sys

from torch.utils.cpp_extension import load

# The flags of fast-transformers besides those that name the instruction set.
THEIRS = ["-O3", "-fopenmp", "-ffast-math"]
SETS = {"native": "-march=native"}
if platform.machine() == "x86_64":
    SETS["avx2"] = "-march=x86-64-v3"


def main():
    source, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    for name, flag in SETS.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        load(
            name=f"causal_product_{name}",
            sources=[source],
            extra_cflags=[*THEIRS, flag],
            build_directory=str(folder / name),
        )


if __name__ == "__main__":
    main()
