#!/usr/bin/env python3
"""Trains softmax and linear attention on one task and prints one table.

Called by demo_names.sh and demo_listops.sh, which make the data first. A model
that was trained with the same settings on the same data is not trained again;
an interrupted training goes on where it stopped. What the table shows is the
last model, never the best of those looked at. Everything goes into
OUT/NAME.json as well. Environment:

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

OUT = pathlib.Path(os.environ.get("OUT") or "models")
BUILD = pathlib.Path(os.environ.get("BUILD") or "build")
THREADS = os.environ.get("THREADS") or "1"
STEPS = os.environ.get("STEPS") or ""
ATTENTIONS = {"softmax": "full", "linear": "linear"}
SHOWN = 5  # examples of what a model does


@dataclass(frozen=True)
class Demo:
    """A task: its files under OUT/data/NAME and how its result is named."""

    name: str
    held_out: str
    figure: str  # key of the log
    title: str
    beam: int


DEMOS = {
    "names": Demo("names", "held_out.tsv", "val_token_error_rate", "phoneme error", 4),
    "listops": Demo("listops", "test.tsv", "val_accuracy", "accuracy", 0),
}


def rows(path: pathlib.Path) -> list[tuple[str, str]]:
    """The two fields of each line."""
    lines = path.read_text("utf-8").splitlines()
    return [tuple(line.split("\t")) for line in lines]  # type: ignore[misc]


def digest(path: pathlib.Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def log_of(folder: pathlib.Path) -> list[dict[str, float]]:
    """The log of a run, one dictionary a step."""
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def cpu_seconds() -> float:
    """Of all child processes that have ended, user and system."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_trainer(command: list[str]) -> tuple[int, re.Match[str] | None]:
    """Runs to the end, progress to stderr; exit code, and the line that tells
    parameters, threads and SIMD target."""
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
    """What is kept of a finished run."""
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
    """Trains, or finds what was trained; returns the figures of the run."""
    data = OUT / "data" / demo.name
    folder = OUT / f"{demo.name}-{attention}"
    flags = ["--preset", demo.name, "--attention", ATTENTIONS[attention]]
    flags += ["--threads", THREADS]
    if STEPS:
        # A short run warms up for a twentieth of it.
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
    """What `tarn` writes; on failure its last line, in brackets."""
    done = subprocess.run(
        [str(BUILD / "tarn"), *arguments], input=text, capture_output=True, text=True
    )
    if done.returncode == 0:
        return done.stdout
    return f"[{(done.stderr.strip() or 'no message').splitlines()[-1]}]"


def samples(demo: Demo, attention: str) -> list[dict[str, str]]:
    """What the lean runtime makes of the first held-out examples."""
    folder = str(OUT / f"{demo.name}-{attention}")
    examples = rows(OUT / "data" / demo.name / demo.held_out)[:SHOWN]
    if demo.beam == 0:
        answers = tarn(["classify", folder], "".join(f"{text}\n" for _, text in examples))
        return [
            {"input": text, "want": label, "got": answer}
            for (label, text), answer in zip(examples, answers.splitlines())
        ]
    found: list[dict[str, str]] = []
    for source, target in examples:
        got = tarn(["generate", folder, "--prompt", source, "--beam", str(demo.beam)])
        found.append({"input": source, "want": target, "got": got.strip()})
    return found


def majority(demo: Demo) -> float:
    """Share of the held-out examples with the commonest label of training."""
    data = OUT / "data" / demo.name
    labels = [label for label, _ in rows(data / "train.tsv")]
    common = max(set(labels), key=labels.count)
    held_out = [label for label, _ in rows(data / demo.held_out)]
    return held_out.count(common) / len(held_out)


def machine() -> dict[str, object]:
    """What the figures were measured on."""
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


def print_table(demo: Demo, runs: dict[str, dict[str, object]]) -> None:
    """Both models and what they make of some held-out examples."""
    print(f"{'attention':10} {demo.title:>14} {'seconds':>8} {'CPU s':>8} "
          f"{'parameters':>11} {'steps':>6} threads target")
    for name, run in runs.items():
        share = f"{100 * float(str(run[demo.figure])):.2f} %"
        print(f"{name:10} {share:>14} {run['elapsed_s']:8.0f} {run['cpu_s']:8.0f} "
              f"{run['parameters']:11} {run['steps']:6} {run['threads']:7} {run['target']}")
    if demo.beam == 0:
        print(f"{'majority':10} {100 * majority(demo):12.2f} %")
    for name in ATTENTIONS:
        for sample in runs[name]["samples"]:  # type: ignore[attr-defined]
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
        runs[name]["samples"] = samples(demo, name)
    results["runs"] = runs
    path = OUT / f"{demo.name}.json"
    path.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", "utf-8")

    print_table(demo, runs)
    print(f"results in {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
