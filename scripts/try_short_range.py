#!/usr/bin/env python3
"""Compares two ways to give linear attention a short range, on the texts of Debian's fortunes:
scripts/try_short_range.py linear|local|convolution|convolution-silu [UPDATES]

Prints held-out bits per byte after UPDATES (400) updates of one seed, on one thread. Rates,
rows, norms and feed-forward parts are those of the preset `linear` of `tarn train`.
"""

from __future__ import annotations

import math
import pathlib
import random
import sys

import torch
import torch.nn.functional as F

from tarn import models

FORTUNES = pathlib.Path("/usr/share/games/fortunes")
LAYERS = {"local": [{"mixer": "local", "local_context": 8}, "linear"]}
KINDS = ("linear", "local", "convolution", "convolution-silu")
ROWS, LENGTH, RATE, WARMUP = 8, 128, 2e-3, 60
HELD_OUT_ROWS = 400


class Convolved(torch.nn.Module):
    """A projection, then a causal depthwise convolution of width 4 that begins as the identity."""

    def __init__(self, projection: torch.nn.Linear, silu: bool) -> None:
        super().__init__()
        self.projection, self.silu = projection, silu
        taps = 0.02 * torch.randn(projection.out_features, 4)
        taps[:, -1] = 1
        self.weight = torch.nn.Parameter(taps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = F.pad(self.projection(x).transpose(1, 2), (3, 0))
        out = F.conv1d(rows, self.weight[:, None], groups=rows.shape[1]).transpose(1, 2)
        return F.silu(out) if self.silu else out


def texts() -> tuple[torch.Tensor, torch.Tensor]:
    """Bytes to learn and held-out bytes: records are shuffled, one in 20 is held out."""
    files = sorted(one for one in FORTUNES.iterdir() if one.suffix not in (".dat", ".u8"))
    records = b"".join(one.read_bytes() for one in files).split(b"\n%\n")
    random.Random(0).shuffle(records)
    cut = len(records) // 20
    learned, held_out = (
        torch.frombuffer(bytearray(b"\n%\n".join(part)), dtype=torch.uint8).long()
        for part in (records[cut:], records[:cut])
    )
    return learned, held_out


def model_of(kind: str) -> models.LanguageModel:
    model = models.LanguageModel(
        vocab_size=256,
        d_model=128,
        n_layers=4,
        n_heads=4,
        d_ff=344,
        norm="pre",
        norm_kind="rms",
        feed_forward="swiglu",
        positions="rotary",
        layers=LAYERS.get(kind, ["linear"]),
    )
    if kind.startswith("convolution"):
        for layer in model.layers:
            for name in ("query_projection", "key_projection", "value_projection"):
                projection = getattr(layer.attention, name)
                setattr(layer.attention, name, Convolved(projection, kind.endswith("silu")))
    return model


def nats(model: torch.nn.Module, text: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    rows = torch.stack([text[place : place + LENGTH + 1] for place in places.tolist()])
    return F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


def rate_at(step: int, updates: int) -> float:
    done = max(0, step - WARMUP) / max(1, updates - WARMUP)
    return RATE * min(1, (step + 1) / WARMUP) * 0.5 * (1 + math.cos(math.pi * done))


def main(words: list[str]) -> int:
    if not words or words[0] not in KINDS or len(words) > 2:
        print(__doc__, file=sys.stderr)
        return 2
    updates = int(words[1]) if len(words) == 2 else 400
    torch.set_num_threads(1)
    torch.manual_seed(1)
    learned, held_out = texts()
    model = model_of(words[0])
    weights = {
        wide: [p for p in model.parameters() if (p.dim() > 1) is wide] for wide in (True, False)
    }
    optimizer = torch.optim.AdamW(
        [
            {"params": weights[True], "weight_decay": 0.1},
            {"params": weights[False], "weight_decay": 0.0},
        ],
        lr=RATE,
        betas=(0.9, 0.95),
    )
    draw = torch.Generator().manual_seed(3)
    for step in range(updates):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, updates)
        places = torch.randint(0, len(learned) - LENGTH - 1, (ROWS,), generator=draw)
        optimizer.zero_grad()
        nats(model, learned, places).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    with torch.no_grad():
        parts = (LENGTH * torch.arange(HELD_OUT_ROWS)).split(40)
        mean = sum(nats(model, held_out, part).item() for part in parts) / len(parts)
    print(f"{words[0]}: {mean / math.log(2):.4f} bits per byte after {updates} updates")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
