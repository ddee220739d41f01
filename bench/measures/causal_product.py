"""Forward and gradient against fast-transformers' bare causal product, which
has neither feature map nor denominator; tarn's side has both."""

import harness
import limits
import native
import peer_fast_transformers as peer
import results

GOALS = {
    "forward": results.at_least(6, 3.5),
    "gradient": results.at_least(8, 4),
}


def _tarn_sides(kind, shape, ctx):
    """tarn's kernel in its own layout and in the peer's."""
    name = f"linear_attention_{kind}"
    params = {
        "heads": shape["heads"],
        "seq_len": shape["seq_len"],
        "d_key": shape["width"],
    }
    cases = {
        "tarn": native.Case(name, ctx.threads, **params),
        "tarn, [B,H,T,K]": native.Case(name, ctx.threads, layout="heads_first", **params),
    }
    return cases, [harness.of_case(case, label) for label, case in cases.items()]


def _measure(kind, ctx):
    table = results.Table(
        kind,
        f"Causal {kind} against fast-transformers' bare causal product",
        "1 x 8 heads x 16,384 x 64, float32. tarn's time includes the feature map and the "
        "denominator; fast-transformers' time includes neither, and its results are written in "
        "place. It has two builds: as pip installs it (SSE2), which the goal refers to, and "
        "tuned for this instruction set.",
    )
    target = native.simd_target()
    shape = {"heads": 8, "seq_len": ctx.size(16384, 256), "width": 64}
    cases, sides = _tarn_sides(kind, shape, ctx)
    # The peer runs one task per head: two threads always serve 8 heads better than one.
    theirs = peer.causal_product_sides(kind, 1, **shape, threads=ctx.threads, target=target)
    sgemm = limits.sgemm_side(ctx.threads)
    every = [*sides, *theirs, sgemm]
    samples, limit = limits.group(every, ctx.rounds, cases["tarn"].bytes, ctx.threads)
    for side in every:
        table.rows.append(limits.row(side, samples[side.name], limit, samples["sgemm"]))
    for case in cases.values():
        case.close()
    tuned = harness.ratio(samples[peer.TUNED], samples["tarn"])
    table.goal(
        f"causal {kind}, 1 x 8 heads x 16,384 x 64, float32, {ctx.threads} threads, "
        "against fast-transformers' bare causal product",
        GOALS[kind],
        harness.ratio(samples[peer.INSTALLED], samples["tarn"]),
        valid=limit["valid"],
        remark=f"{tuned:.1f}x its tuned build",
    )
    table.plot(
        kind,
        f"Causal {kind}, 1 x 8 x 16,384 x 64: ms (shorter is better)",
        "ms",
        "",
        {s.name: samples[s.name].median * 1e3 for s in every if s is not sgemm},
        kind="bars",
    )
    return table


def forward(ctx):
    return _measure("forward", ctx)


def gradient(ctx):
    return _measure("gradient", ctx)
