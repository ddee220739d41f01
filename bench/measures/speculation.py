"""Texts of models trained here, with draft tokens that are read ahead of the draws."""

import itertools
import os
import pathlib
import statistics
import tempfile

import native
import results
import speculation_models as models
from measures.published_models import program

SIDES = {"off": "no drafts", "ngram": "what the text repeats", "model": "a draft model"}
# Texts that repeat themselves must gain; others must lose next to nothing.
REPETITIVE = {("json", 0), ("code", 0)}


def _folder(ctx):
    kept = os.environ.get("TARN_BENCH_MODELS")
    if kept and not ctx.quick:
        return pathlib.Path(kept) / "speculation"
    return pathlib.Path(tempfile.mkdtemp())


def measure(ctx):
    table = results.Table(
        "speculation",
        "Speculative decoding",
        "A hybrid of Gated DeltaNet and softmax layers, trained here on records in JSON, C++ and "
        "plays, and a small one that drafts for it. 512 tokens after seven prompts of the same "
        "kind, at temperature 0 and 0.8; the same tokens with and without drafts, in turn; "
        "medians of the ratios text by text. A draft model reads the prompt within the time.",
    )
    model, draft = models.train(_folder(ctx), ctx.quick)
    cases = itertools.product(("f32", "int8"), models.KINDS, (0, 0.8))
    for weights, kind, temperature in cases:
        words = [model, draft, kind, temperature, weights, ctx.threads]
        found = program("speculated_text.py", words + ["--quick"] * ctx.quick, ctx)
        text = f"{kind} at {temperature}, {weights}"
        for side, one in found["sides"].items():
            median = statistics.median(one["seconds"])
            table.rows.append(
                {
                    "side": SIDES[side],
                    "model": text,
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
            must = 1.3 if (kind, temperature) in REPETITIVE else 0.97
            table.goal(
                f"{text}: {SIDES[side]}, against no drafts",
                results.at_least(must) if side == "ngram" else {},
                one["times"],
                remark=f"{one['accepted']} of {one['drafted']} draft tokens accepted",
            )
    return table
