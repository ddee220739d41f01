"""The cost of a long past: softmax attention's cache against the read bandwidth,
and linear attention at token 1,000,000 against token 1,000."""

import statistics
import time

import harness
import limits
import models
import native
import results
import runtime_api as runtime
import runtime_sides as sides


def softmax(ctx):
    """The baseline: a softmax model with a cache, batch 1, 4,096 tokens."""
    table = results.Table(
        "softmax_cache",
        "Softmax model with key-value cache, 4,096 tokens of context",
        "6 layers, 1024 wide, 16 heads, float32, batch 1. Bytes of a step: weights "
        "and cache, each read once.",
    )
    folder, depth = models.softmax(ctx.quick), ctx.size(4096, 64)
    work = sides.Work(folder)
    with runtime.Model(folder, ctx.threads) as model:
        full, state = runtime.State(model), runtime.State(model)
        full.prefill(runtime.token_array(depth), logits=False)
        moved = float(work.weight_bytes() + depth * model.bytes_per_token)

        def prepare():  # eight steps grow the cache by 0.2 %
            if not depth <= state.position < depth + 8:
                state.copy_from(full)

        step = sides.clocked(
            "softmax, one step",
            prepare,
            lambda: state.step(7),
            model.threads,
            useful_flop=2.0 * (work.layer_weights + work.head_weights),
            bytes=moved,
        )
        read = harness.of_case(native.Case("limit_read", ctx.threads, bytes=int(moved)), "read")
        samples, limit = limits.group([step, read], ctx.rounds, 1 << 28, ctx.threads)
    for side in (step, read):
        table.rows.append(limits.row(side, samples[side.name], limit))
    pairs = [
        (step.bytes / a) / (read.bytes / b)
        for a, b in zip(samples[step.name].wall, samples[read.name].wall)
    ]
    table.goal(
        "softmax model, 4,096 tokens of context, batch 1: of the read bandwidth",
        results.at_least(0.90),
        statistics.median(pairs),
        unit="share",
        valid=limit["valid"],
        remark=f"{1 / samples[step.name].median:.1f} tokens/s",
    )
    return table


def _times(state, count):
    """Seconds of `count` single steps."""
    seconds = []
    for i in range(count):
        start = time.perf_counter_ns()
        state.step(i % 256)
        seconds.append((time.perf_counter_ns() - start) * 1e-9)
    return seconds


def _advance(state, tokens, block=4096):
    prompt = runtime.token_array(block)
    while tokens >= block:
        state.prefill(prompt, logits=False)
        tokens -= block
    if tokens:
        state.prefill(runtime.token_array(tokens), logits=False)


def million(ctx):
    """Token 1,000,000 against token 1,000, medians over 10,000 steps each."""
    table = results.Table(
        "million",
        "Token 1,000,000 against token 1,000",
        "4 layers, 128 wide, sinusoidal positions; alternating blocks of 250 steps, one "
        "thread, medians over 10,000 steps.",
    )
    near, far = ctx.size(1000, 10), ctx.size(1000000, 100)
    count, block = ctx.size(10000, 50), ctx.size(250, 25)
    with runtime.Model(models.long(ctx.quick), 1) as model:
        states = {}
        for depth in (near, far):
            states[depth] = runtime.State(model)
            _advance(states[depth], depth)
        before = {d: s.bytes for d, s in states.items()}
        seconds = {near: [], far: []}
        _times(states[near], block)
        while len(seconds[far]) < count:
            for depth, state in states.items():
                seconds[depth] += _times(state, block)
        after = {d: s.bytes for d, s in states.items()}
    for depth, times in seconds.items():
        table.rows.append(
            {
                "side": f"token {depth:,}",
                "threads": 1,
                "target": native.simd_target(),
                "median_ms": statistics.median(times) * 1e3,
                "min_ms": min(times) * 1e3,
                "repeats": len(times),
                "cpu_per_wall": 1.0,
                "contended": False,
                "valid": True,
                "state_bytes": after[depth],
            }
        )
    table.goal(
        "time of token 1,000,000 over token 1,000 (medians over 10,000)",
        results.at_most(1.02),
        statistics.median(seconds[far]) / statistics.median(seconds[near]),
    )
    sizes = {*before.values(), *after.values()}
    table.goal(
        "bytes of the state at token 1,010,000 over those at token 1,000",
        results.at_most(1.0),
        max(sizes) / min(sizes),
        remark=f"{max(sizes):,} bytes",
    )
    return table
