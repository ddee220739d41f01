"""One token at a time from Python, as users of modules generate: the builders'
recurrent encoder and decoder against fast-transformers', a language model against
plain PyTorch with a cache and against tarn's own runtime."""

import importlib

import harness
import limits
import models
import results
import runtime_api as runtime
import runtime_sides
import torch
import torch_gpt

LAYERS, HEADS, WIDTH, HIDDEN, VOCAB = 4, 4, 128, 512, 256
TOKENS, MEMORY = 200, 128
TARN, PEER = "tarn", "fast_transformers"
NAMES = {TARN: "tarn", PEER: "fast-transformers"}

# kind, batches, goals
ENCODERS = [("linear", {1: 4.0, 32: 2.5}), ("full", {1: 2.0, 32: 2.0})]
DECODERS = [("linear", {1: 2.0, 32: 2.0}), ("full", {1: 2.0, 32: 2.0})]


def _keywords(layers):
    return {
        "n_layers": layers,
        "n_heads": HEADS,
        "feed_forward_dimensions": HIDDEN,
        "dropout": 0.0,
    }


def encoder(package, kind, layers):
    """A package's recurrent encoder, a function (x, state) -> (y, state)."""
    builders = importlib.import_module(f"{package}.builders")
    return (
        builders.RecurrentEncoderBuilder.from_kwargs(
            query_dimensions=WIDTH // HEADS,
            value_dimensions=WIDTH // HEADS,
            attention_type=kind,
            **_keywords(layers),
        )
        .get()
        .eval()
    )


def decoder(package, kind, layers):
    builders = importlib.import_module(f"{package}.builders")
    return (
        builders.RecurrentDecoderBuilder.from_kwargs(
            self_attention_type=kind,
            cross_attention_type=kind,
            query_dimensions=WIDTH // HEADS,
            value_dimensions=WIDTH // HEADS,
            **_keywords(layers),
        )
        .get()
        .eval()
    )


def _side(name, tokens, threads, step):
    """A run is a sequence of `tokens` steps from an empty state, by step(state)."""

    def sequence():
        with torch.inference_mode():
            state = None
            for _ in range(tokens):
                state = step(state)

    return harness.of_call(name, sequence, threads, facts={"tokens": tokens})


def _encoder_side(package, kind, batch, layers, tokens, threads):
    torch.manual_seed(1)
    model, x = encoder(package, kind, layers), torch.randn(batch, WIDTH)
    return _side(NAMES[package], tokens, threads, lambda state: model(x, state)[1])


def _decoder_side(package, kind, batch, layers, tokens, threads):
    torch.manual_seed(1)
    model, x = decoder(package, kind, layers), torch.randn(batch, WIDTH)
    memory = torch.randn(batch, MEMORY, WIDTH)
    step = lambda state: model(x, memory, state=state)[1]
    return _side(NAMES[package], tokens, threads, step)


def _pairs(table, ctx, what, cases, make):
    layers, tokens = ctx.size(LAYERS, 1), ctx.size(TOKENS, 4)
    for kind, goals in cases:
        for batch, goal in goals.items():
            both = [make(p, kind, batch, layers, tokens, ctx.threads) for p in NAMES]
            rounds = min(ctx.rounds, 7)
            samples, limit = limits.group(both, rounds, 1 << 24, ctx.threads)
            for side in both:
                side.facts |= {"model": f"{what}, {kind}", "batch": batch}
                table.rows.append(limits.row(side, samples[side.name], limit))
            micro = {s.name: samples[s.name].median / tokens * 1e6 for s in both}
            table.goal(
                f"recurrent {what}, {kind}, batch {batch}, against fast-transformers (either "
                "build)",
                results.at_least(goal),
                harness.ratio(samples[NAMES[PEER]], samples["tarn"]),
                valid=limit["valid"],
                remark=f"{micro['tarn']:.0f} us per step, {micro[NAMES[PEER]]:.0f} us",
            )


def _language_model(layers):
    from tarn.models import LanguageModel

    torch.manual_seed(1)
    keys = {"n_layers": layers, "d_model": WIDTH, "n_heads": HEADS, "d_ff": HIDDEN}
    return LanguageModel(vocab_size=VOCAB, positions="sinusoidal", **keys).eval()


def _language_sides(ctx, layers, tokens):
    model, token = _language_model(layers), torch.tensor([7])
    yield _side("LanguageModel.step", tokens, ctx.threads, lambda s: model.step(token, s)[1])
    from tarn.models import generate

    prompt = token[None]
    write = lambda: generate(model, prompt, tokens)
    yield harness.of_call("generate", write, ctx.threads, facts={"tokens": tokens})

    gpt = torch_gpt.Gpt(VOCAB, tokens, layers, WIDTH, HEADS, HIDDEN).eval()

    def with_cache():
        with torch.inference_mode():
            caches = gpt.caches(1, tokens)
            for place in range(tokens):
                gpt.step(token, caches, place)

    name = "plain PyTorch, softmax with a cache"
    yield harness.of_call(name, with_cache, ctx.threads, facts={"tokens": tokens})

    loaded = runtime.Model(models.long(ctx.quick), 1)
    state = runtime.State(loaded)

    def through():
        for _ in range(tokens):
            state.step(7)

    yield runtime_sides.clocked("tarn's runtime", state.reset, through, 1, facts={"tokens": tokens})


def _language(table, ctx):
    layers, tokens = ctx.size(LAYERS, 1), ctx.size(TOKENS, 4)
    sides = list(_language_sides(ctx, layers, tokens))
    samples, limit = limits.group(sides, min(ctx.rounds, 7), 1 << 24, ctx.threads)
    rate = {}
    for side in sides:
        rate[side.name] = tokens / samples[side.name].median
        row = limits.row(side, samples[side.name], limit)
        table.rows.append(row | {"tokens_per_s": rate[side.name]})
    for name in ("LanguageModel.step", "generate"):
        table.goal(
            f"{name} from Python, batch 1, tokens/s",
            results.at_least(6000),
            rate[name],
            unit="",
            valid=limit["valid"],
            remark=f"plain PyTorch {rate[sides[2].name]:.0f}, the runtime on one "
            f"thread {rate[sides[3].name]:.0f}",
        )


def measure(ctx):
    table = results.Table(
        "recurrent_step",
        "Steps from Python",
        f"{LAYERS} layers, D {WIDTH}, {HEADS} heads, F {HIDDEN}, float32, inference mode; "
        f"a run is {TOKENS} steps from an empty state. Decoders read a memory of "
        f"{MEMORY} rows. fast-transformers as pip installs it: its recurrent layers call only "
        "torch, so the tuned build makes no difference.",
    )
    _pairs(table, ctx, "encoder", ENCODERS, _encoder_side)
    _pairs(table, ctx, "decoder", DECODERS, _decoder_side)
    _language(table, ctx)
    return table
