"""Generation at the shapes of the paper's images (Katharopoulos et al. 2020,
4.2), batch 1: tarn's runtime against fast-transformers' recurrent encoder and
an LSTM with as many weights, both on torch at their best thread count."""

import harness
import limits
import models
import native
import peer_generation as peers
import results
import runtime_api as runtime
import runtime_sides as sides

IMAGES = [("mnist", 8, 784), ("cifar", 16, 3072)]
# Steps of an image that are run, on every side; the rest cost the same (see
# "million") and are scaled.
STEPS_RUN = {784: 784, 3072: 384}


def _tarn_side(name, model, steps, work, weights):
    state = runtime.State(model)
    tokens = [(i * 7919) % 256 for i in range(STEPS_RUN.get(steps, steps))]

    def image():
        for token in tokens:
            state.step(token)

    side = sides.clocked(
        name,
        state.reset,
        image,
        model.threads,
        useful_flop=steps * work.step_flop(),
        bytes=steps * (work.weight_bytes(weights) + 2.0 * model.state_bytes),
        facts={"weights": weights, "steps": steps},
    )
    run, scale = side.run, steps / len(tokens)
    side.run = lambda inner: tuple(seconds * scale for seconds in run(inner))
    return side


def _peer_side(name, model, steps, threads):
    import torch

    def run(inner):
        torch.set_num_threads(threads)
        times = [peers.generate(model, 1, steps, STEPS_RUN.get(steps)) for _ in range(inner)]
        return tuple(map(sum, zip(*times)))

    return harness.Side(name, run, threads, facts={"steps": steps})


def _best_tarn(folder, weights, threads, steps, work):
    """The model at the thread count that serves it best."""
    best = None
    for count in range(1, threads + 1):
        model = runtime.Model(folder, count, weights)
        side = _tarn_side(f"tarn {weights}", model, steps, work, weights)
        side.run(1)
        seconds = min(side.run(1)[0] for _ in range(2))
        if best is None or seconds < best[0]:
            best = seconds, side
    return best[1]


def measure(ctx):
    table = results.Table(
        "generation",
        "Generation at the paper's shapes, batch 1",
        "D 256, 8 heads, F 1024; seconds per image, no sampling. Every side uses its best "
        "thread count; the LSTM has as many weights as the transformer.",
    )
    for name, layers, steps in IMAGES:
        steps, layers = ctx.size(steps, 16), ctx.size(layers, 1)
        folder = models.paper(name, ctx.quick)
        work = sides.Work(folder)
        every = [_best_tarn(folder, kind, ctx.threads, steps, work) for kind in ("f32", "bf16")]
        for label, make in (
            ("fast-transformers", peers.fast_transformers_model),
            ("torch LSTM", peers.lstm_model),
        ):
            model = make(layers, max(steps, 64))
            threads = peers.best_threads(model, 1, ctx.threads)
            every.append(_peer_side(label, model, steps, threads))
        _table_of(table, name, layers, steps, every, work, ctx)
    return table


def _table_of(table, name, layers, steps, every, work, ctx):
    repeats = min(ctx.rounds, 7)
    samples, limit = limits.group(every, repeats, 1 << 24, ctx.threads, attempts=2, budget=25)
    for side in every:
        row = limits.row(side, samples[side.name], limit)
        table.rows.append(row | {"image": name, "images_per_s": 1e3 / row["median_ms"]})
    for kind, goal in (("f32", 3), ("bf16", 5)):
        weight_bytes = work.weight_bytes(kind)
        with native.Case("limit_read", ctx.threads, bytes=weight_bytes) as case:
            rate = limits.best_rate(harness.of_case(case), 20)
        reading = steps * weight_bytes / rate
        table.goal(
            f"generation, {layers} layers, {steps:,} steps, batch 1, {kind} weights, "
            "against fast-transformers (either build)",
            results.at_least(goal),
            harness.ratio(samples["fast-transformers"], samples[f"tarn {kind}"]),
            valid=limit["valid"],
            remark=f"{samples[f'tarn {kind}'].median:.3f} s per image; reading the "
            f"weights at {rate / 1e9:.0f} GB/s takes {reading:.3f} s; LSTM "
            f"{harness.ratio(samples['torch LSTM'], samples[f'tarn {kind}']):.1f}x",
        )
    table.plot(
        f"generation_{name}",
        f"Generation, {layers} layers, {steps:,} steps, batch 1: seconds per image",
        "s",
        "",
        {s.name: samples[s.name].median for s in every},
        kind="bars",
    )
