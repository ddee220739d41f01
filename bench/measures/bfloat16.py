"""bfloat16 in and out against float32: half the bytes, the same arithmetic."""

import harness
import limits
import native
import results

NEVER_SLOWER = {"*": 1.0}
# kind, parameters, goal
SHAPES = [
    ("forward", {"seq_len": 16384, "d_key": 64}, NEVER_SLOWER),
    ("gradient", {"seq_len": 16384, "d_key": 64}, NEVER_SLOWER),
    ("forward", {"seq_len": 16384, "d_key": 128}, NEVER_SLOWER),
    ("gradient", {"seq_len": 16384, "d_key": 128}, NEVER_SLOWER),
    ("forward", {"seq_len": 65536, "d_key": 32, "sets": 4}, {"AVX3": 1.3, "*": 1.0}),
    ("gradient", {"seq_len": 65536, "d_key": 32, "sets": 2}, {"AVX3": 1.3, "*": 1.0}),
    ("step", {"batch": 4096, "heads": 16, "d_key": 64}, {"AVX3": 1.3, "*": 1.0}),
]


def measure(ctx):
    table = results.Table(
        "bfloat16",
        "bfloat16 in and out against float32",
        "8 heads (16 in the step). The step has 4,096 sequences with float32 states of 1 GiB "
        "in total, read and written once per token.",
    )
    for kind, params, goal in SHAPES:
        if ctx.quick:
            params = params | {k: 16 for k in ("seq_len", "batch") if k in params}
        name = f"linear_attention_{kind}"
        cases = [native.Case(name, ctx.threads, dtype=dtype, **params) for dtype in ("f32", "bf16")]
        sides = [harness.of_case(c, f"{kind} {c.params['dtype']}") for c in cases]
        samples, limit = limits.group(sides, min(ctx.rounds, 9), cases[0].bytes, ctx.threads)
        for side in sides:
            table.rows.append(limits.row(side, samples[side.name], limit))
        shape = ", ".join(f"{k} {v:,}" for k, v in params.items() if k != "sets")
        table.goal(
            f"bfloat16 against float32, {kind}, {shape}",
            goal,
            harness.ratio(*(samples[side.name] for side in sides)),
            valid=limit["valid"],
        )
        for case in cases:
            case.close()
    return table
