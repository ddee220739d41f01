"""llama.cpp by llama-cpp-python's low-level binding: opening a GGUF file, filling a prompt,
steps of one sequence and of many. A program, so that its threads and its memory are apart
from tarn's; .venv-peers has the package (scripts/bench_setup.sh).

    python bench/peer_llama_cpp.py FILE.gguf THREADS [--quick]    all of it, as one line of JSON
    python bench/peer_llama_cpp.py open FILE.gguf THREADS         the first 10 tokens alone
    python bench/peer_llama_cpp.py serve                          an answer to each line of stdin

A line of stdin is a call of Server's methods, {"do": "fill", "tokens": 512}, and its answer a
line of JSON. LLAMA_CPP_LIB_PATH, a folder, names another build of the library.
"""

import ctypes
import json
import os
import pathlib
import statistics
import sys
import time

import harness
import llama_cpp
import llama_cpp.llama_cpp as c

BATCH, UBATCH = 2048, 512  # tokens of one call, and of one pass over the weights
KV_TYPES = {"f16": 1, "f32": 0}
# Positions that steps may run past the depth that they are measured at.
ROOM = 128

_log = []  # what llama.cpp told, in pieces of lines


@c.llama_log_callback
def _keep(level, text, data):
    _log.append(text.decode(errors="replace"))


def _logged(*words):
    """The lines that have one of these words."""
    lines = "".join(_log).splitlines()
    return [line.strip() for line in lines if any(word in line for word in words)]


class LlamaError(RuntimeError):
    """What llama.cpp did not do, with the last line that it logged."""

    def __init__(self, text):
        last = "".join(_log).strip().splitlines()[-3:]
        super().__init__(f"{text}: {'; '.join(last)}" if last else text)


def _status(key):
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status: want {key}, got none")


def token_ids(count, vocab):
    """The tokens of bench/runtime_api.py: fixed, without a short period."""
    vocab = min(vocab, 256)
    return (c.llama_token * count)(*((i * 7919 + i // 251) % vocab for i in range(count)))


def _pieces(tokens, vocab):
    """They as arrays of one call each."""
    ids = token_ids(tokens, vocab)
    parts = (ids[at : at + BATCH] for at in range(0, tokens, BATCH))
    return [(c.llama_token * len(part))(*part) for part in parts]


def version():
    return f"llama-cpp-python {llama_cpp.__version__}, llama.cpp {c.llama_version().decode()}"


class Server:
    """One model and one context at a time. Every method returns a dictionary."""

    def __init__(self):
        c.llama_log_set(_keep, ctypes.c_void_p(None))
        c.llama_backend_init()
        self.model = self.context = self.one = self.many = None
        self.threads_used = self.position = 0

    def about(self):
        return {
            "version": version(),
            "system": c.llama_print_system_info().decode().strip(),
        }

    def open(self, file, threads):
        """The file's model. Seconds of loading, repacking included."""
        self.close()
        _log.clear()
        begun = time.perf_counter()
        params = c.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = c.llama_model_load_from_file(os.fsencode(file), params)
        if not self.model:
            raise LlamaError(f"{file}: want a file that llama.cpp loads")
        self.vocab = c.llama_vocab_n_tokens(c.llama_model_get_vocab(self.model))
        self.threads_used = threads
        return {
            "seconds": time.perf_counter() - begun,
            "weight_bytes": c.llama_model_size(self.model),
            "parameters": c.llama_model_n_params(self.model),
            "buffers": _logged("buffer size"),
        }

    def start(self, tokens, sequences=1, kv="f16"):
        """An empty context for sequences of this many tokens."""
        self.stop()
        params = c.llama_context_default_params()
        params.n_ctx = tokens * sequences
        params.n_batch, params.n_ubatch = BATCH, UBATCH
        params.n_seq_max = sequences
        params.n_threads = params.n_threads_batch = self.threads_used
        params.type_k = params.type_v = KV_TYPES[kv]
        params.no_perf = True
        self.context = c.llama_init_from_model(self.model, params)
        if not self.context:
            raise LlamaError("want a context of this model")
        self.memory = c.llama_get_memory(self.context)
        self.threads(self.threads_used)
        self.one = token_ids(1, self.vocab)
        self.tokens, self.sequences = tokens, sequences
        self.many = c.llama_batch_init(max(BATCH, sequences), 0, 1)
        self._decode(c.llama_batch_get_one(self.one, 1))  # warm-up
        self._clear()
        return {"buffers": _logged("buffer size")}

    def threads(self, count):
        self.threads_used = count
        c.llama_set_n_threads(self.context, count, count)
        return {}

    def _clear(self):
        c.llama_memory_clear(self.memory, False)
        self.position = 0

    def _decode(self, batch):
        if (code := c.llama_decode(self.context, batch)) != 0:
            raise LlamaError(f"llama_decode: want 0, got {code}")

    def _clocked(self, work):
        """Seconds of the wall clock and of all threads. Those that spin afterwards must come
        to rest before the other program is measured."""
        cpu, wall = time.process_time_ns(), time.perf_counter_ns()
        work()
        c.llama_synchronize(self.context)
        c.llama_get_logits_ith(self.context, -1)
        wall = time.perf_counter_ns() - wall
        cpu = time.process_time_ns() - cpu
        harness.settle()
        return {"wall": wall * 1e-9, "cpu": cpu * 1e-9}

    def _run(self, pieces):
        for ids in pieces:
            self._decode(c.llama_batch_get_one(ids, len(ids)))

    def fill(self, tokens):
        """A prompt from an empty state, the logits of its last token."""
        pieces = _pieces(tokens, self.vocab)
        self._clear()
        self.position = tokens
        return self._clocked(lambda: self._run(pieces))

    def steps(self, depth, count):
        """Tokens one by one, about `depth` tokens after the beginning."""
        if not depth <= self.position <= min(depth + ROOM, self.tokens) - count:
            self._clear()
            if depth:
                self.fill(depth)
            self._run([self.one])  # another shape of the graph than the prompt's
            self.position = depth + 1
        self.position += count
        return self._clocked(lambda: self._run([self.one] * count))

    def batch(self, count):
        """Steps of all sequences at once, logits for each."""
        if self.position + count > self.tokens:
            self._clear()
        many, at = self.many, self.position
        many.n_tokens = self.sequences
        for i in range(self.sequences):
            many.token[i] = i % min(self.vocab, 256)
            many.n_seq_id[i] = 1
            many.seq_id[i][0] = i
            many.logits[i] = 1

        def work():
            for step in range(count):
                for i in range(self.sequences):
                    many.pos[i] = at + step
                self._decode(many)

        self.position += count
        return self._clocked(work)

    def state_bytes(self, depth):
        """What a step reads of a sequence after `depth` tokens, keys and values included."""
        self._clear()
        self._run(_pieces(max(depth, 1), self.vocab))
        self.position = max(depth, 1)
        return {"bytes": c.llama_state_seq_get_size(self.context, 0)}

    def logits(self, tokens, out):
        """Those of all rows of a prompt, [tokens, vocabulary], as a file of numpy's."""
        import numpy

        self._clear()
        rows = []
        for at in range(0, len(tokens), UBATCH):
            part = tokens[at : at + UBATCH]
            self.many.n_tokens = len(part)
            for i, token in enumerate(part):
                self.many.token[i], self.many.pos[i] = token, at + i
                self.many.n_seq_id[i], self.many.seq_id[i][0] = 1, 0
                self.many.logits[i] = 1
            self._decode(self.many)
            c.llama_synchronize(self.context)
            found = c.llama_get_logits(self.context)
            rows.append(numpy.ctypeslib.as_array(found, (len(part), self.vocab)).copy())
        numpy.save(out, numpy.concatenate(rows))
        return {}

    def stepped_logits(self, tokens, out):
        """The same, a token at a time."""
        import numpy

        self._clear()
        rows = []
        for token in tokens:
            self._run([(c.llama_token * 1)(token)])
            c.llama_synchronize(self.context)
            found = c.llama_get_logits_ith(self.context, -1)
            rows.append(numpy.ctypeslib.as_array(found, (self.vocab,)).copy())
        numpy.save(out, numpy.stack(rows))
        return {}

    def stop(self):
        if self.context:
            c.llama_batch_free(self.many)
            c.llama_free(self.context)
        self.context = self.many = None
        return {}

    def close(self):
        self.stop()
        if self.model:
            c.llama_model_free(self.model)
        self.model = None
        return {}


def opened(file, threads, tokens=10):
    """From nothing to the logits of the first tokens, in a process that did nothing else."""
    before = _status("VmRSS")
    wall, cpu = time.perf_counter(), time.process_time()
    server = Server()
    found = server.open(file, threads)
    params = c.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch = 512, BATCH, UBATCH
    params.n_threads = params.n_threads_batch = threads
    context = c.llama_init_from_model(server.model, params)
    ids = token_ids(tokens, server.vocab)  # the batch points to it
    if c.llama_decode(context, c.llama_batch_get_one(ids, tokens)):
        raise LlamaError(f"{file}: want logits")
    c.llama_synchronize(context)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return found | {
        "load_seconds": found["seconds"],
        "seconds": wall,
        "cpu_per_wall": cpu / wall,
        "resident_bytes": _status("VmRSS") - before,
        "peak_bytes": _status("VmHWM") - before,
    }


def _rate(run, tokens, repeats):
    run()
    return tokens / statistics.median(run()["wall"] for _ in range(repeats))


def everything(file, threads, quick):
    """Tokens a second, medians of five runs after one that warms up."""
    repeats = 2 if quick else 5
    deep, prompts, batches = (32, (16, 32), (2,)) if quick else (4096, (512, 2048), (8, 64))
    steps = 2 if quick else 16
    found = opened(file, threads)
    server = Server()
    found |= server.about()
    server.open(file, threads)
    server.start(deep + ROOM)
    for tokens in prompts:
        run = lambda: server.fill(tokens)
        found[f"prefill {tokens}"] = _rate(run, tokens, repeats)
    for depth in (0, deep):
        run = lambda: server.steps(depth, steps)
        found[f"decode at {depth}"] = _rate(run, steps, repeats)
    for count in batches:
        server.start(256, sequences=count)
        run = lambda: server.batch(1)
        found[f"batch of {count}"] = _rate(run, count, repeats)
    found["context_buffers"] = _logged("buffer size")
    server.close()
    return found


def serve():
    """Answers lines of stdin until it ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # stdout is for answers alone
    server = Server()
    for line in sys.stdin:
        words = json.loads(line)
        try:
            answer = getattr(server, words.pop("do"))(**words)
        except (LlamaError, OSError) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), file=answers, flush=True)


def main():
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    if words[0] == "serve":
        serve()
    elif words[0] == "open":
        print(json.dumps(opened(words[1], int(words[2]))))
    else:
        print(json.dumps(everything(words[0], int(words[1]), "--quick" in sys.argv)))


if __name__ == "__main__":
    main()
