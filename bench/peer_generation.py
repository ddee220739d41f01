"""Generation by torch on the CPU, one token per step: fast-transformers'
recurrent encoder and torch's LSTM, at the shapes of the paper's images.

The models read what tarn's do: an embedding of the byte concatenated with sines of the
position, layers, a head over 256 symbols. Sampling is not timed.
"""

import math
import time

import torch

VOCAB, D_MODEL, HEADS, D_FF = 256, 256, 8, 1024


def sines(count, width):
    turns = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    angles = torch.arange(count)[:, None] * turns
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


class Around(torch.nn.Module):
    """Embedding, positions and head around a recurrent body: body(x [B, D],
    state) -> (y [B, D], state)."""

    def __init__(self, body, steps):
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCAB, D_MODEL // 2)
        self.register_buffer("positions", sines(steps, D_MODEL // 2))
        self.body = body
        self.head = torch.nn.Linear(D_MODEL, VOCAB)

    def forward(self, token, position, state):
        here = self.positions[position].expand(token.shape[0], -1)
        x = torch.cat([self.embedding(token), here], -1)
        y, state = self.body(x, state)
        return self.head(y), state


class LstmBody(torch.nn.Module):
    """LSTM layers of width D, as many as hold the number of weights of the encoder."""

    def __init__(self, layers):
        super().__init__()
        encoder = layers * (4 * D_MODEL**2 + 2 * D_MODEL * D_FF)
        count = round(encoder / (8 * D_MODEL**2))
        self.lstm = torch.nn.LSTM(D_MODEL, D_MODEL, count)

    def forward(self, x, state):
        y, state = self.lstm(x[None], state)
        return y[0], state


def fast_transformers_model(layers, steps):
    from fast_transformers.builders import RecurrentEncoderBuilder

    body = RecurrentEncoderBuilder.from_kwargs(
        n_layers=layers,
        n_heads=HEADS,
        query_dimensions=D_MODEL // HEADS,
        value_dimensions=D_MODEL // HEADS,
        feed_forward_dimensions=D_FF,
        attention_type="linear",
        dropout=0.0,
    ).get()
    return Around(body, steps).eval()


def lstm_model(layers, steps):
    return Around(LstmBody(layers), steps).eval()


def generate(model, batch, steps, most_steps=None):
    """Wall and processor seconds of `steps` steps from an empty state; the first
    `most_steps` are run and scaled up (every step costs the same)."""
    run = min(steps, most_steps or steps)
    tokens = torch.randint(0, VOCAB, (run, batch))
    cpu, wall = time.process_time(), time.perf_counter()
    with torch.inference_mode():
        state = None
        for position in range(run):
            _, state = model(tokens[position], position, state)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return wall * steps / run, cpu * steps / run


def best_threads(model, batch, most):
    """The thread count at which the model steps fastest."""
    best = None
    for threads in range(1, most + 1):
        torch.set_num_threads(threads)
        generate(model, batch, 8)
        seconds = min(generate(model, batch, 48)[0] for _ in range(3))
        if best is None or seconds < best[0]:
            best = seconds, threads
    return best[1]
