"""A classifier over a CSV file of your own.

Usage: .venv/bin/python examples/classify_csv.py [FILE.csv [OUT]]
FILE.csv has a header and the columns `label` and `text`; others are ignored
(examples/messages.csv, 160 made-up messages of 4 kinds, if none is named). One row
in five is held out. The model, an encoder with linear attention over bytes, learns
from the others, is measured on those held out and saved in OUT (models/messages):

    echo "Snow is expected tonight." | build/tarn classify models/messages
"""

import csv
import pathlib
import random
import sys

import torch

import tarn
from tarn.runtime import Model

EXAMPLE = pathlib.Path(__file__).resolve().parent / "messages.csv"
BATCH, MOST_BYTES = 16, 1024  # a longer text is read up to that length


def read(path):
    """(label, text) of every row. SystemExit names what is wrong, and where."""
    with open(path, newline="", encoding="utf-8-sig") as lines:
        table = csv.DictReader(lines)
        if not {"label", "text"} <= set(table.fieldnames or ()):
            sys.exit(f"{path}: want the columns label and text, got {table.fieldnames}")
        rows = []
        for row in table:
            if not row["label"] or not row["text"]:
                sys.exit(f"{path}:{table.line_num}: want a label and a text, got {row}")
            rows.append((row["label"], row["text"]))
    if len({label for label, _ in rows}) < 2:
        sys.exit(f"{path}: want rows of two labels or more, got {len(rows)} rows of fewer")
    return rows


def batch_of(texts):
    """Tokens [B, T], filled up with zeros, and lengths [B]."""
    coded = [list(text.encode()[:MOST_BYTES]) for text in texts]
    lengths = torch.tensor([len(one) for one in coded])
    tokens = torch.zeros(len(coded), int(lengths.max()), dtype=torch.int64)
    for row, one in zip(tokens, coded):
        row[: len(one)] = torch.tensor(one)
    return tokens, lengths


def train(model, rows, labels, epochs):
    optimizer = tarn.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(epochs):
        random.shuffle(rows)
        for start in range(0, len(rows), BATCH):
            some = rows[start : start + BATCH]
            targets = torch.tensor([labels.index(label) for label, _ in some])
            logits = model(*batch_of([text for _, text in some]))
            loss = torch.nn.functional.cross_entropy(logits, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def main(path=EXAMPLE, out="models/messages", epochs=20):
    torch.manual_seed(0)
    random.seed(0)
    rows = read(path)
    random.shuffle(rows)
    held_out, rows = rows[::5], [row for i, row in enumerate(rows) if i % 5]
    labels = sorted({label for label, _ in held_out + rows})
    model = tarn.models.Classifier(
        labels=labels, n_classes=len(labels), d_model=64, n_layers=2, n_heads=4, dropout=0.1,
        positions="sinusoidal",
    )  # fmt: skip
    train(model.train(), rows, labels, epochs)
    tarn.save_model(model.eval(), out)

    found = Model(out).predict([text.encode()[:MOST_BYTES] for _, text in held_out])
    right = sum(guess == label for guess, (label, _) in zip(found, held_out))
    print(f"{len(rows)} rows to learn from, {len(held_out)} held out, {len(labels)} labels")
    print(f"held out: {right / len(held_out):.0%} right, by chance {1 / len(labels):.0%}")
    print(f"saved in {out}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
