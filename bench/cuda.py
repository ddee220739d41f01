"""The operators' kernels on a CUDA device against what the device can do and against other
implementations: `make cuda-bench`, or python bench/cuda.py [--only NAMES] [--quick]
[--kernels] [--json FILE].

A call's work is captured in a CUDA graph, so that times are the device's, and is replayed at
least 20 times after a warm-up with events around each; "eager" marks what cannot be captured.
The floor of a row is the time that a copy of the same bytes would take: what it has to read
and to write once, at the bandwidth measured here. Clocks are left as they are.
"""

import argparse
import datetime
import json
import pathlib
import statistics
import sys

import torch
import torch_forms
import torch_recurrences

REPEATS = 20
SLOW_MS, SLOW_REPEATS = 100, 5  # of calls that are only compared with
BATCH, TOKENS, HEADS, WIDTH = 1, 8192, 32, 128
STEP_ROWS = 64


def samples(call):
    """(milliseconds of each repeat, how they were taken). A gradient runs in the stream of
    the pass before it, so that all work of this process is in one."""
    stream = torch.cuda.current_stream()
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    run, how = call, "eager"
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            call()
        run, how = graph.replay, "graph"
    except RuntimeError:  # it reads a number on the host
        torch.cuda.synchronize()
    probe = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    run()
    probe[0].record()
    run()
    probe[1].record()
    torch.cuda.synchronize()
    slow = probe[0].elapsed_time(probe[1]) > SLOW_MS
    repeats = SLOW_REPEATS if slow else REPEATS
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    for begin, end in events:
        begin.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) for begin, end in events], how


def limits():
    """Bytes a second, read and written, of a copy of 1 GiB, the faster of the copy engine's and
    a kernel's; and operations a second of a product."""
    source = torch.empty(1 << 28, device="cuda").normal_()
    target = torch.empty_like(source)
    # A captured copy_ is the copy engine's, which some kernels are faster than.
    copies = [
        statistics.median(samples(call)[0])
        for call in (lambda: target.copy_(source), lambda: torch.neg(source, out=target))
    ]
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product, _ = samples(lambda: a @ b)
    empty, _ = samples(lambda: torch.cuda._sleep(1))
    return {
        "copy_tb_s": 2 * size(source) / min(copies) * 1e-9,
        "bf16_tflop_s": 2 * 8192**3 / statistics.median(product) * 1e-9,
        "empty_launch_us": statistics.median(empty) * 1e3,
    }


def leaves(*shapes, dtype=torch.bfloat16):
    return [torch.randn(*shape, device="cuda", dtype=dtype).requires_grad_() for shape in shapes]


def size(*tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


class Bench:
    def __init__(self, only, quick, list_kernels):
        self.only, self.quick, self.list_kernels = only, quick, list_kernels
        with torch.cuda.stream(torch.cuda.Stream()):
            self.limits = limits()
        self.rows = []
        self.tokens = 1024 if quick else TOKENS

    def print_limits(self):
        found = self.limits
        print(
            f"copy {found['copy_tb_s']:.2f} TB/s, bfloat16 product {found['bf16_tflop_s']:.0f} "
            f"TFLOP/s, empty launch {found['empty_launch_us']:.1f} us"
        )

    def row(self, operator, side, call, moved):
        if self.only and not any(word in f"{operator} {side}" for word in self.only):
            return
        try:
            times, how = samples(call)
        except (RuntimeError, ValueError, TypeError) as error:  # too large, or not for this call
            print(f"{operator:26} {side:22} failed: {str(error).splitlines()[0][:120]}")
            return
        median, floor = statistics.median(times) * 1e3, moved / self.limits["copy_tb_s"] * 1e-6
        row = {
            "operator": operator,
            "side": side,
            "median_us": round(median, 1),
            "least_us": round(min(times) * 1e3, 1),
            "bytes": moved,
            "floor_us": round(floor, 1),
            "ratio": round(median / floor, 2),
            "taken": how,
        }
        self.rows.append(row)
        print(
            f"{operator:26} {side:22} {median:10.1f} us  least {row['least_us']:10.1f}  "
            f"floor {floor:8.1f}  ratio {row['ratio']:7.2f}  {how}"
        )
        if self.list_kernels and side == "tarn":
            self.print_kernels(call)
        sys.stdout.flush()

    def print_kernels(self, call):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
            for _ in range(5):
                call()
            torch.cuda.synchronize()
        for event in sorted(found.key_averages(), key=lambda e: -e.self_device_time_total):
            if event.self_device_time_total > 0:
                each = event.self_device_time_total / 5
                print(f"    {each:9.1f} us  {event.count // 5} x {event.key[:110]}")

    def both(self, operator, side, call, inputs, outputs_like):
        """Rows of a call and of its gradient. outputs_like: tensors as large as the results."""
        forward = size(*inputs) + size(*outputs_like)
        with torch.no_grad():
            self.row(operator, side, call, forward)
        name = f"{operator} gradient"
        if self.only and not any(word in f"{name} {side}" for word in self.only):
            return
        try:
            out = call()
            grad = torch.randn_like(out)
            leaf = [x for x in inputs if x.requires_grad]
            torch.autograd.grad(out, leaf, grad, retain_graph=True)
        except (RuntimeError, ValueError, TypeError) as error:
            print(f"{name:26} {side:22} failed: {str(error).splitlines()[0][:120]}")
            return
        moved = 2 * size(*leaf) + size(grad)
        self.row(
            name,
            side,
            lambda: torch.autograd.grad(out, leaf, grad, retain_graph=True),
            moved,
        )


def composed(call):
    """The same operator by torch's operators."""

    def run():
        before = torch.ops.tarn.force_composed(True)
        try:
            return call()
        finally:
            torch.ops.tarn.force_composed(before)

    return run


def attention(bench, ops):
    shape = BATCH, bench.tokens, HEADS, WIDTH
    q, k, v = leaves(shape, shape, shape)
    call = lambda: ops.linear_attention(q, k, v)  # noqa: E731
    bench.both("linear", "tarn", call, [q, k, v], [v])
    bench.both("linear", "tarn composed", composed(call), [q, k, v], [v])
    bench.both("linear", "torch chunked", lambda: torch_forms.batched(q, k, v), [q, k, v], [v])
    heads_first = [x.detach().transpose(1, 2).contiguous().requires_grad_() for x in (q, k, v)]
    flash = lambda: torch.nn.functional.scaled_dot_product_attention(  # noqa: E731
        *heads_first, is_causal=True
    )
    bench.both("softmax", "torch flash", flash, heads_first, [v])


def gated(bench, ops):
    shape = BATCH, bench.tokens, HEADS, WIDTH
    q, k, v = leaves(shape, shape, shape)
    with torch.no_grad():
        k.copy_(torch.nn.functional.normalize(k.float(), dim=-1))
    token = (-0.1 * torch.rand(*shape[:3], device="cuda")).requires_grad_()
    channel = (-0.1 * torch.rand(*shape, device="cuda")).requires_grad_()
    beta = torch.rand(*shape[:3], device="cuda").requires_grad_()
    calls = {
        "decay": (lambda g: ops.decay_attention(q, k, v, gates=g), token, None),
        "gla": (lambda g: ops.decay_attention(q, k, v, gates=g), channel, None),
        "gdn": (lambda g: ops.delta_attention(q, k, v, beta, gates=g), token, beta),
        "kda": (lambda g: ops.delta_attention(q, k, v, beta, gates=g), channel, beta),
    }
    for name, (call, gates, more) in calls.items():
        inputs = [x for x in (q, k, v, gates, more) if x is not None]
        bench.both(name, "tarn", lambda call=call, gates=gates: call(gates), inputs, [v])
    run = calls["gdn"][0]
    bench.both("gdn", "tarn composed", composed(lambda: run(token)), [q, k, v, token, beta], [v])
    chunked = [x.detach().float().requires_grad_() for x in (q, k, v, token, beta)]

    def torch_delta():
        with torch.device("cuda"):
            return torch_recurrences.delta(*chunked)

    bench.both("gdn", "torch chunked float32", torch_delta, chunked, [chunked[2]])


def flash_linear_attention(bench):
    try:
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule
        from fla.ops.kda import chunk_kda
        from fla.ops.simple_gla import chunk_simple_gla
    except ImportError as error:
        print(f"flash-linear-attention: {error}")
        return
    shape = BATCH, bench.tokens, HEADS, WIDTH
    q, k, v = leaves(shape, shape, shape)
    with torch.no_grad():
        k.copy_(torch.nn.functional.normalize(k.float(), dim=-1))
    token = (-0.1 * torch.rand(*shape[:3], device="cuda")).requires_grad_()
    channel = (-0.1 * torch.rand(*shape, device="cuda")).requires_grad_()
    beta = torch.rand(*shape[:3], device="cuda").requires_grad_()
    inputs = [q, k, v, token, beta]
    bench.both("decay", "fla", lambda: chunk_simple_gla(q, k, v, token)[0], inputs[:4], [v])
    bench.both("gdn", "fla", lambda: chunk_gated_delta_rule(q, k, v, token, beta)[0], inputs, [v])
    inputs[3] = channel
    bench.both("kda", "fla", lambda: chunk_kda(q, k, v, channel, beta)[0], inputs, [v])


def steps(bench, ops):
    """One token of many rows: bound by the states, which are read and written once."""
    rows = STEP_ROWS
    q, k, v = (
        torch.randn(rows, 1, HEADS, WIDTH, device="cuda", dtype=torch.bfloat16) for _ in range(3)
    )
    token = -torch.rand(rows, 1, HEADS, device="cuda")
    channel = -torch.rand(rows, 1, HEADS, WIDTH, device="cuda")
    beta = torch.rand(rows, 1, HEADS, device="cuda")
    S = torch.randn(rows, HEADS, WIDTH, WIDTH, device="cuda")
    z = torch.rand(rows, HEADS, WIDTH, device="cuda") + 1
    keep = {"initial_state": S, "return_state": True}
    calls = {
        "linear": lambda: ops.linear_attention_step(q[:, 0], k[:, 0], v[:, 0], (S, z)),
        "decay": lambda: ops.decay_attention(q, k, v, gates=token, **keep),
        "gla": lambda: ops.decay_attention(q, k, v, gates=channel, **keep),
        "gdn": lambda: ops.delta_attention(q, k, v, beta, gates=token, **keep),
        "kda": lambda: ops.delta_attention(q, k, v, beta, gates=channel, **keep),
    }
    moved = 2 * size(S) + size(q, k, v, v)
    for name, call in calls.items():
        with torch.no_grad():
            bench.row(f"{name} step, {rows} rows", "tarn", call, moved)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", help="words of rows to run, such as gdn")
    parser.add_argument("--quick", action="store_true", help="1,024 tokens")
    parser.add_argument("--kernels", action="store_true", help="list each kernel's time")
    parser.add_argument("--json", type=pathlib.Path, help="write the results there")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("bench/cuda.py: want a CUDA device, torch sees none")
    from tarn import ops

    device = torch.cuda.get_device_properties(0)
    facts = {
        "device": device.name,
        "multiprocessors": device.multi_processor_count,
        "memory_gib": round(device.total_memory / 2**30, 1),
        "date": datetime.date.today().isoformat(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }
    print(", ".join(f"{key} {value}" for key, value in facts.items()))
    torch.manual_seed(0)
    bench = Bench(arguments.only, arguments.quick, arguments.kernels)
    bench.print_limits()
    print(f"B {BATCH}, T {bench.tokens}, {HEADS} heads, {WIDTH} wide, bfloat16")
    with torch.cuda.stream(torch.cuda.Stream()):
        steps(bench, ops)  # first: a capture that fails leaves torch's generator unusable
        attention(bench, ops)
        gated(bench, ops)
        flash_linear_attention(bench)
        after = limits()
    print("afterwards: ", end="")
    bench.limits, before = after, bench.limits
    bench.print_limits()
    if arguments.json is not None:
        result = {**facts, "limits": before, "limits_after": after, "rows": bench.rows}
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
