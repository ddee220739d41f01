"""The whole training step of a language model as its users run it: `tarn train`,
`tarn.models` in Python, the products alone, and a softmax model as a user writes
it in plain PyTorch."""

import atexit
import functools
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import tempfile

import harness
import limits
import native
import results
import torch
import torch_gpt

import measures.layers as layers

VOCAB, HEADS = 256, 4
WARM, COUNTED = 3, 6  # steps of one process of the trainer

# layers, width, batch, seq_len; goals: against the products, against plain PyTorch
SHAPES = [
    (4, 128, 8, 128, 1.45, 1.6),
    (4, 128, 8, 512, 1.40, 2.0),
    (4, 128, 2, 2048, None, 3.0),
    (4, 128, 1, 8192, 1.40, None),
    (6, 256, 8, 512, 1.40, None),
    (6, 512, 8, 512, 1.40, None),
]
# Names to pronunciation: layers of each half, width, pairs; letters of a name.
NAMES = (2, 128, 64)
NAME = 8
LETTERS = "abcdefghijklmnopqrstuvwxyz"
# Above this length the T x T scores of a softmax model take minutes here.
LONGEST_SOFTMAX = 2048


@functools.lru_cache(maxsize=1)
def _folder():
    """A folder with its own text, removed when the process ends."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tarn-training-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    draw = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz      \n"
    text = "".join(draw.choices(letters, k=400_000))
    (folder / "text.txt").write_text(text)
    return folder


def _trainer(words, tokens, counted, threads):
    """Steps as `tarn train` logs them, one process per sample. tokens: of a step."""
    build = pathlib.Path(os.environ.get("TARN_BUILD", native.ROOT / "build"))
    words = words | {
        "--out": _folder() / "run",
        "--steps": WARM + counted,
        "--warmup": 1,
        "--sample-every": 0,
        "--dropout": 0,
        "--threads": threads,
    }
    flags = [str(word) for pair in words.items() for word in pair]

    def run(inner):
        done = subprocess.run(
            [str(build / "tarn-train"), "--overwrite", "--quiet", *flags],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        log = (_folder() / "run" / "log.jsonl").read_text().splitlines()
        steps = [json.loads(line) for line in log][WARM:]
        wall = statistics.median(tokens / s["tokens_per_s"] for s in steps)
        cpu = (steps[-1]["cpu_s"] - steps[0]["cpu_s"]) / max(len(steps) - 1, 1)
        return wall * inner, cpu * inner

    return harness.Side("tarn train", run, threads)


def trainer_side(depth, width, batch, seq_len, threads, counted=COUNTED, more=None):
    """The side of `tarn train`. more: further flags by name."""
    words = {
        "--data": _folder() / "text.txt",
        "--records": "block",
        "--n-layers": depth,
        "--d-model": width,
        "--n-heads": HEADS,
        "--max-positions": seq_len,
        "--batch": batch,
        "--seq-len": seq_len,
        "--eval-windows": 1,
        **(more or {}),
    }
    return _trainer(words, batch * seq_len, counted, threads)


def _pairs():
    """A file of made-up names and what they sound like, all of one length."""
    path = _folder() / "pairs.tsv"
    if not path.exists():
        draw = random.Random(2)
        word = lambda: "".join(draw.choices(LETTERS, k=NAME))
        lines = {word(): word() for _ in range(4000)}
        path.write_text("".join(f"{name}\t{sound}\n" for name, sound in lines.items()))
    return path


def names_sides(depth, width, batch, threads, counted):
    """Names to pronunciation, the shape of `make demo-names`: `tarn train`, and the
    products of encoder, decoder and head."""
    words = {
        "--arch": "seq2seq",
        "--data": _pairs(),
        "--tokenizer": "char",
        "--n-layers": depth,
        "--d-model": width,
        "--n-heads": HEADS,
        "--batch": batch,
        "--seq-len": 32,
    }
    sources, targets = batch * NAME, batch * (NAME + 1)
    # The log counts letters and sounds; a decoder also reads the symbol before them.
    trainer = _trainer(words, 2 * batch * NAME, counted, threads)
    hidden = 4 * width
    parts = [
        (depth, layers.products_side("encoder", sources, width, hidden, threads)),
        (depth, layers.products_side("decoder", targets, width, hidden, threads)),
        (2 * depth, _map_side("queries, output", targets, width, width, threads)),
        (depth, _map_side("memory", sources, width, 2 * width, threads)),
        (1, _map_side("head", targets, width, len(LETTERS) + 1, threads)),
    ]
    return [trainer, _sum_side("products", parts, threads)]


def _step_side(name, model, optimizer, batch, seq_len, threads, clips=False):
    tokens = torch.randint(0, VOCAB, (batch, seq_len + 1))
    x, y = tokens[:, :-1].contiguous(), tokens[:, 1:].flatten()

    def step():
        optimizer.zero_grad()
        logits = model(x)
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), y).backward()
        if not clips:  # tarn's optimiser clips as it steps
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return harness.of_call(name, step, threads)


def models_side(depth, width, batch, seq_len, threads):
    import tarn.optim
    from tarn.models import LanguageModel

    keys = {"n_layers": depth, "d_model": width, "n_heads": HEADS}
    model = LanguageModel(vocab_size=VOCAB, max_positions=seq_len, dropout=0.0, **keys)
    optimizer = tarn.optim.AdamW(model.parameters(), lr=1e-3, clip=1.0)
    return _step_side("tarn.models", model, optimizer, batch, seq_len, threads, clips=True)


def torch_side(depth, width, batch, seq_len, threads):
    model = torch_gpt.Gpt(VOCAB, seq_len, depth, width, HEADS, 4 * width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    return _step_side("plain PyTorch, softmax", model, optimizer, batch, seq_len, threads)


def _map_side(name, tokens, inputs, outputs, threads):
    """The products of one affine map: forward and both gradients."""
    x, w = torch.randn(tokens, inputs), torch.randn(outputs, inputs)
    y, grad_x, grad_w = torch.empty(tokens, outputs), torch.empty_like(x), torch.empty_like(w)

    def call():
        torch.mm(x, w.t(), out=y)
        torch.mm(y, w, out=grad_x)
        torch.mm(y.t(), x, out=grad_w)

    return harness.of_call(name, call, threads, useful_flop=6.0 * tokens * inputs * outputs)


def _sum_side(name, parts, threads):
    """Several sides as one; each is run a given number of times."""

    def run(inner):
        return tuple(map(sum, zip(*(side.run(inner * times) for times, side in parts))))

    flop = sum(times * side.useful_flop for times, side in parts)
    return harness.Side(name, run, threads, flop, flop)


def products_side(depth, width, tokens, threads):
    """The products of all weights, the head included: forward, both gradients."""
    layer = layers.products_side("layer", tokens, width, 4 * width, threads)
    head = _map_side("head", tokens, width, VOCAB, threads)
    return _sum_side("products", [(depth, layer), (1, head)], threads)


def _shape(table, ctx, depth, width, batch, seq_len, over, against):
    size = (depth, width, batch, seq_len)
    sides = [
        trainer_side(*size, ctx.threads, ctx.size(COUNTED, 2)),
        models_side(*size, ctx.threads),
        products_side(depth, width, batch * seq_len, ctx.threads),
    ]
    if seq_len <= LONGEST_SOFTMAX:
        sides.append(torch_side(*size, ctx.threads))
    rounds = min(ctx.rounds, 5)
    samples, limit = limits.group(sides, rounds, 1 << 26, ctx.threads, budget=40)
    name = f"{depth} x {width}, {batch} x {seq_len:,}"
    rate = {}
    for side in sides:
        rate[side.name] = batch * seq_len / samples[side.name].median
        row = limits.row(side, samples[side.name], limit)
        table.rows.append(row | {"model": name, "tokens_per_s": rate[side.name]})
    told = ", ".join(f"{key} {value:,.0f}" for key, value in rate.items()) + " tokens/s"
    quotient = lambda a, b: harness.ratio(samples[a], samples[b])
    if over:
        table.goal(
            f"tarn train, {name}, over its products",
            results.at_most(over),
            quotient("tarn train", "products"),
            valid=limit["valid"],
            remark=told,
        )
    if against:
        table.goal(
            f"tarn train, {name}, against plain PyTorch's softmax model",
            results.at_least(against),
            quotient("plain PyTorch, softmax", "tarn train"),
            valid=limit["valid"],
            remark=told,
        )
    table.goal(
        f"tarn.models in Python, {name}, over tarn train",
        results.at_most(1.10),
        quotient("tarn.models", "tarn train"),
        valid=limit["valid"],
    )


def _names(table, ctx):
    depth, width, batch = (1, 32, 4) if ctx.quick else NAMES
    sides = names_sides(depth, width, batch, ctx.threads, ctx.size(30, 2))
    samples, limit = limits.group(sides, min(ctx.rounds, 5), 1 << 26, ctx.threads, budget=40)
    name = f"names, {depth} + {depth} x {width}, {batch} pairs"
    for side in sides:
        row = limits.row(side, samples[side.name], limit)
        rate = batch * (NAME + 1) / samples[side.name].median
        table.rows.append(row | {"model": name, "tokens_per_s": rate})
    table.goal(
        f"tarn train, {name}, over its products",
        results.at_most(1.40),
        harness.ratio(samples["tarn train"], samples["products"]),
        valid=limit["valid"],
    )


def measure(ctx):
    table = results.Table(
        "training_step",
        "Training step of a language model",
        "Layers x width, batch x tokens; 4 heads, F 4 D, 256 symbols, pre-norm, GELU, "
        "float32, AdamW, clipped, no dropout. tarn train: median of the steps in its log, one "
        "process per sample; the others run in this process. Products: all products with "
        "weights, including the head's, forward and both gradients, in place.",
    )
    shapes = [(1, 32, 2, 16, 1.45, 1.6)] if ctx.quick else SHAPES
    for shape in shapes:
        _shape(table, ctx, *shape)
    _names(table, ctx)
    return table
