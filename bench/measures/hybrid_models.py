"""transformers' own Qwen3.5 and Mamba-2 classes with and without tarn's kernels."""

import json
import os
import pathlib
import statistics
import subprocess
import sys

import native
import results

MODELS = {"qwen3_5": "Qwen3.5", "mamba2": "Mamba-2"}
PARTS = ("training step", "prefill", "decode")


def run(program, words, ctx):
    """One process of a program of bench/, whose figures are medians."""
    build = pathlib.Path(os.environ.get("TARN_BUILD", native.ROOT / "build"))
    words = [
        sys.executable,
        str(native.ROOT / "bench" / program),
        *words,
        str(ctx.threads),
        *(["--quick"] if ctx.quick else []),
    ]
    environment = os.environ | {
        "PYTHONPATH": str(native.ROOT / "python"),
        "TARN_LIBRARY": str(build / "libtarn_pytorch.so"),
        "OMP_NUM_THREADS": str(ctx.threads),
    }
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def measure(ctx):
    table = results.Table(
        "hybrid_models",
        "transformers' own models with tarn's kernels",
        "About 100 million random weights, float32, 1 x 512 tokens; transformers' torch forms "
        "and tarn.accelerate_transformers() in alternating processes, medians of three.",
    )
    for name, title in MODELS.items():
        runs = {"transformers": [], "tarn": []}
        for _ in range(ctx.size(3, 1)):
            for side, found in runs.items():
                found.append(run("transformers_step.py", [name, side], ctx))
        for part in PARTS:
            seconds = {side: [one[part] for one in found] for side, found in runs.items()}
            for side, times in seconds.items():
                table.rows.append(
                    {
                        "side": side,
                        "model": f"{title}, {part}",
                        "seq_len": runs[side][0]["tokens"],
                        "parameters": runs[side][0]["parameters"],
                        "threads": ctx.threads,
                        "target": native.simd_target(),
                        "median_ms": statistics.median(times) * 1e3,
                        "min_ms": min(times) * 1e3,
                        "repeats": len(times),
                        "cpu_per_wall": statistics.median(
                            one["cpu_per_wall"] for one in runs[side]
                        ),
                        "contended": False,
                        "valid": True,
                    }
                )
            pairs = zip(seconds["transformers"], seconds["tarn"])
            table.goal(
                f"{title}, {part}, against transformers' torch forms",
                results.at_least(2.0),
                statistics.median(a / b for a, b in pairs),
                remark=f"{statistics.median(seconds['tarn']) * 1e3:,.1f} ms",
            )
    return table
