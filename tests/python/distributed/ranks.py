"""Runs a function in several processes that form a process group (Gloo)."""

import datetime
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def _one(rank, size, store, work, arguments):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(seconds=120),
    )
    try:
        work(*arguments)
    finally:
        dist.destroy_process_group()
    # Gloo's threads may still hold tensors of Python, which aborts a process that shuts
    # Python down (pytorch/pytorch issue 190489). So Python does not shut down here.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def told(case, work, *arguments):
    """`work(*arguments)`; what it raises says in which case."""
    try:
        work(*arguments)
    except Exception as error:
        error.add_note(f"in the case {case}")
        raise


def run(size, work, *arguments):
    """`work(*arguments)` once a rank; what one raises is raised here."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_one, (size, os.path.join(folder, "store"), work, arguments), nprocs=size)
