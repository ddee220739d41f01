"""tarn and llama.cpp in turn, on the same GGUF file and the same threads: prompts, steps at two
depths, many sequences at once, opening, memory, and with a core taken. Between the turns of
steps the machine reads as many bytes as a step does.

A table a model. Where tarn refuses the file, llama.cpp runs alone, and the note has the error.
"""

import contextlib
import os
import pathlib
import statistics

import llama_files
import harness
import limits
import llama_process as llama
import published_shapes as shapes
import results
import runtime_api as runtime
import runtime_sides as sides

import native
from measures import neighbours, published_models

# A column -> the type of the file, and how tarn holds it: groups as they are stored.
COLUMNS = {"f32": "f32", "bf16": "bf16", "int8": "q8_0", "int4": "q4_0"}
HELD = {"f32": "f32", "bf16": "bf16", "int8": "auto", "int4": "auto"}
CHOSEN = "TARN_BENCH_COLUMNS"  # some of them, comma-separated; unset: all
NATIVE, PLAIN = "llama.cpp", "llama.cpp, no AMX"
# The least that is wanted: bytes a second of steps, of those of a read; tarn over llama.cpp.
SHARE = {"f32": 0.92, "bf16": 0.92, "int8": 0.88, "int4": 0.82}
DECODE = {"bf16": 1.0, "int8": 1.3, "int4": 1.5}
PREFILL = {"f32": 1.1, "bf16": 0.95, "int8": 2.0, "int4": 1.8}
BATCH = 1.5
INT8_OVER_F32 = {"avx512_vnni": 2.0, "amx_int8": 4.0}
TRANSFORMERS = {"prefill": 2.0, "decode": 3.0}  # int8 over the better of its two types
OPEN_SECONDS, RESIDENT = 0.6, 1.05  # of a GB; over the weights
TAKEN = "mamba2-130m"  # measured with a core taken as well
REPEATS = 5  # of what takes seconds
STEPS = 8  # in one turn


def _flags():
    return set(pathlib.Path("/proc/cpuinfo").read_text().split())


def _columns(name):
    chosen = os.environ.get(CHOSEN)
    found = chosen.split(",") if chosen else list(COLUMNS)
    return [one for one in found if not (one == "f32" and shapes.is_bfloat16(name))]


class _Entry:
    """One column of a model: its file, tarn's model of it or None, the processes of
    llama.cpp that have it open."""

    def __init__(self, table, ctx, name, column, peers):
        self.table, self.ctx, self.name, self.column = table, ctx, name, column
        self.file = llama_files.file(name, COLUMNS[column], ctx.quick)
        self.weight_bytes = llama_files.tensor_bytes(self.file)
        self.step_bytes = llama_files.step_bytes(self.file)
        self.weights, self.model, self.refusal = HELD[column], None, ""
        self.peers = peers
        for peer in peers.values():
            peer.ask("open", file=str(self.file), threads=ctx.threads)
        self._open()

    def _open(self):
        try:
            self.model = runtime.Model(self.file, self.ctx.threads, self.weights)
        except ValueError as error:
            self.refusal = str(error)

    def told(self):
        """For the note: what tarn ran."""
        return f"{self.column}: " + (self.refusal or f"--weights {self.weights}")

    def close(self):
        if self.model is not None:
            self.model.close()
        for peer in self.peers.values():
            peer.ask("close")

    def facts(self, part, **more):
        return {"model": self.name, "weights": self.column, "part": part, **more}

    def peer_side(self, label, work, **keywords):
        """A side of llama.cpp: work(peer) gives its answer."""
        peer = self.peers[label]

        def run(inner):
            found = [work(peer) for _ in range(inner)]
            return sum(one["wall"] for one in found), sum(one["cpu"] for one in found)

        return harness.Side(label, run, self.ctx.threads, **keywords)

    def measured(self, part, every, tokens, read=None, repeats=REPEATS, **more):
        """Rows of sides in turn. tokens: of one run of a side. read: the side that reads as
        many bytes."""
        turns = every[:1] + ([read] if read else []) + every[1:]
        ctx = self.ctx
        samples, limit = limits.group(turns, min(ctx.rounds, repeats), 1 << 28, ctx.threads)
        for side in turns:
            line = limits.row(side, samples[side.name], limit) | self.facts(part, **more)
            if side is not read:
                line["tokens_per_s"] = tokens / samples[side.name].median
                if read:
                    line["share_of_read"] = harness.bandwidth_share(side, samples, read)
            if "tarn" in samples and side.name in self.peers:
                line["tarn_over"] = harness.ratio(samples[side.name], samples["tarn"])
            self.table.rows.append(line)


def _prefill(entry):
    ctx = entry.ctx
    for tokens in ctx.size((512, 2048), (16, 32)):
        every = []
        if entry.model is not None:
            state, prompt = runtime.State(entry.model), runtime.token_array(tokens)
            fill = lambda: state.prefill(prompt)
            every.append(sides.clocked("tarn", state.reset, fill, ctx.threads))
        for label in entry.peers:
            work = lambda peer: peer.ask("fill", tokens=tokens)
            every.append(entry.peer_side(label, work))
        entry.measured("prefill", every, tokens, seq_len=tokens)
        if entry.model is not None:
            state.close()


def _tarn_steps(entry, depth, count, room):
    """tarn's side of decode, and the bytes that one of its steps moves."""
    state, begun = runtime.State(entry.model), runtime.State(entry.model)
    if depth:
        begun.prefill(runtime.token_array(depth), logits=False)

    def prepare():
        if not depth <= state.position <= depth + room - count:
            state.copy_from(begun)

    def work():
        for _ in range(count):
            state.step(7)

    moved = entry.step_bytes + 2.0 * entry.model.state_bytes
    moved += depth * entry.model.bytes_per_token
    side = sides.clocked("tarn", prepare, work, entry.ctx.threads, bytes=count * moved)
    return side, (state, begun)


def _decode(entry):
    ctx = entry.ctx
    count, room = ctx.size(STEPS, 2), 96
    fixed = next(iter(entry.peers.values())).ask("state_bytes", depth=0)["bytes"]
    for depth in (0, ctx.size(4096, 32)):
        every, held = [], ()
        if entry.model is not None:
            side, held = _tarn_steps(entry, depth, count, room)
            every.append(side)
        for label, peer in entry.peers.items():
            # States are read and written, keys and values read.
            grown = peer.ask("state_bytes", depth=depth)["bytes"]
            moved = entry.step_bytes + fixed + grown
            work = lambda peer: peer.ask("steps", depth=depth, count=count)
            every.append(entry.peer_side(label, work, bytes=count * moved))
        with native.Case("limit_read", ctx.threads, bytes=int(every[0].bytes / count)) as case:
            reads = lambda inner: case.run(inner * count)
            read = harness.Side("read", reads, ctx.threads, bytes=case.bytes * count)
            entry.measured("decode", every, count, read, ctx.rounds, depth=depth)
        for state in held:
            state.close()


def _batches(entry):
    ctx = entry.ctx
    for count in ctx.size((8, 64), (2,)):
        every = []
        if entry.model is not None:
            batch = runtime.Batch(entry.model, count)

            def prepare():
                if batch.states[0].position >= 192:
                    batch.reset()

            step = lambda: batch.step(7)
            every.append(sides.clocked("tarn", prepare, step, ctx.threads))
        for peer in entry.peers.values():
            peer.ask("start", tokens=256, sequences=count)
        for label in entry.peers:
            work = lambda peer: peer.ask("batch", count=1)
            every.append(entry.peer_side(label, work))
        entry.measured("batch", every, count, batch=count)
        if entry.model is not None:
            batch.close()


def _opened_row(entry, label, runs):
    seconds = [one["seconds"] for one in runs]
    entry.table.rows.append(
        {
            "side": label,
            "threads": entry.ctx.threads,
            "target": native.simd_target(),
            "median_ms": statistics.median(seconds) * 1e3,
            "min_ms": min(seconds) * 1e3,
            "repeats": len(seconds),
            "cpu_per_wall": statistics.median(one["cpu_per_wall"] for one in runs),
            "contended": False,
            "valid": True,
            "resident_over_weights": statistics.median(
                one["resident_bytes"] / entry.weight_bytes for one in runs
            ),
            "seconds_per_gb": statistics.median(seconds) / (entry.weight_bytes / 1e9),
            "weight_bytes": entry.weight_bytes,
            **entry.facts("open"),
        }
    )


def _opening(entry):
    """Fresh processes that take 10 tokens, the file in the page cache."""
    ctx = entry.ctx
    runs = {"tarn": [], NATIVE: []} if entry.model is not None else {NATIVE: []}
    for _ in range(ctx.size(REPEATS, 1) + 1):
        for label, found in runs.items():
            if label == "tarn":
                words = [entry.file, ctx.threads, entry.weights]
                found.append(published_models.program("published_open.py", words, ctx))
            else:
                found.append(llama.opened(entry.file, ctx.threads))
    for label, found in runs.items():
        _opened_row(entry, label, found[1:])  # the first fills the cache


def _taken(entry):
    """Steps with one thread and two, and with two while another process has a core."""
    ctx, count = entry.ctx, entry.ctx.size(STEPS, 2)
    for peer in entry.peers.values():
        peer.ask("start", tokens=1024)
    with contextlib.ExitStack() as stack:
        go, rest = stack.enter_context(neighbours.busy_process())

        def peer_steps(threads):
            def work(peer):
                peer.ask("threads", count=threads)
                return peer.ask("steps", depth=0, count=count)

            side = entry.peer_side(NATIVE, work)
            side.name, side.threads = f"{NATIVE}, {threads}", threads
            return side

        def tarn_steps(threads):
            model = stack.enter_context(runtime.Model(entry.file, threads, entry.weights))
            state = runtime.State(model)
            stack.callback(state.close)
            work = lambda: [state.step(7) for _ in range(count)]
            return sides.clocked(f"tarn, {threads}", state.reset, work, threads)

        every = []
        for make in [tarn_steps] * (entry.model is not None) + [peer_steps]:
            one, two = make(1), make(2)
            every += [one, two, neighbours.beside(two, go, rest)]
        samples, limit = limits.group(every, ctx.rounds, 1 << 26, 1)
        for one, two, beside in zip(every[::3], every[1::3], every[2::3]):
            for side in (one, two, beside):
                line = limits.row(side, samples[side.name], limit) | entry.facts("core taken")
                line["over_one_thread"] = harness.ratio(samples[one.name], samples[side.name])
                entry.table.rows.append(line)
    for peer in entry.peers.values():
        peer.ask("threads", count=ctx.threads)


def _against_transformers(entry):
    """int8 against the better of transformers' two types, each program in its own process."""
    ctx = entry.ctx
    folder = shapes.folder(entry.name, ctx.quick)
    types = ["bf16"] if shapes.is_bfloat16(entry.name) else ["f32", "bf16"]
    calls = {"tarn": [entry.file, "tarn", ctx.threads, entry.weights]}
    calls |= {f"transformers, {one}": [folder, "transformers", ctx.threads, one] for one in types}
    runs = {label: [] for label in calls}
    for _ in range(ctx.size(REPEATS, 1)):
        for label, words in calls.items():
            quick = ["--quick"] if ctx.quick else []
            found = published_models.program("published_step.py", words + quick, ctx)
            runs[label].append(found)
    for part, bound in TRANSFORMERS.items():
        medians = {
            label: statistics.median(one[part] for one in found) for label, found in runs.items()
        }
        best = min((seconds, label) for label, seconds in medians.items() if label != "tarn")[1]
        pairs = zip(runs[best], runs["tarn"])
        entry.table.goal(
            f"{entry.name}: {part}, {entry.column} against {best}",
            results.at_least(bound),
            statistics.median(a[part] / b[part] for a, b in pairs),
        )


# --- Goals ----------------------------------------------------------------------


def _goals(table, name, flags):
    """From the rows of a model."""
    amx = "amx_int8" in flags
    rows = {}
    for row in table.rows:
        at = row.get("seq_len", row.get("depth", row.get("batch")))
        rows.setdefault((row["part"], row["weights"], at), {})[row["side"]] = row
    for (part, column, at), found in rows.items():
        ours, theirs = found.get("tarn"), found.get(NATIVE)
        if ours is None:
            continue
        what, kind = f"{name}, {column}", COLUMNS[column].upper()
        if part == "decode":
            table.goal(
                f"{what}: decode at depth {at}, bytes/s of those of a read of that size",
                results.at_least(SHARE[column]),
                ours["share_of_read"],
                unit="share",
                valid=ours["valid"],
                remark=f"llama.cpp {100 * theirs['share_of_read']:.0f} %",
            )
        if part == "open":
            table.goal(f"{what}: opening a GB, warm", results.at_most(OPEN_SECONDS),
                       ours["seconds_per_gb"], unit="s",
                       remark=f"llama.cpp {theirs['seconds_per_gb']:.2f} s")  # fmt: skip
            table.goal(f"{what}: resident memory over the weights", results.at_most(RESIDENT),
                       ours["resident_over_weights"],
                       remark=f"llama.cpp {theirs['resident_over_weights']:.2f}x")  # fmt: skip
        if "tarn_over" in theirs:
            bound = {"decode": DECODE, "prefill": PREFILL}.get(part, {}).get(column)
            bound = BATCH if part == "batch" else bound
            bound = 1.0 if amx and part == "prefill" else bound
            text = {"decode": f"decode at depth {at}", "prefill": f"prefill of {at} tokens"}
            table.goal(
                f"{what}: {text.get(part, f'{at} sequences at once')}, against llama.cpp {kind}",
                results.at_least(bound) if bound else {},
                theirs["tarn_over"],
                valid=ours["valid"],
                remark=f"{ours['tokens_per_s']:,.0f} and {theirs['tokens_per_s']:,.0f} tokens/s",
            )
    _more_goals(table, name, rows, flags)


def _more_goals(table, name, rows, flags):
    """One thread against two with a core taken; int8's prompts against float32's."""
    for (part, column, _), found in rows.items():
        if part == "core taken" and "tarn, 2, core taken" in found:
            theirs = found[f"{NATIVE}, 2, core taken"]["over_one_thread"]
            table.goal(
                f"{name}, {column}: decode, two threads with one core taken over one thread",
                results.at_least(0.9),
                found["tarn, 2, core taken"]["over_one_thread"],
                remark=f"llama.cpp {theirs:.2f}x",
            )
    bound = max((least for flag, least in INT8_OVER_F32.items() if flag in flags), default=None)
    for (part, column, at), found in rows.items():
        other = rows.get((part, "f32", at), {})
        if part == "prefill" and column == "int8" and "tarn" in found and "tarn" in other:
            table.goal(
                f"{name}: prefill of {at} tokens, int8 over float32",
                results.at_least(bound) if bound else {},
                other["tarn"]["median_ms"] / found["tarn"]["median_ms"],
                valid=found["tarn"]["valid"] and other["tarn"]["valid"],
            )


def measure(ctx, name):
    load = os.getloadavg()[0]
    table = results.Table(f"llama_cpp_race:{name}", f"llama.cpp, {name}")
    told = []
    if reason := llama.missing():
        raise RuntimeError(f"llama_cpp_race: {reason}")
    with contextlib.ExitStack() as stack:
        peers = {NATIVE: stack.enter_context(llama.Process())}
        if plain := llama.without_amx():
            peers[PLAIN] = stack.enter_context(llama.Process(plain))
        about = peers[NATIVE].ask("about")
        for column in _columns(name):
            entry = _Entry(table, ctx, name, column, peers)
            told.append(entry.told())
            for peer in peers.values():
                peer.ask("start", tokens=ctx.size(4096, 64) + 256)
            _prefill(entry)
            _decode(entry)
            _batches(entry)
            if name == TAKEN:
                _taken(entry)
            entry.close()
            _opening(entry)
            if column == "int8" and entry.model is not None and shapes.has_class(name):
                _against_transformers(entry)
    _goals(table, name, _flags())
    table.note = (
        f"Drawn weights, batch 1 unless stated, {ctx.threads} threads each, in turn. tarn: "
        f"{'; '.join(told)}. {about['version']}: {about['system']}. "
        f"Load of the machine at the start, over one minute: {load:.1f}."
    )
    return table
