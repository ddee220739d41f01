"""Linear attention's useful FLOP/s as a share of torch's sgemm, both in turn.
Useful are 4KV + C(K+V) forward and 10KV + C(3K+2V) gradient per token and head at
C = 16, whatever is executed; map and denominator are timed, not counted."""

import harness
import limits
import native
import results

SHAPES = [
    # seq_len, width, goals forward and gradient (AVX-512, AVX2)
    (4096, 64, (0.70, 0.65), (0.65, 0.60)),
    (16384, 64, (0.70, 0.65), (0.65, 0.60)),
    (4096, 128, (0.70, 0.65), (0.65, 0.60)),
    (16384, 128, (0.70, 0.65), (0.65, 0.60)),
    (4096, 32, (0.50, 0.50), (0.50, 0.50)),
    (16384, 32, (0.50, 0.50), (0.50, 0.50)),
    (1024, 64, (0.50, 0.50), (0.50, 0.50)),
    (1024, 128, (0.50, 0.50), (0.50, 0.50)),
]


def _variants(seq_len, width, ctx):
    """Cases of one shape: those that the goals name, and their variants."""
    params = {"seq_len": seq_len, "d_key": width}
    for kind in ("forward", "gradient"):
        name = f"linear_attention_{kind}"
        yield f"{kind} f32", native.Case(name, ctx.threads, **params)
        yield f"{kind} bf16", native.Case(name, ctx.threads, dtype="bf16", **params)
        yield (
            f"{kind} f32 not causal",
            native.Case(name, ctx.threads, causal=0, **params),
        )


def measure(ctx):
    table = results.Table(
        "share",
        "Share of torch's sgemm",
        "8 heads, batch 1. Share: useful FLOP/s of the kernel over those of "
        "torch's 1024^3 float32 product with the same threads, pair by pair.",
    )
    shapes = SHAPES[:1] if ctx.quick else SHAPES
    for seq_len, width, forward, gradient in shapes:
        seq_len = ctx.size(seq_len, 128)
        named = dict(_variants(seq_len, width, ctx))
        sides = [harness.of_case(case, name) for name, case in named.items()]
        sgemm = limits.sgemm_side(ctx.threads)
        footprint = named["gradient f32"].bytes
        samples, limit = limits.group([*sides, sgemm], ctx.rounds, footprint, ctx.threads)
        for side in sides:
            table.rows.append(limits.row(side, samples[side.name], limit, samples["sgemm"]))
        for case in named.values():
            case.close()
        by_name = {row["side"]: row for row in table.rows[-len(sides) :]}
        for kind, goal in (("forward", forward), ("gradient", gradient)):
            table.goal(
                f"share of sgemm, causal {kind}, {seq_len:,} x {width}, float32",
                results.at_least(*goal),
                by_name[f"{kind} f32"]["share_of_sgemm"],
                unit="share",
                valid=limit["valid"],
            )
    return table
