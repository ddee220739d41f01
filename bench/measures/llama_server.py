"""tarn's server and llama.cpp's on the same GGUF file: what a conversation reads, the time to a
first token, many clients, and what a session costs.

The file is TARN_BENCH_SERVED, which both servers must load; llama-server is TARN_LLAMA_SERVER.
"""

import os
import pathlib
import random
import statistics
import tempfile
import time

import native
import results
import runtime_api as runtime
import servers
from tarn.runtime import Model, Session

FILE = "TARN_BENCH_SERVED"
TURNS, MESSAGE, ANSWER = 20, 40, 24  # of a conversation, tokens
PREFIX, MORE = 2000, 10
CLIENTS = {1: 1.0, 8: 1.5, 64: 2.0}  # and the least over llama-server
OF_THE_BATCH = 0.9  # tokens/s through the server, of the same texts in one process
TEXT = 128
REPEATS = 5


def _ids(seed, count, vocab):
    rng = random.Random(seed)
    return [rng.randrange(300, min(vocab, 20_000)) for _ in range(count)]


def _row(table, ctx, side, part, times, **more):
    table.rows.append(
        {
            "side": side,
            "part": part,
            "threads": ctx.threads,
            "target": native.simd_target(),
            "median_ms": statistics.median(times) * 1e3,
            "min_ms": min(times) * 1e3,
            "repeats": len(times),
            "contended": False,
            "valid": True,
            **more,
        }
    )


def _conversation(server, turns, vocab, seed):
    """Tokens that a conversation had, and those that the server computed of its prompts."""
    text, computed, new = [], 0, 0
    for turn in range(turns):
        message = _ids(1000 * seed + turn, MESSAGE, vocab)
        text += message
        new += MESSAGE
        answer, timings = server.complete(text, ANSWER)
        computed += timings["prompt_n"]
        text += answer
    return len(text), computed, new


def _turns(table, ctx, both, vocab):
    for name, server in both.items():
        start = time.perf_counter()
        tokens, computed, new = _conversation(server, ctx.size(TURNS, 3), vocab, 1)
        seconds = time.perf_counter() - start
        _row(table, ctx, name, "conversation", [seconds], seq_len=tokens, computed=computed)
        # The last token of an answer is drawn but not read until the next turn.
        most = new + ctx.size(TURNS, 3)
        bounds = results.at_most(most) if name == "tarn" else {}
        table.goal(
            f"{name}: prompt tokens computed in a conversation of {ctx.size(TURNS, 3)} turns",
            bounds,
            computed,
            unit="tokens",
            remark=f"{new} new ones, {tokens} in all",
        )


def _first_token(table, ctx, both, vocab):
    prefix = _ids(2, ctx.size(PREFIX, 40), vocab)
    times = {name: {"repeated": [], "longer": []} for name in both}
    for server in both.values():
        server.stream(prefix, 2)
    for repeat in range(ctx.size(7, 2)):
        for name, server in both.items():
            times[name]["repeated"].append(server.stream(prefix, 2)[0])
            longer = prefix + _ids(1000 * 3 + repeat, MORE, vocab)
            times[name]["longer"].append(server.stream(longer, 2)[0])
    for name, parts in times.items():
        for part, seconds in parts.items():
            _row(table, ctx, name, f"first token, {part}", seconds, seq_len=len(prefix))
    for part, bound in (("repeated", 5), ("longer", None)):
        mine, other = (statistics.median(times[name][part]) * 1e3 for name in both)
        table.goal(
            f"milliseconds to the first token of a {part} prompt of {len(prefix)} tokens",
            results.at_most(bound) if bound else {},
            mine,
            unit="ms",
            remark=f"llama-server {other:.1f} ms" + (f", {MORE} more tokens" if not bound else ""),
        )


def _in_process(model, threads, count, tokens):
    """Tokens a second of as many sequences in one step, without a server."""
    batch = runtime.Batch(model, count)
    batch.step(7)
    start = time.perf_counter()
    for _ in range(tokens):
        batch.step(7)
    seconds = time.perf_counter() - start
    batch.close()
    return count * tokens / seconds


def _clients(table, ctx, both, vocab, file):
    tokens = ctx.size(TEXT, 4)
    with runtime.Model(file, ctx.threads, "auto") as model:
        for count, bound in CLIENTS.items():
            count = ctx.size(count, min(count, 2))
            seconds = {name: [] for name in both}
            alone = []
            for repeat in range(ctx.size(REPEATS, 1)):
                prompts = [_ids(1000 * repeat + i, 16, vocab) for i in range(count)]
                for name, server in both.items():
                    seconds[name].append(server.together(prompts, tokens))
                alone.append(_in_process(model, ctx.threads, count, ctx.size(64, 2)))
            for name, found in seconds.items():
                rate = count * tokens / statistics.median(found)
                _row(table, ctx, name, "clients", found, batch=count, tokens_per_s=rate)
            mine, other = seconds.values()
            table.goal(
                f"{count} clients: tokens/s against llama-server",
                results.at_least(bound),
                statistics.median(b / a for a, b in zip(mine, other)),
            )
            table.goal(
                f"{count} clients: tokens/s, of the same batch without a server",
                results.at_least(OF_THE_BATCH),
                statistics.median(count * tokens / a / b for a, b in zip(mine, alone)),
                unit="share",
                remark="prompts of 16 tokens included",
            )


def _overhead(table, ctx, server, vocab, file):
    """What a token takes in a stream besides the call of the model, by the server's own count of
    those calls: the client runs on the same cores and makes them longer than in a process alone.
    """
    tokens = ctx.size(256, 8)
    gaps, calls, steps = [], [], []
    with runtime.Model(file, ctx.threads, "auto") as model:
        state = runtime.State(model)
        for repeat in range(ctx.size(REPEATS, 1)):
            prompt = _ids(1000 * 5 + repeat, 16, vocab)
            begin = server.model_seconds()
            server.stream(prompt, 1, cache=False)
            read = server.model_seconds()
            times = server.stream(prompt, tokens, cache=False)
            end = server.model_seconds()
            # From the first event to the last, which comes with the last token. There are
            # fewer events than tokens where a character has several of them.
            gaps.append((times[-1] - times[0]) / (tokens - 1))
            calls.append(((end - read) - (read - begin)) / (tokens - 1))
            state.reset()
            start = time.perf_counter()
            for _ in range(tokens):
                state.step(7)
            steps.append((time.perf_counter() - start) / tokens)
        state.close()
    _row(table, ctx, "tarn", "streamed token", gaps)
    _row(table, ctx, "tarn", "its step", calls)
    _row(table, ctx, "tarn", "step, no server", steps)
    alone = statistics.median(a - b for a, b in zip(gaps, steps)) * 1e6
    table.goal(
        "microseconds of a streamed token over its step",
        results.at_most(50),
        statistics.median(a - b for a, b in zip(gaps, calls)) * 1e6,
        unit="us",
        remark=f"{alone:,.0f} us over a step in a process without server and client",
    )


def _timed(call, repeats):
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return found


def _sessions(table, ctx, vocab, file):
    """What the calls of a session take, in microseconds, after 512 tokens."""
    model = Model(file, threads=ctx.threads)
    session = Session(model, every_token=8)
    session.append(_ids(6, ctx.size(512, 20), vocab))
    repeats = ctx.size(30, 2)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "one.session")

        def go_back():
            session.rollback(session.position - 4)

        near = []
        for _ in range(repeats):
            session.append(_ids(7, 4, vocab))
            near += _timed(go_back, 1)
        calls = {
            "fork": (_timed(session.fork, repeats), 500),
            "mark": (_timed(lambda: session.mark("here"), repeats), 50),
            "near rollback": (near, 100),
        }
        plain = Session(model)
        plain.append(session.tokens)
        calls["park"] = (_timed(lambda: plain.save(path), repeats), 3000)
        calls["restore"] = (_timed(lambda: Session.load(model, path), repeats), 2000)
    for name, (times, bound) in calls.items():
        _row(table, ctx, "tarn", name, times)
        table.goal(
            f"{name} of a session, microseconds",
            results.at_most(bound),
            statistics.median(times) * 1e6,
            unit="us",
            remark=f"{session.state_bytes / 1e6:.1f} MB of state",
        )


def measure(ctx):
    file = os.environ[FILE]
    table = results.Table(
        "llama_server",
        "tarn serve and llama-server",
        f"{pathlib.Path(file).stem}, the same GGUF file and threads, greedy texts, in turn.",
    )
    with tempfile.TemporaryDirectory() as folder:
        for slots, parts in ((4, ("turns", "first")), (64, ("clients",))):
            both = {}
            try:
                log = os.path.join(folder, "log")
                both["tarn"] = servers.tarn(file, ctx.threads, f"{log}-tarn")
                both["llama-server"] = servers.llama(
                    file, ctx.threads, slots, 4096 if slots == 4 else 512, f"{log}-llama"
                )
                vocab = Model(file, threads=1).vocab_size
                if "turns" in parts:
                    _turns(table, ctx, both, vocab)
                    _first_token(table, ctx, both, vocab)
                    _overhead(table, ctx, both["tarn"], vocab, file)
                else:
                    _clients(table, ctx, both, vocab, file)
            finally:
                for one in both.values():
                    one.close()
    _sessions(table, ctx, vocab, file)
    return table
