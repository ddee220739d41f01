"""Each recurrent text class of transformers with and without tarn's kernels."""

import statistics

import native
import results
from measures.hybrid_models import PARTS, run


def measure(ctx):
    table = results.Table(
        "recurrent_classes",
        "transformers' recurrent classes with tarn's kernels",
        "A few layers 512 to 1,024 wide with random weights, float32, 1 x 512 tokens; "
        "transformers' torch forms and tarn.accelerate_transformers() in alternating processes, "
        "medians of three.",
    )
    runs = {"transformers": [], "tarn": []}
    for _ in range(ctx.size(3, 1)):
        for side, found in runs.items():
            found.append(run("transformers_classes.py", [side], ctx))
    for name in runs["tarn"][0]:
        for part in PARTS:
            seconds = {side: [one[name][part] for one in found] for side, found in runs.items()}
            for side, times in seconds.items():
                first, median = runs[side][0][name], statistics.median(times)
                tokens = 1 if part == "decode" else first["tokens"]
                table.rows.append(
                    {
                        "side": side,
                        "model": f"{name}, {part}",
                        "seq_len": first["tokens"],
                        "parameters": first["parameters"],
                        "threads": ctx.threads,
                        "target": native.simd_target(),
                        "tokens_per_s": tokens / median,
                        "median_ms": median * 1e3,
                        "min_ms": min(times) * 1e3,
                        "repeats": len(times),
                        "cpu_per_wall": statistics.median(
                            one[name]["cpu_per_wall"] for one in runs[side]
                        ),
                        "contended": False,
                        "valid": True,
                    }
                )
            ratios = [a / b for a, b in zip(seconds["transformers"], seconds["tarn"])]
            table.goal(
                f"{name}, {part}, against transformers' torch forms",
                results.at_least(1.0),
                statistics.median(ratios),
                remark=f"{statistics.median(seconds['tarn']) * 1e3:,.1f} ms",
            )
    return table
