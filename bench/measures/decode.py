"""A model of 150 million parameters: decode against the bandwidth at which the
same threads read a buffer of the weights' size, prefill against sgemm."""

import harness
import limits
import models
import native
import results
import runtime_api as runtime
import runtime_sides as sides


def _read_side(name, bytes_read, threads):
    return harness.of_case(native.Case("limit_read", threads, bytes=bytes_read), name)


def measure(ctx):
    table = results.Table(
        "decode",
        "Runtime: 150 million parameters",
        "12 layers, 1024 wide, 16 heads, batch 1. Bytes of a step: weights once, "
        "state read and written. Read bandwidth of a buffer of the weights' size.",
    )
    folder = models.m150(ctx.quick)
    work = sides.Work(folder)
    with (
        runtime.Model(folder, ctx.threads) as f32,
        runtime.Model(folder, ctx.threads, "bf16") as bf16,
    ):
        _decode(table, ctx, work, f32, bf16)
        _prefill(table, ctx, work, f32, bf16)
    return table


def _decode(table, ctx, work, f32, bf16):
    steps = [
        sides.step_side("decode f32", f32, work),
        sides.step_side("decode bf16", bf16, work, "bf16"),
    ]
    reads = [
        _read_side("read, f32's bytes", work.weight_bytes("f32"), ctx.threads),
        _read_side("read, bf16's bytes", work.weight_bytes("bf16"), ctx.threads),
    ]
    every = [*steps, *reads]
    samples, limit = limits.group(every, ctx.rounds, 1 << 28, ctx.threads)
    for side in every:
        table.rows.append(limits.row(side, samples[side.name], limit))
    shares = [harness.bandwidth_share(s, samples, r) for s, r in zip(steps, reads)]
    rates = [1 / samples[s.name].median for s in steps]
    table.goal(
        "decode, batch 1, float32 weights, 150 M parameters: of the read bandwidth",
        results.at_least(0.90),
        shares[0],
        unit="share",
        valid=limit["valid"],
        remark=f"{rates[0]:.1f} tokens/s; bfloat16 {100 * shares[1]:.0f} %",
    )
    table.goal(
        "decode with bfloat16 weights against float32",
        results.at_least(1.8),
        harness.ratio(samples["decode f32"], samples["decode bf16"]),
        valid=limit["valid"],
        remark=f"{rates[1]:.1f} tokens/s",
    )


def _prefill(table, ctx, work, f32, bf16):
    tokens = ctx.size(512, 32)
    fills = [
        sides.prefill_side("prefill f32", f32, work, tokens),
        sides.prefill_side("prefill bf16", bf16, work, tokens, "bf16"),
    ]
    sgemm = limits.sgemm_side(ctx.threads)
    samples, limit = limits.group([*fills, sgemm], min(ctx.rounds, 7), 1 << 28, ctx.threads)
    for side in fills:
        table.rows.append(limits.row(side, samples[side.name], limit, samples["sgemm"]))
    table.goal(
        "prefill, 150 M parameters, 512 tokens: of torch's sgemm rate",
        results.at_least(0.75),
        table.rows[-2]["share_of_sgemm"],
        unit="share",
        valid=limit["valid"],
        remark=f"{tokens / samples['prefill f32'].median:.0f} tokens/s; bfloat16 "
        f"{100 * table.rows[-1]['share_of_sgemm']:.0f} %",
    )
