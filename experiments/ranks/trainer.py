"""The trainer as several ranks, each on its own node: step time, seconds of exchange,
bytes on the wire.

Ranks get the environment that torchrun gives them (RANK, WORLD_SIZE, MASTER_ADDR, ...) and run
`python -m tarn.train`, as docs/distributed.md has it; one rank alone runs the same."""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import IO

from experiments.core import ExperimentError, JsonDict
from experiments.core.places import ROOT, programs
from experiments.ranks.forwarder import DEVICE
from experiments.ranks.network import Network

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
_PORT = 29500
_POLL_S = 0.02
_WARM = 2  # updates before the first that counts
MODES = {"data": [], "sharded": ["--shard-optimizer"], "sequence": ["--sequence-parallel"]}


def library() -> pathlib.Path:
    """Where the trainer's library is looked for."""
    return pathlib.Path(os.environ.get("TARN_TRAIN_LIBRARY") or programs() / "libtarn_train.so")


def missing() -> str:
    """Why the trainer cannot run as ranks here; empty where it can."""
    return (
        ""
        if library().is_file()
        else f"want the trainer's library {library().name}, got no such file"
    )


def write_text(path: pathlib.Path, letters: int = 1 << 20) -> None:
    """Something to train on: words of random letters, always the same."""
    draw = random.Random(0)
    words = [
        "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9)))
        for _ in range(500)
    ]
    lines, count = [], 0
    while count < letters:
        lines.append(" ".join(draw.choices(words, k=10)) + "\n")
        count += len(lines[-1])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), "utf-8")


def _environment(rank: int, ranks: int, address: str, port: int, device: str) -> dict[str, str]:
    known = dict(
        os.environ,
        PYTHONPATH=os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]),
        TARN_TRAIN_LIBRARY=str(library()),
    )
    known.setdefault("TARN_LIBRARY", str(library().with_name("libtarn_pytorch.so")))
    if ranks > 1:
        known |= {
            "RANK": str(rank),
            "LOCAL_RANK": "0",
            "WORLD_SIZE": str(ranks),
            "MASTER_ADDR": address,
            "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": device,
        }
    return known


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _enter(network: Network | None, rank: int) -> Callable[[], None]:
    """What a rank's process does first: it ends with this one, and goes to its node."""

    def enter() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if network is not None:
            network.join(rank)

    return enter


class Ranks:
    """The processes of one training, from their start to the last one's end."""

    def __init__(self, ranks: int, words: Sequence[str], network: Network | None) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()
        address = network.address(0) if network else "127.0.0.1"
        port = _PORT if network else _free_port()
        device = DEVICE if network else "lo"
        self._processes: list[subprocess.Popen[bytes]] = []
        self.peak_bytes = 0  # of resident memory, of the rank that held most
        try:
            for rank in range(ranks):
                self._processes.append(
                    subprocess.Popen(
                        [sys.executable, "-P", "-m", "tarn.train", *words],
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=self._errors,
                        start_new_session=True,
                        env=_environment(rank, ranks, address, port, device),
                        preexec_fn=_enter(network, rank),
                    )
                )
        except BaseException:
            self.end()
            raise

    def running(self) -> bool:
        """Whether a rank still runs; ExperimentError where one has failed."""
        self.peak_bytes = max(self.peak_bytes, *(_peak(one.pid) for one in self._processes), 0)
        codes = [one.poll() for one in self._processes]
        if any(codes):
            self._errors.seek(0)
            said = self._errors.read().decode("utf-8", "replace").strip().splitlines()
            code = next(one for one in codes if one)
            raise ExperimentError(f"ranks: {said[-1] if said else f'ended with {code}'}")
        return None in codes

    def end(self) -> None:
        """Kills what still runs."""
        for one in self._processes:
            one.kill()
        for one in self._processes:
            one.wait()
        self._errors.close()


def _peak(process: int) -> int:
    """Bytes of memory that a process has held at most so far; 0 where it has ended."""
    try:
        text = pathlib.Path(f"/proc/{process}/status").read_text("utf-8")
    except OSError:
        return 0
    held = [line.split()[1] for line in text.splitlines() if line.startswith("VmHWM:")]
    return 1024 * int(held[0]) if held else 0


def _lines(folder: pathlib.Path) -> list[JsonDict]:
    """The whole lines of the log; the last one may still be growing."""
    try:
        text = (folder / "log.jsonl").read_text("utf-8")
    except OSError:
        return []
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def train_ranks(
    folder: pathlib.Path,
    ranks: int,
    mode: str,
    flags: Sequence[str],
    network: Network | None = None,
    timeout_s: float = 600.0,
) -> JsonDict:
    """One training: {"step_s", "exchange_s", "sent", "parameters", "peak_bytes"}, medians over its
    updates after the first two; `sent` are bytes of all nodes in an update, None without a
    network; `peak_bytes` is the memory of the rank that held most.
    `flags` are those of `tarn train` without --out. ExperimentError where a rank fails or all
    take too long."""
    if mode not in MODES:
        raise ExperimentError(f"mode: want one of {', '.join(MODES)}, got {mode!r}", 2)
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    words = [*flags, "--out", str(folder), "--overwrite", "--quiet"]
    if ranks > 1:
        words += MODES[mode] + ([str(ranks)] if mode == "sequence" else [])
    counted: list[tuple[int, int]] = []  # update, bytes of all nodes when it was on record
    began = time.monotonic()
    running = Ranks(ranks, words, network)
    try:
        while running.running():
            if network is not None:
                steps = len(_lines(folder))
                if steps > (counted[-1][0] if counted else _WARM - 1):
                    counted.append((steps, sum(network.sent())))
            if time.monotonic() - began > timeout_s:
                raise ExperimentError(f"ranks: want an end within {timeout_s:g} s")
            time.sleep(_POLL_S)
    finally:
        running.end()
    return figures_of(_lines(folder), counted) | {
        "parameters": _parameters(folder),
        "peak_bytes": running.peak_bytes,
    }


def figures_of(log: Sequence[JsonDict], counted: Sequence[tuple[int, int]]) -> JsonDict:
    """Medians of a log, and bytes of an update from counts of (update, bytes so far)."""
    if len(log) < _WARM + 2:
        raise ExperimentError(f"log: want {_WARM + 2} updates or more, got {len(log)}")
    steps = [
        later["elapsed_s"] - line["elapsed_s"]
        for line, later in zip(log[_WARM - 1 : -1], log[_WARM:], strict=True)
    ]
    # After the last update the trainer evaluates and saves.
    kept = [one for one in counted if one[0] < len(log)]
    sent = None
    if len(kept) > 1 and kept[-1][0] > kept[0][0]:
        sent = (kept[-1][1] - kept[0][1]) / (kept[-1][0] - kept[0][0])
    return {
        "step_s": statistics.median(steps),
        "updates": len(log),
        "sent": sent,
        "exchange_s": statistics.median(line.get("exchange_s", 0.0) for line in log[_WARM:]),
    }


def _parameters(folder: pathlib.Path) -> int:
    """Numbers in the model's file."""
    with (folder / "model.safetensors").open("rb") as file:
        head = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    count = 0
    for name, one in head.items():
        if name != "__metadata__":
            numbers = 1
            for size in one["shape"]:
                numbers *= size
            count += numbers
    return count
