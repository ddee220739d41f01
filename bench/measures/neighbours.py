"""Measures the runtime while other processes run: with a core taken by another process,
and the cost of an idle model."""

import contextlib
import os
import signal
import subprocess
import time

import harness
import limits
import models
import native
import results
import runtime_api as runtime
import runtime_sides as sides


@contextlib.contextmanager
def busy_process():
    """A process that burns the first allowed core; yields (go, rest)."""
    core = min(os.sched_getaffinity(0))
    process = subprocess.Popen(
        ["sh", "-c", "while :; do :; done"],
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )

    def rest():
        process.send_signal(signal.SIGSTOP)

    def go():
        process.send_signal(signal.SIGCONT)
        time.sleep(0.02)

    rest()
    try:
        yield go, rest
    finally:
        process.kill()
        process.wait()


def beside(side, go, rest):
    """The same side with the other process awake."""

    def run(inner):
        go()
        try:
            return side.run(inner)
        finally:
            rest()

    return harness.Side(f"{side.name}, core taken", run, side.threads)


def core_taken(ctx):
    table = results.Table(
        "core_taken",
        "One core taken by another process",
        "150 million parameters. Speed of two threads while another process occupies a core, "
        "over the speed of one thread alone.",
    )
    folder = models.m150(ctx.quick)
    work, tokens = sides.Work(folder), ctx.size(128, 16)
    with (
        runtime.Model(folder, 1) as one,
        runtime.Model(folder, 2) as two,
        busy_process() as (go, rest),
    ):
        for kind in ("prefill", "decode"):
            pair = []
            for model in (one, two):
                name = f"{kind}, {model.threads}"
                if kind == "prefill":
                    pair.append(sides.prefill_side(name, model, work, tokens))
                else:
                    pair.append(_steps(sides.step_side(name, model, work), 8))
            every = [pair[0], pair[1], beside(pair[1], go, rest)]
            samples, limit = limits.group(every, ctx.rounds, 1 << 26, 1)
            for side in every:
                table.rows.append(limits.row(side, samples[side.name], limit))
            table.goal(
                f"{kind}: two threads with one core taken over one thread alone",
                results.at_least(0.9),
                harness.ratio(samples[pair[0].name], samples[every[2].name]),
                valid=limit["valid"],
                remark="two threads undisturbed "
                f"{harness.ratio(samples[pair[0].name], samples[pair[1].name]):.2f}x",
            )
    return table


def _steps(side, count):
    """`count` steps as one run: other processes come in time slices."""
    run = lambda inner: side.run(inner * count)
    return harness.Side(side.name, run, side.threads)


def idle(ctx):
    """Processor time of the process while an open, used model waits."""
    table = results.Table("idle", "Idle", "An open model with its threads, after use.")
    seconds = ctx.size(5.0, 0.5)
    with runtime.Model(models.paper("mnist", ctx.quick), ctx.threads) as model:
        state = runtime.State(model)
        for token in range(16):
            state.step(token)
        time.sleep(0.1)
        cpu, wall = time.process_time(), time.perf_counter()
        time.sleep(seconds)
        share = (time.process_time() - cpu) / (time.perf_counter() - wall)
    table.rows.append(
        {
            "side": "idle",
            "threads": ctx.threads,
            "target": native.simd_target(),
            "median_ms": seconds * 1e3,
            "min_ms": seconds * 1e3,
            "repeats": 1,
            "cpu_per_wall": share,
            "contended": False,
            "valid": True,
        }
    )
    # No more than a clock tick of the measuring thread itself may remain.
    table.goal("idle: processor time", results.at_most(0.001), share, unit="share")
    return table
