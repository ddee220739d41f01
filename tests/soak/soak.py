"""A server under random sessions for as long as is asked, killed and started again on the way.

    python tests/soak/soak.py [MODEL...] --seconds 3600 --out docs/benchmarks/soak

Clients (client.py) ask for completions, vectors, token ids and sessions in random order and
know what each answer must be. Twice the server is killed as by a crash (SIGKILL) and started on the same
folder. Afterwards the server must have lost nothing, its memory in the last quarter of the time
must be within 10 % of that in the quarter before, and it must have as many open files as at
first. Exit code 1 where it is not so. Memory is judged from ten minutes on. OUT gets
results.json and memory.svg.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import random
import sys
import tempfile
import threading
import time

from client import Client, Shared
from server import Sample, Server

ROOT = pathlib.Path(__file__).resolve().parents[2]
KILLED_AT = (0.15, 0.3)  # of the time
MOST_GROWTH = 1.1  # memory of the last quarter over that of the third
SETTLES = 600  # seconds before which memory may still grow: caches fill
POINTS = 240  # of the curve


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=[str(ROOT / "examples" / "fortunes")])
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--clients", type=int, default=16, help="at once (16)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--program", default=os.environ.get("TARN_PROGRAM", ROOT / "build/tarn"))
    parser.add_argument("--out", type=pathlib.Path, help="a folder for results and curve")
    return parser.parse_args()


def median(samples: list[Sample], name: str) -> float:
    numbers = sorted(getattr(one, name) for one in samples)
    return float(numbers[len(numbers) // 2])


def run(chosen: argparse.Namespace, park: str) -> dict:
    words = ["--park-dir", park, "--state-memory", "32", "--cache-memory", "64"]
    words += ["--max-sessions", "4096", "--grace", "2", "--metrics"]
    server = Server(chosen.program, chosen.models, words)
    try:
        return watch(chosen, server)
    finally:
        server.kill()


def watch(chosen: argparse.Namespace, server: Server) -> dict:
    first = server.sample(0.0)
    shared = Shared(server, [pathlib.Path(one).name for one in chosen.models])
    clients = [
        Client(shared, random.Random(1000 * chosen.seed + i), f"c{i}")
        for i in range(chosen.clients)
    ]
    threads = [threading.Thread(target=one.run) for one in clients]
    for thread in threads:
        thread.start()
    curve: list[Sample] = []
    kills = [share * chosen.seconds for share in KILLED_AT]
    start = time.monotonic()
    while (now := time.monotonic() - start) < chosen.seconds and not shared.faults:
        if kills and now >= kills[0]:
            kills.pop(0)
            server.kill()
            server.start()
        curve.append(server.sample(now))
        shown = curve[-1]
        print(
            f"\r{now:6.0f} s  {shared.count()} calls  {shown.memory_mib:.1f} MiB"
            f"  {shown.files} files  {len(shared.faults)} faults ",
            end="",
            file=sys.stderr,
            flush=True,
        )
        time.sleep(min(chosen.seconds / POINTS, 15))
    shared.stop.set()
    for thread in threads:
        thread.join()
    for one in clients:
        one.clean()
    time.sleep(7)  # idle connections are closed after 5 s
    last = server.sample(time.monotonic() - start)
    code = server.end()
    print(file=sys.stderr)
    return verdict(chosen, shared, first, curve, last, code)


def verdict(
    chosen: argparse.Namespace,
    shared: Shared,
    first: Sample,
    curve: list[Sample],
    last: Sample,
    code: int,
) -> dict:
    quarter = chosen.seconds / 4
    third = [one for one in curve if 2 * quarter <= one.seconds < 3 * quarter]
    fourth = [one for one in curve if one.seconds >= 3 * quarter]
    faults = list(shared.faults)
    growth = 0.0
    if third and fourth:
        growth = max(one.memory_mib for one in fourth) / median(third, "memory_mib")
        if growth > MOST_GROWTH and chosen.seconds >= SETTLES:
            faults.append(f"memory: at most {MOST_GROWTH} times, got {growth:.3f}")
    if last.files > first.files:
        faults.append(f"open files: want {first.files} as at first, got {last.files}")
    if code != 0:
        faults.append(f"exit code: want 0, got {code}")
    return {
        "seconds": chosen.seconds,
        "clients": chosen.clients,
        "models": shared.models,
        "architecture": platform.machine(),
        "calls": shared.calls,
        "calls_total": shared.count(),
        "kills": len(KILLED_AT),
        "sessions_checked_after_kills": shared.checked,
        "texts_compared": shared.compared,
        "memory_growth": growth,
        "files": {"first": first.files, "most": max(s.files for s in curve), "last": last.files},
        "faults": faults,
        "curve": [[s.seconds, s.memory_mib, s.files, s.parked] for s in curve],
    }


def draw(found: dict) -> bytes:
    sys.path.insert(0, str(ROOT))
    from plotting.lines import Panel, Series, line_figure

    minutes = [(one[0] / 60, one[1], one[3]) for one in found["curve"]]
    memory = Series("resident memory", [(m, mib) for m, mib, _ in minutes])
    parked = Series("parked sessions", [(m, count) for m, _, count in minutes])
    return line_figure(
        [
            Panel([memory], "minutes", "MiB", y_limits=(0, None)),
            Panel([parked], "minutes", "parked sessions", y_limits=(0, None)),
        ]
    )


def main() -> int:
    chosen = options()
    with tempfile.TemporaryDirectory() as park:
        found = run(chosen, park)
    if chosen.out:
        chosen.out.mkdir(parents=True, exist_ok=True)
        (chosen.out / "results.json").write_text(json.dumps(found) + "\n")
        (chosen.out / "memory.svg").write_bytes(draw(found))
    print(json.dumps({k: v for k, v in found.items() if k != "curve"}, indent=1))
    return 1 if found["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
