"""One encoder layer, forward and gradient, against its own matrix products
timed alone: the work around the products is what a fused layer can save."""

import harness
import limits
import peer_fast_transformers as peer
import results
import torch

import native

# name, batch, seq_len, d_model, heads, d_ff, goal
SHAPES = [
    ("copy task", 64, 128, 256, 8, 1024, 1.30),
    ("long", 1, 4096, 512, 8, 2048, 1.15),
]


def products_side(name, tokens, d_model, d_ff, threads):
    """Every product of a layer with weights in it, forward and both gradients,
    results in place: queries, keys and values in one, output, feed-forward."""
    sizes = [(d_model, 3 * d_model), (d_model, d_model), (d_model, d_ff), (d_ff, d_model)]
    sets, flop = [], 0.0
    for inputs, outputs in sizes:
        x, w = torch.randn(tokens, inputs), torch.randn(outputs, inputs)
        y, grad = torch.empty(tokens, outputs), torch.randn(tokens, outputs)
        grad_x, grad_w = torch.empty_like(x), torch.empty_like(w)
        sets.append((x, w, y, grad, grad_x, grad_w))
        flop += 3 * 2.0 * tokens * inputs * outputs

    def call():
        for x, w, y, _, _, _ in sets:
            torch.mm(x, w.t(), out=y)
        for x, w, _, grad, grad_x, grad_w in reversed(sets):
            torch.mm(grad, w, out=grad_x)
            torch.mm(grad.t(), x, out=grad_w)

    return harness.of_call(name, call, threads, useful_flop=flop, executed_flop=flop)


def _layer_side(name, layer, forward, shape, threads, prepare=None):
    x = torch.randn(shape, requires_grad=True)
    grad_out = torch.randn(shape)
    wanted = [x, *layer.parameters()]

    def call():
        if prepare is not None:
            prepare()
        torch.autograd.grad(forward(x), wanted, grad_out)

    return harness.of_call(name, call, threads, facts={"shape": list(shape)})


def tarn_side(batch, seq_len, d_model, heads, d_ff, dropout, threads):
    import tarn.nn

    layer = tarn.nn.EncoderLayer(d_model, heads, d_ff, dropout=dropout, norm="post")
    shape = (batch, seq_len, d_model)
    return _layer_side(f"tarn, dropout {dropout}", layer, layer, shape, threads)


def fast_transformers_side(batch, seq_len, d_model, heads, d_ff, dropout, threads):
    """fast-transformers' encoder layer as its builder makes it, with the tuned build."""
    from fast_transformers.builders import TransformerEncoderBuilder
    from fast_transformers.masking import TriangularCausalMask

    layer = TransformerEncoderBuilder.from_kwargs(
        n_layers=1,
        n_heads=heads,
        query_dimensions=d_model // heads,
        value_dimensions=d_model // heads,
        feed_forward_dimensions=d_ff,
        attention_type="causal-linear",
        dropout=dropout,
        final_normalization=False,
    ).get()
    mask = TriangularCausalMask(seq_len)
    target = native.simd_target()
    return _layer_side(
        f"fast-transformers (tuned), dropout {dropout}",
        layer,
        lambda x: layer(x, attn_mask=mask),
        (batch, seq_len, d_model),
        threads,
        lambda: peer.use_causal_product(peer.TUNED, target),
    )


def measure(ctx):
    table = results.Table(
        "layers",
        "Encoder layer, forward + gradient, against its products",
        "Post-norm, ReLU, float32. Products: all products with weights (queries, keys and "
        "values as one; output; feed-forward), forward and both gradients, in place. "
        "copy task: D 256, 8 heads, F 1024, N 128, batch 64; long: D 512, 8 heads, "
        "F 2048, N 4,096, batch 1.",
    )
    for name, batch, seq_len, d_model, heads, d_ff, goal in SHAPES:
        batch, seq_len = ctx.size(batch, 1), ctx.size(seq_len, 32)
        size = (batch, seq_len, d_model, heads, d_ff)
        products = products_side("products", batch * seq_len, d_model, d_ff, ctx.threads)
        sides = [products, limits.sgemm_side(ctx.threads)]
        for dropout in (0.0, 0.1):
            sides.append(tarn_side(*size, dropout, ctx.threads))
            sides.append(fast_transformers_side(*size, dropout, ctx.threads))
        samples, limit = limits.group(sides, ctx.rounds, 1 << 26, ctx.threads)
        for side in sides:
            side.facts["layer"] = name
            table.rows.append(limits.row(side, samples[side.name], limit))
        _goal(table, name, goal, sides, samples, limit)
    return table


def _goal(table, name, goal, sides, samples, limit):
    over = {s.name: harness.ratio(samples[s.name], samples["products"]) for s in sides}
    share = harness.ratio(samples["sgemm"], samples["products"])
    share *= sides[0].useful_flop / (2.0 * limits.SGEMM_SIZE**3)
    table.goal(
        f"encoder layer, {name} shape, dropout 0.1, over its products",
        results.at_most(goal),
        over["tarn, dropout 0.1"],
        valid=limit["valid"],
        remark=f"without dropout {over['tarn, dropout 0.0']:.2f}x; fast-transformers "
        f"{over['fast-transformers (tuned), dropout 0.1']:.2f}x, without "
        f"{over['fast-transformers (tuned), dropout 0.0']:.2f}x; the products run at "
        f"{100 * share:.0f} % of sgemm",
    )
