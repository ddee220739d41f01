"""One head, one sequence: the gain from a second thread (value columns, sweeps)."""

import harness
import limits
import native
import results

GOALS = [
    ("forward", 128, 1.7),
    ("gradient", 128, 1.7),
    ("forward", 64, 1.4),
    ("gradient", 64, 1.6),
]


def measure(ctx):
    table = results.Table(
        "threads",
        "Batch 1 x 1 head: two threads against one",
        "16,384 tokens, float32, causal. The notes give sgemm's gain from two threads: the "
        "cores share memory and power.",
    )
    for kind, width, goal in GOALS:
        params = {"heads": 1, "seq_len": ctx.size(16384, 128), "d_key": width}
        cases = [native.Case(f"linear_attention_{kind}", n, **params) for n in (1, 2)]
        sides = [harness.of_case(c, f"{kind}, {c.threads}") for c in cases]
        sgemms = [limits.sgemm_side(n, name=f"sgemm, {n}") for n in (1, 2)]
        samples, limit = limits.group([*sides, *sgemms], ctx.rounds, cases[0].bytes, 2)
        for side in sides:
            table.rows.append(limits.row(side, samples[side.name], limit))
        gain = harness.ratio(samples["sgemm, 1"], samples["sgemm, 2"])
        table.goal(
            f"1 head, {width} wide, {kind}: two threads against one",
            results.at_least(goal),
            harness.ratio(samples[sides[0].name], samples[sides[1].name]),
            valid=limit["valid"],
            remark=f"sgemm {gain:.2f}x",
        )
        for case in cases:
            case.close()
    return table
