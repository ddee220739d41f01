"""The sequence length from which linear attention is faster than torch's
softmax attention, forward and gradient, causal, operators as users call them."""

import attention_sides as sides
import harness
import limits
import results

LENGTHS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)
# Lengths at which linear attention must be no slower than torch's.
SHORT = (16, 32, 64)


def measure(ctx):
    table = results.Table(
        "crossover",
        "Crossover with torch's softmax attention",
        "scaled_dot_product_attention, causal, forward + gradient, 1 x 8 heads x 64, "
        "float32; operators including allocation, each side at its best thread count.",
    )
    points = []
    for seq_len in ctx.size(LENGTHS, (32, 64)):
        pair = []
        for make in (sides.tarn_side, sides.softmax_side):
            shape = (1, seq_len, 8, 64)
            pair.append(sides.fastest([make(*shape, n) for n in (1, ctx.threads)]))
        samples, limit = limits.group(pair, ctx.rounds, 1 << 20, ctx.threads)
        for side in pair:
            side.facts["seq_len"] = seq_len
            table.rows.append(limits.row(side, samples[side.name], limit))
        ratio = harness.ratio(samples[pair[1].name], samples["tarn"])
        points.append((seq_len, ratio))
        if seq_len in SHORT:
            table.goal(
                f"linear attention against torch's softmax attention, N {seq_len}",
                results.at_least(1.0),
                ratio,
                valid=limit["valid"],
            )
    crossing = harness.crossing(points)
    table.goal(
        "crossover against torch's softmax attention, 64 wide: below N",
        {"relation": "<=", "*": 256},
        crossing,
        unit="tokens",
        valid=all(row["valid"] for row in table.rows),
        remark=", ".join(f"N {n}: {r:.2f}x" for n, r in points),
    )
    table.plot(
        "crossover",
        "Softmax attention's time over linear attention's (above 1: linear wins)",
        "N, tokens",
        "ratio",
        {"torch softmax / tarn": points, "equal": [(n, 1.0) for n, _ in points]},
    )
    return table
