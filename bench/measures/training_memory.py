"""Memory of a training step: `tarn.models` and a softmax model as a user writes it
in plain PyTorch, each in a fresh process."""

import memory
import native
import results

SMALL = [1, 32, 1, 16]
# layers, width, batch, seq_len
SHAPES = [[4, 128, 8, 512], [4, 128, 1, 8192]]
MAKERS = {
    "tarn.models": "measures.training_step.models_side",
    "plain PyTorch, softmax": "measures.training_step.torch_side",
}


def _row(side, model, shape, once, threads):
    return {
        "side": side,
        "model": model,
        "batch": shape[2],
        "seq_len": shape[3],
        "threads": threads,
        "target": native.simd_target(),
        "median_ms": once["wall_s"] * 1e3,
        "min_ms": once["wall_s"] * 1e3,
        "repeats": 1,
        "cpu_per_wall": once["cpu_s"] / once["wall_s"],
        "contended": False,
        "valid": True,
        "peak_bytes": once["peak_bytes"],
    }


def measure(ctx):
    table = results.Table(
        "training_memory",
        "Memory of a training step",
        "Peak growth of resident memory in the first step of an existing model, including its "
        "gradients and the optimiser's state; layers x width, batch x tokens. Times are for "
        "that one step.",
    )
    for shape in ctx.size(SHAPES, [SMALL]):
        depth, width, batch, seq_len = shape
        name = f"{depth} x {width}, {batch} x {seq_len:,}"
        most = {}
        for side, maker in MAKERS.items():
            once = memory.in_fresh_process(maker, SMALL, shape, ctx.threads)
            most[side] = once["peak_bytes"]
            table.rows.append(_row(side, name, shape, once, ctx.threads))
        table.goal(
            f"memory of a training step, {name}, against plain PyTorch's",
            results.at_most(0.8),
            most["tarn.models"] / max(most["plain PyTorch, softmax"], 1),
            remark=", ".join(f"{side} {size / 2**20:.0f} MiB" for side, size in most.items()),
        )
    return table
