#!/usr/bin/env python3
"""Trains softmax and linear attention on one task and prints one table.

Called by demo_names.sh and demo_listops.sh, which make the data first. A model
that was trained with the same settings on the same data is not trained again;
an interrupted training resumes where it stopped. The table shows the last
model, never the best of those evaluated. Everything is also written to
OUT/NAME.json. Environment:

  OUT      folder for data, models and results [models]
  BUILD    build directory [build]
  THREADS  of a training [1]
  STEPS    updates [those of the preset]
"""

import hashlib
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

OUT = pathlib.Path(os.environ.get("OUT") or "models")
BUILD = pathlib.Path(os.environ.get("BUILD") or "build")
THREADS = os.environ.get("THREADS") or "1"
STEPS = os.environ.get("STEPS") or ""
ATTENTIONS = {"softmax": "full", "linear": "linear"}
SHOWN = 5  # examples of a model's results


@dataclass(frozen=True)
class Demo:
    """A task: its files under OUT/data/NAME and how its result is named."""

    name: str
    held_out: str
    figure: str  # key of the log
    verdict: str  # key of `tarn eval --json`
    title: str
    beam: int  # 0: classes, which need no search


DEMOS = {
    "names": Demo(
        "names", "held_out.tsv", "val_token_error_rate", "token_error_rate", "phoneme error", 4
    ),
    "listops": Demo("listops", "test.tsv", "val_accuracy", "accuracy", "accuracy", 0),
}


def rows(path: pathlib.Path) -> list[tuple[str, str]]:
    """The two fields of each line."""
    lines = path.read_text("utf-8").splitlines()
    return [tuple(line.split("\t")) for line in lines]  # type: ignore[misc]


def digest(path: pathlib.Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def log_of(folder: pathlib.Path) -> list[dict[str, float]]:
    """The log of a run, one dictionary per step."""
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def cpu_seconds() -> float:
    """Processor seconds of all child processes that have ended, user and system."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_trainer(command: list[str]) -> tuple[int, re.Match[str] | None]:
    """Runs a command to its end, progress to stderr; returns the exit code, and the
    line that reports parameters, threads and SIMD target."""
    print(" ".join(command), file=sys.stderr)
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert run.stderr is not None
    facts: re.Match[str] | None = None
    try:
        for line in run.stderr:
            sys.stderr.write(line)
            found = re.search(r"(\d+) parameters, (\d+) threads?, (\S+)", line)
            facts = found or facts
        code = run.wait()
    except KeyboardInterrupt:
        code = run.wait()  # it saves first
    return code, facts


def figures(demo: Demo, folder: pathlib.Path, facts: re.Match[str]) -> dict[str, object]:
    """The figures that are kept of a finished run."""
    log = log_of(folder)
    last = log[-1]
    return {
        "parameters": int(facts[1]),
        "threads": int(facts[2]),
        "target": facts[3],
        "steps": int(last["step"]),
        "elapsed_s": last["elapsed_s"],
        "held_out_loss": last["val_loss"],
        demo.figure: last[demo.figure],
        "looks": [
            {"step": line["step"], demo.figure: line[demo.figure]}
            for line in log
            if demo.figure in line
        ],
    }


def train(demo: Demo, attention: str) -> dict[str, object]:
    """Trains a model, or finds a trained one; returns the figures of the run."""
    data = OUT / "data" / demo.name
    folder = OUT / f"{demo.name}-{attention}"
    flags = ["--preset", demo.name, "--attention", ATTENTIONS[attention]]
    flags += ["--threads", THREADS]
    if STEPS:
        # A short run warms up for a twentieth of its steps.
        flags += ["--steps", STEPS, "--warmup", str(min(100, int(STEPS) // 20))]
    files = [data / "train.tsv", data / demo.held_out]
    settings = {"flags": flags, "sha256": [digest(path) for path in files]}
    notes = folder / "demo.json"
    kept = json.loads(notes.read_text()) if notes.exists() else {}
    how = "--resume"
    if kept.get("settings") != settings:
        kept = {"settings": settings, "cpu_s": 0.0}
        how = "--overwrite"
    elif "parameters" in kept:
        return kept
    folder.mkdir(parents=True, exist_ok=True)
    notes.write_text(json.dumps(kept))
    command = [str(BUILD / "tarn-train"), "--data", str(files[0]), "--held-out", str(files[1])]
    before = cpu_seconds()
    code, facts = run_trainer([*command, "--out", str(folder), how, *flags])
    kept["cpu_s"] += cpu_seconds() - before
    if code == 0 and facts is not None:
        kept |= {"attention": attention} | figures(demo, folder, facts)
    notes.write_text(json.dumps(kept, indent=1) + "\n")
    if code != 0:
        sys.exit(code if code > 0 else 1)
    return kept


def tarn(arguments: list[str], text: str | None = None) -> str:
    """What `tarn` writes to stdout; its errors go to stderr and end the demo."""
    done = subprocess.run(
        [str(BUILD / "tarn"), *arguments],
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if done.returncode != 0:
        sys.stderr.write(done.stderr)
        sys.exit(done.returncode)
    return done.stdout


def judge(demo: Demo, attention: str) -> list[dict[str, object]]:
    """The lean runtime's evaluation of all held-out examples: greedy, then with a
    beam where there is one."""
    folder = str(OUT / f"{demo.name}-{attention}")
    data = str(OUT / "data" / demo.name / demo.held_out)
    command = ["eval", folder, data, "--json", "--threads", THREADS]
    beams = [["--beam", str(beam)] for beam in (1, demo.beam)] if demo.beam else [[]]
    return [json.loads(tarn([*command, *beam])) for beam in beams]


def samples(demo: Demo, attention: str) -> list[dict[str, str]]:
    """The lean runtime's results on the first held-out examples."""
    folder = str(OUT / f"{demo.name}-{attention}")
    examples = rows(OUT / "data" / demo.name / demo.held_out)[:SHOWN]
    if demo.beam == 0:
        examples = [(text, label) for label, text in examples]
    sources = "".join(f"{source}\n" for source, _ in examples)
    command = ["classify", folder]
    if demo.beam:
        command = ["generate", folder, "--prompt", "-", "--beam", str(demo.beam)]
    answers = tarn(command, sources).splitlines()
    return [
        {"input": source, "want": target, "got": answer}
        for (source, target), answer in zip(examples, answers, strict=True)
    ]


def majority(demo: Demo) -> float:
    """Share of the held-out examples with the most common label of training."""
    data = OUT / "data" / demo.name
    labels = [label for label, _ in rows(data / "train.tsv")]
    common = max(sorted(set(labels)), key=labels.count)
    held_out = [label for label, _ in rows(data / demo.held_out)]
    return held_out.count(common) / len(held_out)


def machine() -> dict[str, object]:
    """The machine that the figures were measured on."""
    name = "unknown"
    info = pathlib.Path("/proc/cpuinfo")
    if info.exists():
        found = re.search(r"^model name\s*:\s*(.*)$", info.read_text(), re.MULTILINE)
        name = found[1] if found else name
    return {
        "cpu": name,
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "date": time.strftime("%Y-%m-%d"),
    }


def percent(share: object) -> str:
    """A share of 1 as text."""
    return f"{100 * float(str(share)):.2f} %"


def print_table(demo: Demo, results: dict[str, Any]) -> None:
    """Prints both models and their results on some held-out examples."""
    beam = f"beam {demo.beam}" if demo.beam else ""
    print(
        f"{'attention':10} {demo.title:>14} {'runtime':>8} {beam:>8} {'seconds':>8} "
        f"{'CPU s':>6} {'parameters':>11} {'steps':>6} {'threads':>7} target"
    )
    for name, run in results["runs"].items():
        greedy, *search = [percent(verdict[demo.verdict]) for verdict in run["runtime"]]
        print(
            f"{name:10} {percent(run[demo.figure]):>14} {greedy:>8} {''.join(search):>8} "
            f"{run['elapsed_s']:8.0f} {run['cpu_s']:6.0f} {run['parameters']:11} "
            f"{run['steps']:6} {run['threads']:7} {run['target']}"
        )
    if demo.beam == 0:
        print(f"{'majority':10} {percent(results['majority']):>14}")
    for name, run in results["runs"].items():
        for sample in run["samples"]:
            print(f"{name}: {sample['input']} -> {sample['got']} (want {sample['want']})")


def main(arguments: list[str]) -> int:
    """The program; an error names what is missing."""
    if len(arguments) != 1 or arguments[0] not in DEMOS:
        print(f"run_demo: error: want one of {', '.join(DEMOS)}", file=sys.stderr)
        return 2
    demo = DEMOS[arguments[0]]
    data = OUT / "data" / demo.name
    results: dict[str, object] = {"demo": demo.name, "machine": machine()}
    side_file = next(data.glob("*.json"))
    results["data"] = json.loads(side_file.read_text())
    if demo.beam == 0:
        results["majority"] = majority(demo)
    runs = {name: train(demo, name) for name in ATTENTIONS}
    for name in ATTENTIONS:
        runs[name]["runtime"] = judge(demo, name)
        runs[name]["samples"] = samples(demo, name)
    results["runs"] = runs
    path = OUT / f"{demo.name}.json"
    path.write_text(json.dumps(results, indent=1) + "\n")

    print_table(demo, results)
    print(f"results in {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
