"""Models of the recurrent families in the runtime, 150 million parameters: decode against
the bandwidth at which the same threads read a buffer of that size, prefill against sgemm;
and the step kernel at a server's batch against the bandwidth of a copy."""

import family_models
import harness
import limits
import native
import results
import runtime_api as runtime
import runtime_sides as sides

TOKENS = 512
# Batch, heads and width of the step: 64 states of 2 MB.
STEP = {"batch": 64, "heads": 32, "d_key": 128}
STEPS = [
    ("decay_attention_step", {"gate": "token"}),
    ("decay_attention_step", {"gate": "channel"}),
    ("delta_attention_step", {"gate": "token"}),
    ("delta_attention_step", {"gate": "channel"}),
]


def steps(ctx):
    table = results.Table(
        "family_steps",
        "Step kernels of the families",
        "64 sequences, 32 heads of 128 x 128, float32; bytes: the states read and written, "
        "and the token's rows. The copy moves as many bytes.",
    )
    size = STEP if not ctx.quick else {"batch": 2, "heads": 2, "d_key": 16}
    for name, params in STEPS:
        with native.Case(name, ctx.threads, **size, **params) as case:
            copy = native.Case("limit_copy", ctx.threads, bytes=int(case.bytes))
            every = [harness.of_case(case, gate=params["gate"]), harness.of_case(copy, "copy")]
            samples, limit = limits.group(every, min(ctx.rounds, 9), case.bytes, ctx.threads)
            for side in every:
                table.rows.append(limits.row(side, samples[side.name], limit))
            table.goal(
                f"{name}, a decay per {params['gate']}: bandwidth over that of a copy (a reference, no bound)",
                results.at_least(0.80),
                harness.bandwidth_share(every[0], samples, every[1]),
                unit="share",
                valid=limit["valid"],
                remark=f"{1e3 * samples['tarn'].median:.2f} ms",
            )
            copy.close()
    return table


def models(ctx):
    table = results.Table(
        "family_models",
        "Runtime: families at 150 million parameters",
        "12 layers, 1024 wide, 8 heads of 128, batch 1, float32. Bytes of a step: weights "
        "once, states read and written.",
    )
    for kind in family_models.SHAPES:
        path = family_models.folder(kind, ctx.quick)
        work = family_models.Work(path, kind)
        with runtime.Model(path, ctx.threads) as model:
            _decode(table, ctx, kind, work, model)
            _prefill(table, ctx, kind, work, model)
    return table


def _decode(table, ctx, kind, work, model):
    step = sides.step_side("step", model, work)
    read = harness.of_case(native.Case("limit_read", ctx.threads, bytes=int(step.bytes)), "read")
    samples, limit = limits.group([step, read], ctx.rounds, 1 << 28, ctx.threads)
    for side in (step, read):
        side.facts |= {"model": kind}
        table.rows.append(limits.row(side, samples[side.name], limit))
    table.goal(
        f"{kind}, decode, batch 1: of the read bandwidth",
        results.at_least(0.88),
        harness.bandwidth_share(step, samples, read),
        unit="share",
        valid=limit["valid"],
        remark=f"{1 / samples['step'].median:.1f} tokens/s",
    )


def _prefill(table, ctx, kind, work, model):
    tokens = ctx.size(TOKENS, 32)
    fill = sides.prefill_side("prefill", model, work, tokens)
    fill.facts |= {"model": kind}
    every = [fill, limits.sgemm_side(ctx.threads)]
    samples, limit = limits.group(every, min(ctx.rounds, 7), 1 << 28, ctx.threads)
    table.rows.append(limits.row(fill, samples["prefill"], limit, samples["sgemm"]))
    table.goal(
        f"{kind}, prefill, {tokens} tokens: of torch's sgemm rate",
        results.at_least(0.55),
        table.rows[-1]["share_of_sgemm"],
        unit="share",
        valid=limit["valid"],
        remark=f"{tokens / samples['prefill'].median:.0f} tokens/s",
    )
