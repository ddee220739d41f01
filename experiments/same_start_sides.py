"""fast-transformers and tarn learn the copy task from the same weights, on the same rows; a
separate process, in the Python that has both.

    python -m experiments.same_start_sides '{"steps": 500, ...}'    JSON on stdout

The model, the rows and the loss are defined here once: what differs is which library
builds the encoder, and whose RAdam updates it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import math
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

import tarn.builders
import tarn.masking
import tarn.optim

JsonDict = dict[str, Any]
SYMBOLS = 11
RATE, DECAY = 1e-3, 0.01
PEER, OURS = "fast_transformers", "tarn"


class Rows:
    """`w 0 w` and zeros, |w| uniform; the target is the next symbol, the loss
    counts the separator and the copy. The same seed gives the same rows."""

    def __init__(self, batch: int, seq_len: int, seed: int) -> None:
        self._shape = (batch, seq_len)
        self._random = torch.Generator().manual_seed(seed)

    def draw(self) -> tuple[Tensor, Tensor, Tensor]:
        batch, seq_len = self._shape
        tokens = torch.zeros(batch, seq_len + 1, dtype=torch.int64)
        counted = torch.zeros(batch, seq_len)
        for row in range(batch):
            n = int(torch.randint(seq_len // 4, seq_len // 2 - 1, (), generator=self._random))
            word = torch.randint(1, SYMBOLS, (n,), generator=self._random)
            tokens[row, :n] = word
            tokens[row, n + 1 : 2 * n + 1] = word
            counted[row, n - 1 : 2 * n] = 1
        return tokens[:, :-1], tokens[:, 1:], counted


class CopyModel(torch.nn.Module):
    """Embedding concatenated with sines of positions, one library's encoder, a head. The
    names of the weights are the same whichever library it is."""

    def __init__(self, library: str, asked: JsonDict) -> None:
        super().__init__()
        width, heads, seq_len = asked["d_model"], asked["n_heads"], asked["seq_len"]
        half = width // 2
        builder = importlib.import_module(f"{library}.builders").TransformerEncoderBuilder
        masking = importlib.import_module(f"{library}.masking")
        self.embedding = torch.nn.Embedding(SYMBOLS, half)
        self.encoder = builder.from_kwargs(
            n_layers=asked["n_layers"],
            n_heads=heads,
            query_dimensions=width // heads,
            value_dimensions=width // heads,
            feed_forward_dimensions=4 * width,
            attention_type="causal-linear",
            activation="relu",
            dropout=0.0,
        ).get()
        self.head = torch.nn.Linear(width, SYMBOLS)
        self.mask = masking.TriangularCausalMask(seq_len)
        turns = torch.exp(torch.arange(0, half, 2) * (-math.log(10000.0) / half))
        angles = torch.arange(seq_len)[:, None] * turns
        table = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
        self.register_buffer("positions", table, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = self.get_buffer("positions").expand(tokens.shape[0], -1, -1)
        embedded = torch.cat([self.embedding(tokens), positions], -1)
        return self.head(self.encoder(embedded, attn_mask=self.mask))


def torch_radam(parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.RAdam(
        parameters, lr=RATE, weight_decay=DECAY, decoupled_weight_decay=True, foreach=True
    )


def tarn_radam(parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    return tarn.optim.RAdam(parameters, lr=RATE, weight_decay=DECAY)


def moved(weights: dict[str, Tensor], seed: int) -> dict[str, Tensor]:
    """Each weight replaced by the float32 number next to it, above or below at
    random: the least that two roundings can differ by."""
    random = torch.Generator().manual_seed(seed)

    def one(weight: Tensor) -> Tensor:
        up = torch.randint(0, 2, weight.shape, generator=random).bool()
        far = torch.where(up, math.inf, -math.inf).to(weight.dtype)
        return torch.nextafter(weight, far)

    return {name: one(weight) for name, weight in weights.items()}


def learn(
    library: str,
    weights: dict[str, Tensor],
    asked: JsonDict,
    optimiser: Callable[[Iterable[Tensor]], torch.optim.Optimizer],
) -> JsonDict:
    """Losses of all updates, each before its step."""
    model = CopyModel(library, asked)
    model.load_state_dict(weights)
    update = optimiser(model.parameters())
    rows = Rows(asked["batch"], asked["seq_len"], asked["seed"])
    losses = []
    began = time.monotonic()
    for _ in range(asked["steps"]):
        tokens, targets, counted = rows.draw()
        update.zero_grad()
        each = torch.nn.functional.cross_entropy(
            model(tokens).flatten(0, 1), targets.flatten(), reduction="none"
        )
        loss = (each * counted.flatten()).sum() / counted.sum()
        loss.backward()
        update.step()
        losses.append(loss.item())
    return {"losses": losses, "seconds": time.monotonic() - began}


def both(asked: JsonDict) -> JsonDict:
    """All runs from the weights of one fast-transformers model."""
    torch.set_num_threads(asked["threads"])
    torch.manual_seed(asked["seed"])
    weights = CopyModel(PEER, asked).state_dict()
    parts = {
        "peer": (PEER, weights, torch_radam),
        "tarn": (OURS, weights, torch_radam),
        "tarn_radam": (OURS, weights, tarn_radam),
        "peer_moved": (PEER, moved(weights, asked["seed"]), torch_radam),
    }
    runs = {}
    for name, (library, start, optimiser) in parts.items():
        runs[name] = learn(library, start, asked, optimiser)
        print(f"{name} done", file=sys.stderr, flush=True)
    for run in runs.values():
        # Differences are taken here, where no digit is lost: results keep only six.
        run["differences"] = [
            abs(a - b) for a, b in zip(run["losses"], runs["peer"]["losses"], strict=True)
        ]
    return {
        "runs": runs,
        "torch": torch.__version__,
        "parameters": sum(one.numel() for one in weights.values()),
        "peer_version": importlib.metadata.version("pytorch-fast-transformers"),
    }


if __name__ == "__main__":
    print(json.dumps(both(json.loads(sys.argv[1]))))
