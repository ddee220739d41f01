"""Images per second against the number generated together, at the paper's MNIST shape,
compared with fast-transformers at batch 64 and the bound of sgemm."""

import harness
import limits
import models
import peer_generation as peers
import results
import runtime_api as runtime
import runtime_sides as sides

BATCHES = (1, 4, 16, 64, 256)
PEER_BATCH = 64
STEPS, STEPS_RUN = 784, 24  # every step costs the same, so only a few are run


def _tarn_side(model, count, work, steps):
    batch, turn = runtime.Batch(model, count), [0]

    def some():
        for _ in range(steps):
            turn[0] += 1
            batch.step(turn[0])

    return sides.clocked(
        f"tarn, batch {count}",
        batch.reset,
        some,
        model.threads,
        useful_flop=steps * count * work.step_flop(),
        executed_flop=steps * count * work.step_flop(),
        bytes=steps * (work.weight_bytes() + 2.0 * count * model.state_bytes),
        facts={"batch": count},
    )


def _peer_side(count, layers, ctx, steps):
    import torch

    model = peers.fast_transformers_model(layers, STEPS)
    threads = peers.best_threads(model, count, ctx.threads)

    def run(inner):
        torch.set_num_threads(threads)
        times = [peers.generate(model, count, steps) for _ in range(inner)]
        return tuple(map(sum, zip(*times)))

    name = f"fast-transformers, batch {count}"
    return harness.Side(name, run, threads, facts={"batch": count})


def measure(ctx):
    table = results.Table(
        "batch",
        "Images per second, batch 1 to 256",
        "8 layers, D 256, 784 steps, float32; steps are timed and scaled to images.",
    )
    folder = models.paper("mnist", ctx.quick)
    work, steps = sides.Work(folder), ctx.size(STEPS_RUN, 4)
    batches = ctx.size(BATCHES, (1, 4))
    with runtime.Model(folder, ctx.threads) as model:
        ours = {n: _tarn_side(model, n, work, steps) for n in batches}
        theirs = _peer_side(
            batches[-1] if ctx.quick else PEER_BATCH, work.config["n_layers"], ctx, steps
        )
        sgemm = limits.sgemm_side(ctx.threads)
        every = [*ours.values(), theirs, sgemm]
        samples, limit = limits.group(every, min(ctx.rounds, 9), 1 << 26, ctx.threads)
    rates = {}
    for side in every[:-1]:
        row = limits.row(side, samples[side.name], limit, samples["sgemm"])
        rate = side.facts["batch"] * steps / STEPS / samples[side.name].median
        table.rows.append(row | {"images_per_s": rate})
        rates.setdefault(side.name.split(",")[0], []).append((side.facts["batch"], rate))
    _goals(table, work, samples, ours, theirs, rates["tarn"], limit)
    one_image = STEPS * work.step_flop()
    bound = 2.0 * limits.SGEMM_SIZE**3 / samples["sgemm"].median / one_image
    rates["bound: sgemm"] = [(n, bound) for n in batches]
    table.plot("batch", "Images per second against batch", "batch", "images/s", rates)
    return table


def _goals(table, work, samples, ours, theirs, rates, limit):
    speeds = [rate for _, rate in rates]
    growth = min(b / a for a, b in zip(speeds, speeds[1:]))
    table.goal(
        "images per second from each batch size to the next: least growth",
        results.at_least(1.0),
        growth,
        valid=limit["valid"],
        remark=", ".join(f"{n}: {rate:.2f}/s" for n, rate in rates),
    )
    largest = table.rows[len(ours) - 1]
    table.goal(
        f"batch {largest['batch']}: of torch's sgemm rate",
        results.at_least(0.75),
        largest["share_of_sgemm"],
        unit="share",
        valid=limit["valid"],
    )
    count = theirs.facts["batch"]
    sgemm = samples["sgemm"].median / (2.0 * limits.SGEMM_SIZE**3)
    bound = samples[theirs.name].median / (ours[count].useful_flop * sgemm)
    table.goal(
        f"batch {count}, against fast-transformers (either build)",
        results.at_least(2.0, 1.5),
        harness.ratio(samples[theirs.name], samples[f"tarn, batch {count}"]),
        valid=limit["valid"],
        remark=f"at 100 % of sgemm it would be {bound:.2f}x",
    )
