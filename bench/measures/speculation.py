"""Texts of models trained here, with guesses that are read ahead of the draws."""

import os
import pathlib
import statistics
import tempfile

import native
import results
import speculation_models as models
from measures.published_models import program

SIDES = {"off": "no guesses", "ngram": "what the text repeats", "model": "a draft model"}
# Texts that repeat themselves must gain; others must lose next to nothing.
BOUNDS = {
    ("json", "ngram"): 1.3,
    ("code", "ngram"): 1.3,
    ("plays", "ngram"): 0.97,
}


def _folder(ctx):
    kept = os.environ.get("TARN_BENCH_MODELS")
    if kept and not ctx.quick:
        return pathlib.Path(kept) / "speculation"
    return pathlib.Path(tempfile.mkdtemp())


def measure(ctx):
    table = results.Table(
        "speculation",
        "Guesses read ahead",
        "A hybrid of Gated DeltaNet and softmax layers, trained here on records in JSON, C++ and "
        "plays, and a small one that guesses for it. 256 tokens at temperature 0.8 after a prompt "
        "of the same kind; the same tokens with and without guesses, in turn, seven texts; medians "
        "of the ratios text by text.",
    )
    model, draft = models.train(_folder(ctx), ctx.quick)
    for weights in ("f32", "int8"):
        for kind in models.KINDS:
            words = [model, draft, kind, weights, ctx.threads, *(["--quick"] if ctx.quick else [])]
            found = program("speculated_text.py", words, ctx)
            for side, one in found["sides"].items():
                median = statistics.median(one["seconds"])
                table.rows.append(
                    {
                        "side": SIDES[side],
                        "model": f"{kind}, {weights}",
                        "parameters": found["parameters"],
                        "seq_len": one["tokens"],
                        "threads": ctx.threads,
                        "target": native.simd_target(),
                        "tokens_per_s": (one["tokens"] - 1) / median,
                        "median_ms": median * 1e3,
                        "min_ms": min(one["seconds"]) * 1e3,
                        "repeats": len(one["seconds"]),
                        "cpu_per_wall": one["cpu_per_wall"],
                        "contended": False,
                        "valid": True,
                    }
                )
                if side == "off":
                    continue
                bound = BOUNDS.get((kind, side))
                table.goal(
                    f"{kind}, {weights}: {SIDES[side]}, against no guesses",
                    results.at_least(bound) if bound else {},
                    one["times"],
                    remark=f"{one['accepted']} of {one['drafted']} draft tokens accepted",
                )
    return table
