"""The whole training step of the copy task (Katharopoulos et al. 2020, figure
2): model, loss, gradient, optimiser, both sides as their users write it."""

import math

import harness
import limits
import measures.layers as layers
import peer_fast_transformers as peer
import results
import torch

import native

SYMBOLS, LENGTH, BATCH = 11, 128, 64
D_MODEL, HEADS, D_FF, LAYERS, DROPOUT = 256, 8, 1024, 4, 0.1
RATE = 1e-3


def batch_of(batch, length=LENGTH):
    """x = w, 0, w, then zeros, with |w| uniform; the target is the next symbol;
    the loss counts the separator and the copy."""
    x = torch.zeros(batch, length + 1, dtype=torch.int64)
    mask = torch.zeros(batch, length)
    for row in range(batch):
        n = int(torch.randint(length // 4, length // 2 - 1, ()))
        word = torch.randint(1, SYMBOLS, (n,))
        x[row, :n] = word
        x[row, n + 1 : 2 * n + 1] = word
        mask[row, n - 1 : 2 * n] = 1
    return x[:, :-1], x[:, 1:], mask


class CopyModel(torch.nn.Module):
    """An embedding joined with sines of positions, an encoder, a head."""

    def __init__(self, encoder):
        super().__init__()
        half = D_MODEL // 2
        self.embedding = torch.nn.Embedding(SYMBOLS, half)
        self.encoder = encoder
        self.head = torch.nn.Linear(D_MODEL, SYMBOLS)
        turns = torch.exp(torch.arange(0, half, 2) * (-math.log(10000.0) / half))
        angles = torch.arange(LENGTH)[:, None] * turns
        table = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
        self.register_buffer("positions", table)

    def forward(self, x):
        embedded = self.embedding(x)
        positions = self.positions[: x.shape[1]].expand(x.shape[0], -1, -1)
        return self.head(self.encoder(torch.cat([embedded, positions], -1)))


class Masked(torch.nn.Module):
    """fast-transformers' encoder with its causal mask."""

    def __init__(self, encoder, mask):
        super().__init__()
        self.encoder, self.mask = encoder, mask

    def forward(self, x):
        return self.encoder(x, attn_mask=self.mask)


def loss_of(model, x, y, mask):
    losses = torch.nn.functional.cross_entropy(
        model(x).flatten(0, 1), y.flatten(), reduction="none"
    )
    return (losses * mask.flatten()).sum() / mask.sum()


def tarn_side(ctx, data):
    import tarn.nn
    import tarn.optim

    sizes = {"d_ff": D_FF, "dropout": DROPOUT, "norm": "post"}  # fast-transformers' norms
    encoder = tarn.nn.Encoder(LAYERS, D_MODEL, HEADS, **sizes)
    model = CopyModel(encoder)
    return _side("tarn", model, tarn.optim.RAdam(model.parameters(), lr=RATE), data, ctx.threads)


def fast_transformers_side(name, ctx, data):
    """The peer with torch's RAdam over all parameters at once (foreach), the same
    formula as the optimiser in its scripts, several times as fast."""
    from fast_transformers.builders import TransformerEncoderBuilder
    from fast_transformers.masking import TriangularCausalMask

    encoder = TransformerEncoderBuilder.from_kwargs(
        n_layers=LAYERS,
        n_heads=HEADS,
        query_dimensions=D_MODEL // HEADS,
        value_dimensions=D_MODEL // HEADS,
        feed_forward_dimensions=D_FF,
        attention_type="causal-linear",
        dropout=DROPOUT,
    ).get()
    mask = TriangularCausalMask(data[0].shape[1])
    model = CopyModel(Masked(encoder, mask))
    optimizer = torch.optim.RAdam(
        model.parameters(),
        lr=RATE,
        weight_decay=0.01,
        decoupled_weight_decay=True,
        foreach=True,
    )
    target = native.simd_target()
    prepare = lambda: peer.use_causal_product(name, target)
    return _side(name, model, optimizer, data, ctx.threads, prepare)


def _side(name, model, optimizer, data, threads, prepare=None):
    def step():
        if prepare is not None:
            prepare()
        optimizer.zero_grad()
        loss_of(model, *data).backward()
        optimizer.step()

    return harness.of_call(name, step, threads)


def _products_side(tokens, threads):
    """The products of all layers' weights; embedding and head are left out."""
    one = layers.products_side("products", tokens, D_MODEL, D_FF, threads)
    run = lambda inner: one.run(inner * LAYERS)
    flop = one.useful_flop * LAYERS
    return harness.Side("products", run, threads, flop, flop)


def measure(ctx):
    table = results.Table(
        "copy_task",
        "Training step of the copy task",
        "4 layers, D 256, 8 heads, F 1024, N 128, batch 64, dropout 0.1, RAdam, float32; data "
        "are drawn beforehand.",
    )
    data = batch_of(ctx.size(BATCH, 2))
    sides = [
        tarn_side(ctx, data),
        fast_transformers_side(peer.INSTALLED, ctx, data),
        fast_transformers_side(peer.TUNED, ctx, data),
        _products_side(data[0].numel(), ctx.threads),
    ]
    samples, limit = limits.group(sides, ctx.rounds, 1 << 26, ctx.threads)
    for side in sides:
        table.rows.append(limits.row(side, samples[side.name], limit))
    bound = harness.ratio(samples[peer.INSTALLED], samples["products"])
    tuned = harness.ratio(samples[peer.TUNED], samples["tarn"])
    table.goal(
        "copy-task training step, optimiser included, against fast-transformers'",
        results.at_least(1.5),
        harness.ratio(samples[peer.INSTALLED], samples["tarn"]),
        valid=limit["valid"],
        remark=f"{tuned:.2f}x its tuned build; the products alone would give {bound:.2f}x",
    )
    table.plot(
        "copy_task",
        "Training step of the copy task: ms (shorter is better)",
        "ms",
        "",
        {s.name: samples[s.name].median * 1e3 for s in sides},
        kind="bars",
    )
    return table
