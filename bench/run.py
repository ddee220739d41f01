"""Runs measures and writes their results: `make bench`, `make bench-peers`.

    python bench/run.py --only forward,gradient     some measures, shown
    python bench/run.py --all                       everything, peers included
    python bench/run.py --list                      the measures by name
    python bench/run.py --case matmul rows=64 inputs=1024 outputs=4096

Results are added to docs/benchmarks/<target>.json (--out; with --machine NAME to
<target>_<NAME>.json), and the report with its figures is regenerated from all results
there; that alone needs matplotlib. With --dry nothing is written.
"""

import argparse
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.setdefault("TARN_BUILD", str(ROOT / "build")))
os.environ.setdefault("TARN_LIBRARY", str(BUILD / "libtarn_pytorch.so"))
sys.path += [str(ROOT / "python"), str(ROOT)]  # tarn, plotting

# This must come before torch is loaded: a SIMD target forced on tarn is forced on torch's
# libraries too, or a comparison would compare processors.
if os.environ.get("TARN_FORCE_TARGET", "").upper() == "AVX2":
    os.environ.setdefault("ATEN_CPU_CAPABILITY", "avx2")
    os.environ.setdefault("MKL_ENABLE_INSTRUCTIONS", "AVX2")
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")
# Anything that reaches OpenBLAS (numpy) needs this: OpenBLAS does not know newer processors,
# but it takes the name of its kernels on trust.
FLAGS = set(pathlib.Path("/proc/cpuinfo").read_text().split())
if {f"avx512{part}" for part in ("f", "cd", "bw", "dq", "vl")} <= FLAGS:
    os.environ.setdefault("OPENBLAS_CORETYPE", "SkylakeX")

import harness  # noqa: E402
import limits  # noqa: E402
import measures  # noqa: E402
import report  # noqa: E402
import results  # noqa: E402
import torch  # noqa: E402

import native  # noqa: E402
from plotting import NoMatplotlib  # noqa: E402


def show(table):
    """The rows and goals of a table, on stdout."""
    print(f"\n{table.title}\n{table.note}")
    for row in table.rows:
        print(report.plain_row(row))
    for goal in table.goals:
        print(report.plain_goal(goal))
    sys.stdout.flush()


def run_case(words, ctx):
    """One kernel case compared with sgemm."""
    params = dict(word.split("=", 1) for word in words[1:])
    table = results.Table("case", " ".join(words))
    with native.Case(words[0], ctx.threads, **params) as case:
        side, sgemm = harness.of_case(case), limits.sgemm_side(ctx.threads)
        samples, limit = limits.group([side, sgemm], ctx.rounds, case.bytes, ctx.threads)
        for each in (side, sgemm):
            table.rows.append(limits.row(each, samples[each.name], limit, samples["sgemm"]))
    show(table)


def write_report(folder):
    """Writes it from the stored results. Without matplotlib it stays as it was, with
    a message; the measurements are stored and shown in any case."""
    try:
        report.write(folder)
    except NoMatplotlib as error:
        print(
            f"bench: {folder}: the report is not regenerated: {error}; the results are "
            "there, and `bench/run.py --report` writes it",
            file=sys.stderr,
        )
        return False
    return True


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--only", help="measures, comma-separated")
    what.add_argument("--all", action="store_true", help="every measure")
    what.add_argument("--kernels", action="store_true", help="those without peers")
    what.add_argument("--list", action="store_true")
    what.add_argument("--report", action="store_true", help="regenerate the report")
    what.add_argument("--case", nargs="+", metavar="NAME", help="one kernel case")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="tiny: a smoke test")
    parser.add_argument("--out", default="docs/benchmarks")
    parser.add_argument(
        "--machine",
        default="",
        metavar="NAME",
        help="store the results in a separate column, <target>_<NAME>.json",
    )
    parser.add_argument("--dry", action="store_true", help="write nothing")
    return parser, parser.parse_args()


def names_of(args, parser):
    if args.all:
        return [name for name, one in measures.ALL.items() if not one.missing()]
    if args.kernels:
        return [n for n, one in measures.ALL.items() if not one.peers and not one.missing()]
    names = []
    for name in args.only.split(","):
        found = measures.named(name)
        if not found:
            parser.error(f"--only: want names of --list, got {name}")
        names += found
    return names


def main():
    parser, args = parse()
    if not all(letter.isalnum() for letter in args.machine):
        parser.error(f"--machine: want letters and digits, got {args.machine!r}")
    if args.list:
        for name, one in measures.ALL.items():
            print(f"{name:32}{'peers  ' if one.peers else '       '}{one.title}")
        return
    if args.report:
        sys.exit(0 if write_report(args.out) else 1)
    torch.manual_seed(1)
    torch.set_num_threads(args.threads)
    if args.quick:
        harness.be_quick()
        limits.be_quick()
    ctx = results.Context(args.quick, args.threads, args.repeats)
    if args.case:
        run_case(args.case, ctx)
        return
    for name in names_of(args, parser):
        start = time.perf_counter()
        table = measures.ALL[name].load()(ctx)
        show(table)
        print(f"[{name}: {time.perf_counter() - start:.0f} s]")
        if not args.dry:
            report.add(args.out, table, ctx, args.machine)
    if not args.dry:
        write_report(args.out)


if __name__ == "__main__":
    main()
