"""Time and memory against N: linear attention (tarn, both builds of
fast-transformers, torch in chunked form) and torch's softmax attention, forward and gradient."""

import attention_sides as sides
import limits
import memory
import results

LENGTHS = (256, 1024, 4096, 8192, 16384, 65536)
# Side -> its maker in attention_sides.
MAKERS = {
    "tarn": "attention_sides.tarn_side",
    "fast-transformers": "attention_sides.fast_transformers_side",
    "fast-transformers, tuned build": "attention_sides.tuned_fast_transformers_side",
    "torch, chunked": "attention_sides.chunked_sides",
    "torch softmax attention": "attention_sides.softmax_side",
}
# Softmax attention's cost grows with N^2: above this a call takes minutes.
SOFTMAX_MOST = 16384


def _sides(seq_len, ctx):
    shape = (1, seq_len, 8, 64, ctx.threads)
    yield sides.tarn_side(*shape)
    yield sides.fast_transformers_side(*shape)
    yield sides.tuned_fast_transformers_side(*shape)
    chunked = sides.fastest(sides.chunked_sides(*shape))
    chunked.name = "torch, chunked"
    yield chunked
    if seq_len <= SOFTMAX_MOST:
        yield sides.softmax_side(*shape)


def measure(ctx):
    table = results.Table(
        "curves",
        "Time and memory against N",
        "Causal, forward + gradient, 1 x 8 heads x 64, float32, including allocation; memory: "
        "peak growth of resident memory in a fresh process, without inputs.",
    )
    times, bytes_used = {}, {}
    for seq_len in ctx.size(LENGTHS, (128, 256)):
        every = list(_sides(seq_len, ctx))
        samples, limit = limits.group(
            every, min(ctx.rounds, 5), 1 << 24, ctx.threads, attempts=1, budget=8
        )
        for side in every:
            row = limits.row(side, samples[side.name], limit)
            row["seq_len"] = seq_len
            maker = MAKERS[side.name]
            sizes = ([1, n, 8, 64] for n in (64, seq_len))
            once = memory.in_fresh_process(maker, *sizes, ctx.threads)
            row["peak_bytes"] = once["peak_bytes"]
            table.rows.append(row)
            times.setdefault(side.name, []).append((seq_len, row["median_ms"]))
            mib = row["peak_bytes"] / 2**20
            bytes_used.setdefault(side.name, []).append((seq_len, max(mib, 0.1)))
    table.plot("time", "Forward + gradient: time", "N, tokens", "ms", times)
    table.plot("memory", "Forward + gradient: memory", "N, tokens", "MiB", bytes_used)
    return table
