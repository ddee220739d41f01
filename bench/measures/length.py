"""Time per token at N = 65,536 against N = 4,096: linear time means 1. Inputs are out
of cache at both lengths: sets of buffers, 1 GiB or more in all, are used in turn."""

import harness
import limits
import native
import results
import torch

OUT_OF_CACHE_BYTES = 1 << 30


def _case(kind, seq_len, ctx):
    name = f"linear_attention_{kind}"
    with native.Case(name, 1, seq_len=16) as small:
        per_token = small.bytes / 16
    sets = max(2, round(OUT_OF_CACHE_BYTES / (per_token * seq_len)))
    sets = ctx.size(sets, 2)
    return native.Case(name, ctx.threads, seq_len=seq_len, sets=sets)


def _operator(seq_len, sets, ctx):
    """torch.ops.tarn with its own allocations: forward and gradient."""
    import tarn

    shape = (1, seq_len, 8, 64)
    tensors = [[torch.randn(shape, requires_grad=True) for _ in range(3)] for _ in range(sets)]
    grad_out, turn = torch.randn(shape), [0]

    def call():
        inputs = tensors[turn[0] % sets]
        turn[0] += 1
        torch.autograd.grad(tarn.ops.linear_attention(*inputs), inputs, grad_out)

    return harness.of_call(f"operator N={seq_len}", call, ctx.threads, facts={"seq_len": seq_len})


def measure(ctx):
    table = results.Table(
        "length",
        "N = 65,536 against N = 4,096",
        "1 x 8 heads x 64, float32; buffers of 1 GiB are used in turn, so no run finds its "
        "inputs in cache. Operator: forward and gradient, including allocation.",
    )
    long, short = ctx.size(65536, 256), ctx.size(4096, 128)
    for kind in ("forward", "gradient"):
        cases = {n: _case(kind, n, ctx) for n in (short, long)}
        sides = {n: harness.of_case(c, f"{kind} N={n}") for n, c in cases.items()}
        _goal(table, f"causal {kind}", sides, cases[long].bytes, (short, long), ctx)
        for case in cases.values():
            case.close()
    sets = ctx.size(8, 2)
    sides = {n: _operator(n, s, ctx) for n, s in ((short, sets), (long, 1))}
    _goal(table, "operator, forward + gradient", sides, 1 << 28, (short, long), ctx, False)
    return table


def _goal(table, name, sides, footprint, lengths, ctx, held=True):
    short, long = lengths
    samples, limit = limits.group(list(sides.values()), min(ctx.rounds, 9), footprint, ctx.threads)
    for side in sides.values():
        table.rows.append(limits.row(side, samples[side.name], limit))
    value = harness.ratio(samples[sides[long].name], samples[sides[short].name])
    value /= long / short
    table.goal(
        f"{name}: time per token at N = 65,536 over N = 4,096",
        results.at_most(1.10) if held else {"relation": "<="},
        value,
        valid=limit["valid"],
    )
