"""An encoder as the builders make it, forward and gradient with dropout: tarn's
and fast-transformers', by the same program."""

import importlib

import harness
import limits
import native
import peer_fast_transformers as peer
import results
import torch

LAYERS, HEADS, WIDTH, HIDDEN, DROPOUT = 4, 4, 128, 512, 0.1
SHAPES = [(8, 128), (8, 512), (2, 2048)]


def side(package, layers, batch, seq_len, threads, prepare=None):
    """The program of package.builders; prepare() is called before each run."""
    builders = importlib.import_module(f"{package}.builders")
    masking = importlib.import_module(f"{package}.masking")
    torch.manual_seed(1)
    model = builders.TransformerEncoderBuilder.from_kwargs(
        n_layers=layers,
        n_heads=HEADS,
        query_dimensions=WIDTH // HEADS,
        value_dimensions=WIDTH // HEADS,
        feed_forward_dimensions=HIDDEN,
        attention_type="causal-linear",
        dropout=DROPOUT,
    ).get()
    mask = masking.TriangularCausalMask(seq_len)
    x = torch.randn(batch, seq_len, WIDTH, requires_grad=True)
    grad_out = torch.randn(batch, seq_len, WIDTH)
    wanted = [x, *model.parameters()]

    def call():
        if prepare is not None:
            prepare()
        torch.autograd.grad(model(x, attn_mask=mask), wanted, grad_out)

    return harness.of_call(package, call, threads)


def _peer_side(build, *size):
    target = native.simd_target()
    one = side("fast_transformers", *size, lambda: peer.use_causal_product(build, target))
    one.name = build
    return one


def measure(ctx):
    table = results.Table(
        "python_layers",
        "Encoder of the builders, forward + gradient",
        f"{LAYERS} layers, D {WIDTH}, {HEADS} heads, F {HIDDEN}, causal-linear, dropout "
        f"{DROPOUT}, float32; batch x tokens.",
    )
    for batch, seq_len in [(2, 16)] if ctx.quick else SHAPES:
        size = (ctx.size(LAYERS, 1), batch, seq_len, ctx.threads)
        sides = [side("tarn", *size)]
        sides += [_peer_side(build, *size) for build in (peer.INSTALLED, peer.TUNED)]
        samples, limit = limits.group(sides, min(ctx.rounds, 9), 1 << 26, ctx.threads)
        for one in sides:
            one.facts |= {"batch": batch, "seq_len": seq_len}
            table.rows.append(limits.row(one, samples[one.name], limit))
        table.goal(
            f"builders' encoder, {batch} x {seq_len:,}, against fast-transformers, tuned",
            results.at_least(2.0),
            harness.ratio(samples[peer.TUNED], samples["tarn"]),
            valid=limit["valid"],
            remark=f"{harness.ratio(samples[peer.INSTALLED], samples['tarn']):.2f}x as pip "
            f"installs it; {samples['tarn'].median * 1e3:.1f} ms",
        )
    return table
