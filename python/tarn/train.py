"""`tarn train` with several processes, on one machine or on many.

    tarn train --ranks 2 --data book.txt --out models/book
    torchrun --nnodes 4 --nproc-per-node 2 [...] -m tarn.train --data book.txt --out models/book

The flags are those of `tarn train`; `--batch` counts the rows of all ranks together.
torch makes the process group (`--backend auto|gloo|nccl`, `--timeout SECONDS`), the
C++ trainer does the rest: `libtarn_train.so`, found next to the operators or named by
TARN_TRAIN_LIBRARY. Processes that torchrun restarts resume from the last checkpoint.
docs/distributed.md has the details.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

_NAME = "libtarn_train.so"
_TIMEOUT_S = 600.0
# Settings that tarn-train makes for itself, too (src/train/train_main.cc). Torch reads them
# when it is loaded and is therefore imported later.
_POOLS = {"GOMP_SPINCOUNT": "10000", "OMP_DYNAMIC": "FALSE", "MKL_DYNAMIC": "FALSE"}


def _own_flags(words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Parses the flags of this file; returns them and the rest, which are the trainer's."""
    parser = argparse.ArgumentParser(prog="tarn train", add_help=False, allow_abbrev=False)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--backend", choices=("auto", "gloo", "nccl"), default="auto")
    parser.add_argument("--timeout", type=float, default=_TIMEOUT_S)
    parser.add_argument("--sequence-parallel", type=int, default=1)
    own, rest = parser.parse_known_args(words)
    if own.ranks < 1 or own.ranks > 1024:
        parser.error(f"--ranks: want 1 to 1024, got {own.ranks}")
    if not 1 <= own.timeout <= 1e6:
        parser.error(f"--timeout: want 1 to 1,000,000 seconds, got {own.timeout:g}")
    if own.sequence_parallel < 1:
        parser.error(f"--sequence-parallel: want 1 or more, got {own.sequence_parallel}")
    return own, rest


def _library() -> pathlib.Path:
    from tarn import _library as operators

    named = os.environ.get("TARN_TRAIN_LIBRARY")
    places = (
        [pathlib.Path(named)]
        if named
        else [one.with_name(_NAME) for one in operators._candidates()]
    )
    for path in places:
        if path.is_file():
            return path
    raise SystemExit(
        f"tarn train: error: want the trainer's library at "
        f"{' or '.join(map(str, places))}, got no such file "
        "(build it with `make build`, or set TARN_TRAIN_LIBRARY)"
    )


def _going_on(words: Sequence[str]) -> list[str]:
    """The flags of processes that torchrun has started again: they go on at the checkpoint."""
    words = [one for one in words if one != "--overwrite"]
    return words if "--resume" in words else [*words, "--resume"]


def _run(words: Sequence[str], group: str | None, sequence: str | None = None) -> int:
    path = _library()
    # The operators' library must be loaded first: the trainer's links to it.
    from tarn import _library as operators

    operators.ensure()
    library = ctypes.CDLL(str(path))
    given = [os.fsencode(one) for one in words]
    array = (ctypes.c_char_p * len(given))(*given)
    return int(
        library.tarn_train(
            len(given),
            array,
            group.encode() if group else None,
            sequence.encode() if sequence else None,
        )
    )


def _sequence_group(pieces: int) -> str | None:
    """The name of this rank's sequence parallel group, None without one. A group consists of
    consecutive ranks, which share the tokens of the same rows."""
    import torch.distributed as dist

    size, rank = dist.get_world_size(), dist.get_rank()
    if pieces == 1:
        return None
    if size % pieces != 0:
        if rank == 0:
            print(
                f"tarn train: error: --sequence-parallel: want a divisor of the {size} ranks, "
                f"got {pieces}",
                file=sys.stderr,
            )
        raise SystemExit(2)
    mine = None
    for first in range(0, size, pieces):  # every rank makes all groups
        group: Any = dist.new_group(list(range(first, first + pieces)))
        if first <= rank < first + pieces:
            mine = group.group_name
    return mine


def _join(own: argparse.Namespace, words: Sequence[str]) -> int:
    """Runs the trainer in one of the processes that torchrun started."""
    import torch
    import torch.distributed as dist

    from tarn import _process_group

    # Losses and decisions travel as numbers of the CPU, also where models do not.
    both = torch.cuda.is_available() and dist.is_nccl_available()
    if own.backend == "nccl" and not both:
        raise SystemExit(
            "tarn train: error: --backend: want auto or gloo, this torch has no NCCL "
            "or no CUDA device, got nccl"
        )
    backend = "cpu:gloo,cuda:nccl" if both and own.backend != "gloo" else "gloo"
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if both and local < torch.cuda.device_count():
        torch.cuda.set_device(local)
    try:
        again = _process_group.join(backend, own.timeout)
    except RuntimeError as error:
        print(
            f"tarn train: error: rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}: the "
            f"ranks do not find each other: {error}",
            file=sys.stderr,
        )
        return 1
    words = _going_on(words) if again else words
    sequence = _sequence_group(own.sequence_parallel)
    world: Any = dist.group.WORLD
    code = _run(words, world.group_name, sequence)
    if code == 0:
        dist.destroy_process_group()
    return code


def _launch(own: argparse.Namespace, words: Sequence[str]) -> int:
    """All processes on this machine, by torch's own agent; returns the exit status
    of the one that tells most: 2 or 3 of a rank that refused, else the first."""
    # The agent kills what has not ended by then; a checkpoint may take longer than
    # its own half minute.
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "600")
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=own.ranks,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        run_id=f"tarn-{os.getpid()}",
        max_restarts=0,
    )
    command = [
        sys.executable,
        "-P",
        "-m",
        "tarn.train",
        "--backend",
        own.backend,
        "--timeout",
        f"{own.timeout:g}",
        *words,
    ]
    try:
        elastic_launch(config, command[0])(*command[1:])
    except SignalException as stopped:
        return 128 + int(stopped.sigval)
    except ChildFailedError as error:
        codes = [one.exitcode for one in error.failures.values()]
        rank, first = error.get_first_failure()
        code = next((one for one in codes if one in (2, 3)), first.exitcode)
        if code > 0:
            return code
        print(
            f"tarn train: error: rank {rank} of {own.ranks} was ended by signal {-code}; "
            "--resume continues from the last checkpoint",
            file=sys.stderr,
        )
        return 128 - code
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """Runs `tarn train` with these arguments as one rank, or starts all of them.
    Returns the exit status of `tarn train`."""
    own, rest = _own_flags(sys.argv[1:] if words is None else words)
    if own.sequence_parallel != 1:  # the trainer names it again where it says how to go on
        rest += ["--sequence-parallel", str(own.sequence_parallel)]
    for name, value in _POOLS.items():
        os.environ.setdefault(name, value)
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        return _join(own, rest)
    if own.ranks > 1:
        return _launch(own, rest)
    return _run(rest, None)


if __name__ == "__main__":
    sys.exit(main())
