"""One long sequence, cut over the ranks of a process group:

    torchrun --standalone --nproc-per-node 4 examples/distributed/long_sequence.py --tokens 65536

Each rank holds its piece of queries, keys and values alone; what the ranks exchange
is one state a head, whatever the length. With --check the first rank computes the
whole sequence too and compares.
"""

import argparse

import torch
import torch.distributed as dist

import tarn.distributed

B, H, K, V = 1, 4, 32, 32


def piece(first: int, last: int) -> list[torch.Tensor]:
    """Queries, keys and values of the tokens first to last - 1: a function of the
    position, so that any rank can make its own."""
    place = torch.arange(first, last, dtype=torch.float32)[:, None] + 1
    made = []
    for kind, (heads, width) in enumerate(((H, K), (H, K), (H, V))):
        column = torch.arange(heads * width, dtype=torch.float32)[None] + 1
        made.append((place * (0.37 + kind) * column.sqrt()).sin().view(1, last - first, heads, width))
    return made


def compute(options: argparse.Namespace) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    if options.tokens % size != 0:
        raise SystemExit(f"--tokens: want a multiple of the {size} ranks, got {options.tokens}")
    first, last = options.tokens * rank // size, options.tokens * (rank + 1) // size
    queries, keys, values = (one.requires_grad_() for one in piece(first, last))
    out = tarn.distributed.linear_attention(queries, keys, values)
    out.square().mean().backward()
    state_bytes = 4 * B * H * (K * V + K)
    pieces_bytes = 4 * B * (last - first) * H * (2 * K + V)
    print(f"rank {rank}: tokens {first} to {last - 1}, {pieces_bytes:,} bytes of inputs, "
          f"{state_bytes:,} bytes to each of the others", flush=True)
    if options.check:
        parts = [torch.empty_like(out) for _ in range(size)]
        dist.all_gather(parts, out.detach())
        if rank == 0:
            whole = tarn.ops.linear_attention(*piece(0, options.tokens))
            print(f"largest difference {(torch.cat(parts, 1) - whole).abs().max():.1e}", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--tokens", type=int, default=65536)
    arguments.add_argument("--check", action="store_true")
    options = arguments.parse_args()

    dist.init_process_group("gloo")
    compute(options)
    # No tensor of `compute` is left that knows the group, so this waits for gloo's
    # threads. One that still held a tensor while Python shuts down would abort the
    # process (pytorch/pytorch issue 190489).
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
