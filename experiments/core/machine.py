"""What a result was measured on. Run as a program, it measures the machine's
limits in a separate process and writes JSON."""

from __future__ import annotations

import functools
import importlib
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

from experiments.core.places import ROOT
from experiments.core.types import ExperimentError, JsonDict

_SOURCES = ("src", "experiments", "bench", "python", "CMakeLists.txt")
_READ_BYTES = 256 << 20  # beyond any cache


def bench(name: str) -> Any:
    """A module of bench/, whose modules name each other without a package:
    bench("machine"), bench("limits"), bench("models")."""
    folder = str(ROOT / "bench")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(name)


def cpu_name() -> str:
    """The processor's, from /proc."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown processor"


def commit() -> str:
    """The checkout's commit, with "+" where tracked files differ from it or there are
    new ones among the sources; "unknown" outside of a checkout."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        name = git("rev-parse", "--short=10", "HEAD")
        # docs/paper is this program's own output.
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ":!docs/paper")
        changed = changed or git("ls-files", "--others", "--exclude-standard", "--", *_SOURCES)
    except OSError:
        return "unknown"
    return (name + ("+" if changed else "")) or "unknown"


def check_device(device: str) -> None:
    """ExperimentError (2) where torch here has no such device. Asks in a process of
    its own: what a device has once been opened in cannot fork."""
    ask = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    if device == "cuda" and subprocess.run([sys.executable, "-c", ask]).returncode != 0:
        raise ExperimentError(
            "--device: want cpu, the one device here (torch has no CUDA device), got cuda", 2
        )


@functools.lru_cache(maxsize=4)
def facts(threads: int, limits: bool = True, device: str = "cpu") -> JsonDict:
    """CPU, cores, memory, the name of another device, and (with `limits`, some
    seconds) SIMD target, torch, sgemm and read bandwidth with that many threads.
    What cannot be measured is left out."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    known: JsonDict = {
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30, 1),
        "threads": threads,
    }
    if device != "cpu":
        known["device"] = _device_name(device)
    if not limits:
        return known
    command = [sys.executable, "-P", "-B", "-m", "experiments.core.machine", str(threads)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=_python_path())
    )
    if done.returncode == 0:
        known |= json.loads(done.stdout)
    return known


def _device_name(device: str) -> str:
    """The device's name as torch gives it; `device` itself where torch cannot be asked."""
    ask = f"import torch; print(torch.{device}.get_device_name())"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else device


def _python_path() -> str:
    return os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])


def _measure(threads: int) -> JsonDict:
    import torch

    torch.set_num_threads(threads)
    measured = bench("limits").measure(threads, _READ_BYTES)
    facts = bench("machine").facts()
    kept = {key: facts[key] for key in ("cpu", "caches", "system", "target", "torch")}
    return kept | {"sgemm_gflops": measured["sgemm_gflops"], "read_gbs": measured["read_gbs"]}


if __name__ == "__main__":
    print(json.dumps(_measure(int(sys.argv[1]))))
