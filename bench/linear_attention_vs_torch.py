"""Linear attention, forward and gradient: tarn against plain torch operators.

Both sides compute causal linear attention with elu + 1 and an exact denominator
(Katharopoulos et al. 2020) in chunked form and the gradients of queries, keys
and values. Torch's side takes the fastest of several ways to write it. The
sides run in turn, repeat by repeat, so that a change of the machine's speed
meets all of them; figures are medians.

    PYTHONPATH=python python bench/linear_attention_vs_torch.py [--json]
"""

import argparse
import json
import statistics
import time

import tarn
import torch


def elu1(x):
    return torch.nn.functional.elu(x) + 1


def in_chunks(x, chunk):
    """[B, T, H, D] -> [B, H, T / chunk, chunk, D], dense."""
    batch, seq_len, heads, width = x.shape
    x = x.reshape(batch, seq_len // chunk, chunk, heads, width)
    return x.permute(0, 3, 1, 2, 4).contiguous()


def from_chunks(x):
    return x.flatten(2, 3).transpose(1, 2)  # -> [B, T, H, D]


def torch_batched(queries, keys, values, chunk, phi=elu1):
    """All chunks at once; the states before them by a cumulative sum."""
    q, k, v = (in_chunks(x, chunk) for x in (phi(queries), phi(keys), values))
    scores = (q @ k.transpose(-1, -2)).tril()
    S = (k.transpose(-1, -2) @ v).cumsum(2)
    S = torch.cat([torch.zeros_like(S[:, :, :1]), S[:, :, :-1]], 2)
    z = k.sum(3).cumsum(2)
    z = torch.cat([torch.zeros_like(z[:, :, :1]), z[:, :, :-1]], 2)
    numerator = scores @ v + q @ S
    denominator = scores.sum(-1, keepdim=True) + q @ z[..., None]
    return from_chunks(numerator / denominator)


def torch_ones_column(queries, keys, values, chunk, phi=elu1):
    """As torch_batched, with the denominator as one more column of the values."""
    values = torch.cat([values, torch.ones_like(values[..., :1])], -1)
    q, k, v = (in_chunks(x, chunk) for x in (phi(queries), phi(keys), values))
    S = (k.transpose(-1, -2) @ v).cumsum(2)
    S = torch.cat([torch.zeros_like(S[:, :, :1]), S[:, :, :-1]], 2)
    out = (q @ k.transpose(-1, -2)).tril() @ v + q @ S
    return from_chunks(out[..., :-1] / out[..., -1:])


def torch_loop(queries, keys, values, chunk, phi=elu1):
    """Chunk after chunk with a carried state: small working set."""
    q, k, v = (x.transpose(1, 2) for x in (phi(queries), phi(keys), values))
    S, z, outs = 0, 0, []
    for a, b, c in zip(*(x.split(chunk, 2) for x in (q, k, v))):
        scores = (a @ b.transpose(-1, -2)).tril()
        numerator = scores @ c
        denominator = scores.sum(-1, keepdim=True)
        if outs:
            numerator = numerator + a @ S
            denominator = denominator + a @ z
        outs.append(numerator / denominator)
        S = S + b.transpose(-1, -2) @ c
        z = z + b.sum(2)[..., None]
    return torch.cat(outs, 2).transpose(1, 2)


def run(form, tensors, grad_out):
    """Forward and gradient; seconds of each and the results."""
    for tensor in tensors:
        tensor.grad = None
    start = time.perf_counter()
    out = form(*tensors)
    middle = time.perf_counter()
    grads = torch.autograd.grad(out, tensors, grad_out)
    end = time.perf_counter()
    return middle - start, end - middle, (out.detach(), *grads)


def sgemm_gflops(size=1024, repeats=20):
    """Best of several products [size, size]: the machine's speed right now."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best / 1e9


def useful_flop(args):
    """Notes of the kernels: forward 4KV + 2C(K + V) / 2, gradient 10KV +
    2C(3K + 2V) / 2 a token and head, with C = 64, causal halves counted once."""
    K, V, C = args.d_key, args.d_value, 64
    forward = 4 * K * V + C * (K + V)
    gradient = 10 * K * V + C * (3 * K + 2 * V)
    tokens = args.batch * args.seq_len * args.heads
    return forward * tokens, gradient * tokens


def forms(args):
    table = {"tarn": tarn.ops.linear_attention}
    for chunk in args.chunks:
        for form in (torch_batched, torch_ones_column, torch_loop):
            name = f"{form.__name__}_{chunk}"
            table[name] = lambda q, k, v, f=form, c=chunk: f(q, k, v, c)
    return table


def check(results):
    """All forms give one answer; the benchmark compares equal work."""
    wanted = results["tarn"]
    for name, given in results.items():
        for a, b in zip(given, wanted):
            error = (a - b).square().mean().sqrt() / b.square().mean().sqrt()
            if not error < 1e-3:
                raise SystemExit(f"{name} differs from tarn: relative RMS {error}")


def measure(args):
    shape = (args.batch, args.seq_len, args.heads)
    tensors = [
        torch.randn(*shape, width).requires_grad_()
        for width in (args.d_key, args.d_key, args.d_value)
    ]
    grad_out = torch.randn(*shape, args.d_value)
    table = forms(args)
    check({name: run(form, tensors, grad_out)[2] for name, form in table.items()})
    times = {name: [] for name in table}
    for _ in range(args.repeats):
        for name, form in table.items():
            times[name].append(run(form, tensors, grad_out)[:2])
    return {
        name: {
            "forward_ms": 1e3 * statistics.median(f for f, _ in rows),
            "gradient_ms": 1e3 * statistics.median(g for _, g in rows),
            "total_ms": 1e3 * statistics.median(f + g for f, g in rows),
            "total_min_ms": 1e3 * min(f + g for f, g in rows),
        }
        for name, rows in times.items()
    }


def report(args):
    sgemm_before = sgemm_gflops()
    rows = measure(args)
    sgemm = max(sgemm_before, sgemm_gflops())
    best = min((n for n in rows if n != "tarn"), key=lambda n: rows[n]["total_ms"])
    forward, gradient = useful_flop(args)
    return {
        "batch": args.batch,
        "seq_len": args.seq_len,
        "heads": args.heads,
        "d_key": args.d_key,
        "d_value": args.d_value,
        "dtype": "float32",
        "threads": torch.get_num_threads(),
        "simd_target": tarn.simd_target(),
        "torch": torch.__version__,
        "repeats": args.repeats,
        "sgemm_gflops": sgemm,
        "tarn_gflops": (forward + gradient) / rows["tarn"]["total_ms"] / 1e6,
        "rows": rows,
        "best_torch": best,
        "ratio": rows[best]["total_ms"] / rows["tarn"]["total_ms"],
    }


def show(result):
    r = result
    print(
        f"linear attention, forward and gradient: batch {r['batch']}, {r['heads']} "
        f"heads, {r['seq_len']} tokens, {r['d_key']} x {r['d_value']} wide, float32"
    )
    print(
        f"SIMD target {r['simd_target']}, {r['threads']} threads, torch {r['torch']}, "
        f"sgemm {r['sgemm_gflops']:.0f} GFLOP/s, medians of {r['repeats']}"
    )
    print(f"{'form':24}{'forward ms':>12}{'gradient ms':>13}{'total ms':>10}{'min':>9}")
    for name, row in sorted(r["rows"].items(), key=lambda item: item[1]["total_ms"]):
        print(
            f"{name:24}{row['forward_ms']:12.1f}{row['gradient_ms']:13.1f}"
            f"{row['total_ms']:10.1f}{row['total_min_ms']:9.1f}"
        )
    print(
        f"tarn: {r['tarn_gflops']:.0f} useful GFLOP/s; "
        f"{r['ratio']:.2f} times as fast as {r['best_torch']}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--seq-len", type=int, default=16384)
    parser.add_argument("--d-key", type=int, default=64)
    parser.add_argument("--d-value", type=int, default=64)
    parser.add_argument("--chunks", type=int, nargs="+", default=[64])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, help="default: torch's own")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    args = parser.parse_args()
    for chunk in args.chunks:
        if chunk < 1 or args.seq_len % chunk != 0:
            parser.error(f"--seq-len {args.seq_len}: want a multiple of chunk {chunk}")
    if min(args.batch, args.heads, args.d_key, args.d_value, args.repeats) < 1:
        parser.error("want sizes and repeats of at least 1")
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    result = report(args)
    print(json.dumps(result)) if args.json else show(result)


if __name__ == "__main__":
    main()
