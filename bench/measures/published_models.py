"""Models in the shapes of published ones, drawn weights: prefill against torch's products
of the same sizes, decode against a read of as many bytes, both against transformers, and
what opening a directory takes."""

import json
import os
import statistics
import subprocess
import sys

import harness
import limits
import native
import published_shapes as shapes
import results
import runtime_api as runtime
import runtime_sides as sides

# Goals by model: prefill and decode against transformers, the same with tarn's kernels.
AGAINST = {
    "mamba2-130m": {"prefill": 1.15, "decode": 3.0},
    "qwen3.5-0.8b": {"prefill": 1.15, "decode": 1.3},
}
ACCELERATED = {
    "mamba2-130m": {"prefill": 1.1, "decode": 2.0},
    "qwen3.5-0.8b": {"prefill": 1.1, "decode": None},
}
OPENED = "mamba2-780m"  # 3.1 GB


def program(name, words, ctx):
    """The last line of a program's output, as JSON."""
    build = os.environ.get("TARN_BUILD", str(native.ROOT / "build"))
    environment = os.environ | {
        "PYTHONPATH": str(native.ROOT / "python"),
        "TARN_BUILD": build,
        "OMP_NUM_THREADS": str(ctx.threads),
    }
    environment.setdefault("TARN_LIBRARY", str(native.ROOT / build / "libtarn_pytorch.so"))
    done = subprocess.run(
        [sys.executable, str(native.ROOT / "bench" / name), *map(str, words)],
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def _products(path, tokens, threads):
    """A side: the model's products of a prompt by torch, whose weights are one matrix a
    size, and one row of logits."""
    import torch

    layers, head = shapes.matrices(path)
    sizes = sorted({tuple(shape) for shape in layers + head})
    weights = {size: torch.randn(size) for size in sizes}
    rows = {
        (count, width): torch.randn(count, width)
        for count in (1, tokens)
        for width in {size[1] for size in sizes}
    }
    most = tokens * max(outputs for outputs, _ in map(tuple, layers))
    out = torch.empty(max(most, *(shape[0] for shape in head)))

    def run():
        for count, group in ((tokens, layers), (1, head)):
            for outputs, inputs in group:
                result = out[: count * outputs].view(count, outputs)
                torch.mm(rows[count, inputs], weights[outputs, inputs].T, out=result)

    flop = 2.0 * sum(o * i for o, i in layers) * tokens + 2.0 * sum(o * i for o, i in head)
    return harness.of_call("torch's products", run, threads, useful_flop=flop, executed_flop=flop)


def _prefill(table, ctx, name, path, model):
    tokens = ctx.size(2048, 32)
    products = _products(path, tokens, ctx.threads)
    state, prompt = runtime.State(model), runtime.token_array(tokens)
    fill = sides.clocked(
        "prefill",
        state.reset,
        lambda: state.prefill(prompt),
        ctx.threads,
        useful_flop=products.useful_flop,
        executed_flop=products.useful_flop,
        facts={"model": name, "seq_len": tokens},
    )
    products.facts = fill.facts
    every = [fill, products]
    samples, limit = limits.group(every, min(ctx.rounds, 7), 1 << 28, ctx.threads)
    for side in every:
        table.rows.append(limits.row(side, samples[side.name], limit))
    share = harness.ratio(samples["torch's products"], samples["prefill"])
    table.goal(
        f"{name}: prefill of {tokens} tokens, of the rate of sgemm on its products",
        results.at_least(0.85),
        share,
        unit="share",
        valid=limit["valid"],
        remark=f"{tokens / samples['prefill'].median:,.0f} tokens/s",
    )
    state.close()


def _decode(table, ctx, name, path, model):
    layers, head = shapes.matrices(path)
    weights = 4.0 * sum(outputs * inputs for outputs, inputs in layers + head)
    deep = ctx.size(4096, 32)
    for depth in (0, deep):
        state, begun = runtime.State(model), runtime.State(model)
        if depth:
            begun.prefill(runtime.token_array(depth), logits=False)
        moved = weights + 2.0 * model.state_bytes + depth * model.bytes_per_token

        def prepare(state=state, begun=begun, depth=depth):
            if state.position < depth or state.position >= depth + 64:
                state.copy_from(begun)

        step = sides.clocked(
            "decode",
            prepare,
            lambda state=state: state.step(state.position % 256),
            ctx.threads,
            bytes=moved,
            facts={"model": name, "depth": depth},
        )
        read = harness.of_case(
            native.Case("limit_read", ctx.threads, bytes=int(moved)), "read", model=name
        )
        samples, limit = limits.group([step, read], ctx.rounds, 1 << 28, ctx.threads)
        for side in (step, read):
            table.rows.append(limits.row(side, samples[side.name], limit))
        table.goal(
            f"{name}: decode at depth {depth}, bytes/s of those of a read of that size",
            results.at_least(0.92),
            harness.bandwidth_share(step, samples, read),
            unit="share",
            valid=limit["valid"],
            remark=f"{1 / samples['decode'].median:.1f} tokens/s",
        )
        state.close()
        begun.close()


def _against(table, ctx, name, path, accelerated):
    """tarn's runtime and transformers in turn, each in its own process, since a process
    has tarn's kernels or has not."""
    runs = {"tarn": [], "transformers": [], "accelerated": []}
    order = ["transformers", "accelerated"] if accelerated else ["transformers"]
    for _ in range(ctx.size(5, 1)):
        for side in ["tarn", *order]:
            words = [path, side, ctx.threads, *(["--quick"] if ctx.quick else [])]
            runs[side].append(program("published_step.py", words, ctx))
    bounds = {"transformers": AGAINST.get(name, {}), "accelerated": ACCELERATED.get(name, {})}
    for part in ("prefill", "decode"):
        for side, found in runs.items():
            if not found:
                continue
            seconds = [one[part] for one in found]
            table.rows.append(
                {
                    "side": f"{part}, {side}",
                    "model": name,
                    "seq_len": found[0]["tokens"],
                    "threads": ctx.threads,
                    "target": native.simd_target(),
                    "median_ms": statistics.median(seconds) * 1e3,
                    "min_ms": min(seconds) * 1e3,
                    "repeats": len(seconds),
                    "cpu_per_wall": statistics.median(one["cpu_per_wall"] for one in found),
                    "contended": False,
                    "valid": True,
                }
            )
        for side in order:
            bound = bounds[side].get(part)
            if side == "transformers":
                text, one, other = "runtime against transformers", "transformers", "tarn"
            else:
                text = "transformers with tarn's kernels against without"
                one, other = "transformers", "accelerated"
            pairs = zip(runs[one], runs[other])
            table.goal(
                f"{name}: {part}, {text}",
                results.at_least(bound) if bound else {},
                statistics.median(a[part] / b[part] for a, b in pairs),
            )


def _open(table, ctx, name, path):
    """A directory to its first token, in fresh processes with the file in the cache."""
    runs = [program("published_open.py", [path, ctx.threads], ctx) for _ in range(ctx.size(6, 2))]
    runs = runs[1:]  # the first one fills the cache
    seconds = [one["seconds"] for one in runs]
    table.rows.append(
        {
            "side": "open, 10 tokens",
            "model": name,
            "threads": ctx.threads,
            "target": native.simd_target(),
            "median_ms": statistics.median(seconds) * 1e3,
            "min_ms": min(seconds) * 1e3,
            "repeats": len(seconds),
            "cpu_per_wall": statistics.median(one["cpu_per_wall"] for one in runs),
            "contended": False,
            "valid": True,
        }
    )
    table.goal(
        f"{name}: seconds from a directory to the first token of 10, warm cache",
        results.at_most(1.5),
        statistics.median(seconds),
        unit="s",
    )
    table.goal(
        f"{name}: resident memory over the weights",
        results.at_most(1.05),
        statistics.median(one["resident_bytes"] / one["weight_bytes"] for one in runs),
        remark=f"peak {max(one['peak_bytes'] / one['weight_bytes'] for one in runs):.3f} x",
    )


def measure(ctx, name):
    load = os.getloadavg()[0]
    table = results.Table(
        f"published_models:{name}",
        f"{name}, a published shape",
        "Drawn weights, float32, batch 1. Prefill: 2,048 tokens, against the model's products "
        "by torch. Decode: weights read once, states read and written, keys and values read. "
        f"Load of the machine at the start, over one minute: {load:.1f}.",
    )
    path = shapes.folder(name, ctx.quick)
    with runtime.Model(path, ctx.threads) as model:
        _prefill(table, ctx, name, path, model)
        _decode(table, ctx, name, path, model)
    # Where nothing is to be shown but that the programs run, one model's are enough. The
    # largest shape is there for what opening takes; its class is that of the smallest.
    quick = ctx.quick and name != shapes.NAMES[0]
    if shapes.has_class(name) and name != OPENED and not quick:
        _against(table, ctx, name, path, name in ACCELERATED)
    if name == (shapes.NAMES[0] if ctx.quick else OPENED):
        _open(table, ctx, name, path)
    return table
