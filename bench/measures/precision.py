"""A training step in bfloat16 compared with the same in float32: `tarn train
--precision bf16`, and the softmax model in plain PyTorch under autocast. The gain
depends on the processor: with AMX torch's bfloat16 product is several times as fast
as float32's, without it there is no gain."""

import harness
import limits
import results
import torch

import measures.training_step as steps

# width; goals on a machine with AMX: bf16 over float32, over PyTorch's autocast.
WIDTHS = [(128, 1.6, 2.5), (256, 2.3, 2.0), (512, 3.0, 1.6)]
DEPTH, BATCH, SEQ_LEN = 4, 8, 512


def _has_amx():
    """Whether this machine has instructions for products in bfloat16."""
    return bool(getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)())


def _renamed(side, name):
    side.name = name
    return side


def _autocast(side):
    """The same step with torch.autocast around all of it."""
    run = side.run

    def under(inner):
        with torch.autocast("cpu", torch.bfloat16):
            return run(inner)

    side.run = under
    return side


def _width(table, ctx, depth, width, batch, seq_len, gained, against):
    size, counted = (depth, width, batch, seq_len), ctx.size(4, 2)
    narrow = steps.trainer_side(*size, ctx.threads, counted, {"--precision": "bf16"})
    sides = [
        steps.trainer_side(*size, ctx.threads, counted),
        _renamed(narrow, "tarn train, bf16"),
        steps.torch_side(*size, ctx.threads),
        _renamed(
            _autocast(steps.torch_side(*size, ctx.threads)),
            "plain PyTorch, softmax, autocast",
        ),
    ]
    samples, limit = limits.group(sides, min(ctx.rounds, 3), 1 << 26, ctx.threads, budget=30)
    name = f"{depth} x {width}, {batch} x {seq_len:,}"
    for side in sides:
        rate = batch * seq_len / samples[side.name].median
        row = limits.row(side, samples[side.name], limit)
        table.rows.append(row | {"model": name, "tokens_per_s": rate})
    amx = _has_amx()
    remark = "" if amx else "no AMX: the goals are of machines with it"
    for text, other, bound in (
        ("over its float32 step", "tarn train", gained),
        ("against plain PyTorch under autocast", "plain PyTorch, softmax, autocast", against),
    ):
        table.goal(
            f"tarn train in bf16, {name}, {text}",
            results.at_least(bound) if amx else {},
            harness.ratio(samples[other], samples["tarn train, bf16"]),
            valid=limit["valid"],
            remark=remark,
        )


def measure(ctx):
    table = results.Table(
        "precision",
        "Training step in bfloat16",
        "Layers x width, batch x tokens, as in the table of the training step; products in "
        "bfloat16 with torch's autocast, weights and optimiser in float32.",
    )
    shapes = (
        [(1, 32, 2, 16, 1.6, 2.5)]
        if ctx.quick
        else [(DEPTH, width, BATCH, SEQ_LEN, gained, against) for width, gained, against in WIDTHS]
    )
    for shape in shapes:
        _width(table, ctx, *shape)
    return table
