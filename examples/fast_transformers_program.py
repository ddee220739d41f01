"""A program written for fast-transformers, running on tarn: only the import lines
were changed. It trains a small causal linear transformer to continue counting
in a cycle, looks inside a softmax model through events, and generates token by
token with the recurrent twin of the trained model.
"""

import torch
from tarn.builders import (
    RecurrentEncoderBuilder,
    TransformerDecoderBuilder,
    TransformerEncoderBuilder,
)
from tarn.events import AttentionEvent, EventDispatcher
from tarn.events.filters import layer_name_contains
from tarn.feature_maps import Favor
from tarn.masking import FullMask, LengthMask, TriangularCausalMask
from tarn.utils import make_mirror

SYMBOLS, LENGTH, WIDTH = 7, 24, 32


class Counter(torch.nn.Module):
    """Embedding, positions, a transformer and a head."""

    def __init__(self, transformer):
        super().__init__()
        self.embedding = torch.nn.Embedding(SYMBOLS, WIDTH)
        self.positions = torch.nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        self.transformer = transformer
        self.head = torch.nn.Linear(WIDTH, SYMBOLS)

    def forward(self, tokens, lengths=None):
        count = tokens.shape[1]
        x = self.embedding(tokens) + self.positions[:count]
        mask = TriangularCausalMask(count, device=x.device)
        return self.head(self.transformer(x, attn_mask=mask, length_mask=lengths))


class CounterStep(Counter):
    """The same model, one token at a time."""

    def forward(self, token, position, state=None):
        x = self.embedding(token) + self.positions[position]
        x, state = self.transformer(x, state=state)
        return self.head(x), state


def settings(attention):
    return dict(
        n_layers=2,
        n_heads=4,
        query_dimensions=8,
        value_dimensions=8,
        feed_forward_dimensions=64,
        dropout=0.0,
        attention_type=attention,
    )


def batch(size):
    """Counting modulo SYMBOLS from a random start in steps of 1 to 3."""
    start, step = torch.randint(SYMBOLS, (size, 1)), torch.randint(1, 4, (size, 1))
    tokens = (start + step * torch.arange(LENGTH + 1)) % SYMBOLS
    return tokens[:, :-1], tokens[:, 1:]


def train(model, updates=100):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(updates):
        tokens, targets = batch(32)
        loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def generate(step_model, prompt, count):
    """Greedy continuation of one row of tokens by the recurrent model."""
    tokens, state = list(prompt), None
    with torch.no_grad():
        for position in range(count - 1):
            logits, state = step_model(torch.tensor([tokens[position]]), position, state)
            if position + 1 >= len(tokens):
                tokens.append(int(logits.argmax()))
    return tokens


def main():
    torch.manual_seed(0)
    model = Counter(TransformerEncoderBuilder.from_kwargs(**settings("causal-linear")).get())
    loss = train(model)
    print(f"loss below a tenth: {loss < 0.1}")

    recurrent = RecurrentEncoderBuilder.from_kwargs(**settings("causal-linear")).get()
    step_model = CounterStep(recurrent)
    make_mirror(model, step_model)
    model.eval()
    step_model.eval()
    tokens, _ = batch(3)
    whole, state, rows = model(tokens), None, []
    with torch.no_grad():
        for position in range(LENGTH):
            logits, state = step_model(tokens[:, position], position, state)
            rows.append(logits)
    difference = (whole - torch.stack(rows, dim=1)).abs().max()
    print(f"recurrent equals batch: {bool(difference < 1e-4)}")
    print("continued:", generate(step_model, [0, 2, 4, 6, 1, 3], LENGTH))

    # Softmax attention of the encoder's second layer, seen through events.
    encoder = TransformerEncoderBuilder.from_kwargs(**settings("full")).get().eval()
    matrices = []

    def keep(event):
        matrices.append(event.attention_matrix)

    dispatcher = EventDispatcher.get()
    dispatcher.listen(AttentionEvent & layer_name_contains(encoder, "layers.1"), keep)
    x, lengths = torch.randn(2, LENGTH, WIDTH), LengthMask(torch.tensor([LENGTH, 9]), LENGTH)
    encoder(x, length_mask=lengths)
    encoder(x, attn_mask=FullMask(LENGTH), length_mask=lengths)
    dispatcher.remove(keep)
    encoder(x)
    print(f"attention matrices: {len(matrices)}, shape {tuple(matrices[0].shape)}")
    print(f"padding unread: {bool((matrices[0][1, :, :, 9:] == 0).all())}")

    # A decoder with random features that reads a memory of another length.
    builder = TransformerDecoderBuilder.from_kwargs(
        n_layers=2,
        n_heads=4,
        query_dimensions=8,
        value_dimensions=8,
        feed_forward_dimensions=64,
        self_attention_type="causal-linear",
        cross_attention_type="linear",
    )
    builder.feature_map = Favor.factory(n_dims=32)
    decoder = builder.get().eval()
    target = torch.randn(2, 5, WIDTH)
    out = decoder(
        target, x, x_mask=TriangularCausalMask(5), memory_length_mask=lengths
    )
    print(f"decoded: {tuple(out.shape)}")


if __name__ == "__main__":
    main()
