"""Runs the fuzz targets one after the other: run.py BUILD SECONDS [TARGET...]

One line for each: runs, runs in a second, new inputs, findings. New inputs are kept in
BUILD/fuzz/corpus and used again; inputs that show a fault are in BUILD/fuzz/findings.
Exits 1 if there is any.
"""

import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
LIMITS = ["-rss_limit_mb=1024", "-timeout=10", "-print_final_stats=1"]


def stat(log, name):
    found = re.search(rf"^stat::{name}:\s+(\d+)", log, re.MULTILINE)
    return int(found[1]) if found else 0


def fuzz(program, seconds, out):
    """The target's line, and the files of its findings."""
    target = program.name.removeprefix("fuzz_")
    corpus, findings = out / "corpus" / target, out / "findings"
    corpus.mkdir(parents=True, exist_ok=True)
    findings.mkdir(parents=True, exist_ok=True)
    prefix = f"{findings}/{target}-"
    before = set(findings.glob(f"{target}-*"))
    arguments = [f"-max_total_time={seconds}", f"-artifact_prefix={prefix}", *LIMITS]
    done = subprocess.run(
        [program, *arguments, corpus, HERE / "corpus" / target],
        capture_output=True,
        text=True,
        errors="replace",
        env={
            "ASAN_OPTIONS": "detect_leaks=1",
            "UBSAN_OPTIONS": "print_stacktrace=1",
            **os.environ,
        },
    )
    log = done.stderr
    (out / f"{target}.log").write_text(log)
    new = set(findings.glob(f"{target}-*")) - before
    # A program that cannot even begin is a finding, too.
    count = max(len(new), int(done.returncode != 0))
    line = (
        f"{target:16} runs {stat(log, 'number_of_executed_units'):9} "
        f"{stat(log, 'average_exec_per_sec'):7}/s  "
        f"new {stat(log, 'new_units_added'):6}  findings {count}"
    )
    if count:
        names = ", ".join(str(path) for path in sorted(new)) or "no input"
        line += f"  ({names}; {out / target}.log)"
    return line, count


def main():
    build, seconds = pathlib.Path(sys.argv[1]).resolve(), int(sys.argv[2])
    wanted = sys.argv[3:]
    programs = sorted(p for p in build.glob("fuzz_*") if os.access(p, os.X_OK) and p.is_file())
    if wanted:
        programs = [p for p in programs if p.name.removeprefix("fuzz_") in wanted]
    if not programs:
        sys.exit(f"run.py: no fuzz targets in {build}")
    total = 0
    for program in programs:
        line, count = fuzz(program, seconds, build / "fuzz")
        print(line, flush=True)
        total += count
    sys.exit(1 if total else 0)


if __name__ == "__main__":
    main()
