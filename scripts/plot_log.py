#!/usr/bin/env python3
"""Draws a training log as a curve: scripts/plot_log.py LOG.jsonl OUT.svg|OUT.png

Bits per byte over updates: training (pale, means of neighbouring updates) and
held out. docs/demo.svg is docs/demonstrations/demo.jsonl drawn so.
"""
import json
import math
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

import plotting  # noqa: E402

BINS = 200  # points of the training curve: single updates are too noisy to read
ABOVE = 1.2  # times the first held-out value: the first updates would press the rest flat


def point(row, key):
    """(step, value), both finite."""
    found = float(row["step"]), float(row[key])
    if not all(map(math.isfinite, found)):
        raise ValueError(f"{key}: want a finite number, got {row[key]}")
    return found


def read(path):
    """Training and held-out points (step, bits per byte) of a log. ValueError
    where a line is no JSON object or no line has training's bits per byte."""
    train, held_out = [], []
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                if "bits_per_byte" in row:
                    train.append(point(row, "bits_per_byte"))
                if "val_bits_per_byte" in row:
                    held_out.append(point(row, "val_bits_per_byte"))
            except (KeyError, TypeError, ValueError, RecursionError) as error:
                raise ValueError(f"{path}:{number}: want a row of a training log, got: "
                                 f"{type(error).__name__}: {error}") from error
    if not train:
        raise ValueError(f"{path}: want rows with bits_per_byte, got none")
    return train, held_out


def means(points):
    """BINS points at most, each the mean of neighbours."""
    size = -(-len(points) // BINS)
    groups = [points[i:i + size] for i in range(0, len(points), size)]
    return [tuple(sum(column) / len(group) for column in zip(*group)) for group in groups]


def draw(train, held_out, form):
    """The curve as a file's bytes."""
    series = [plotting.Series("training", means(train), "linear", faint=True)]
    if held_out:
        label = f"held out: {held_out[-1][1]:.3f}"
        series.append(plotting.Series(label, held_out, "softmax", marker=True))
    highest = ABOVE * held_out[0][1] if held_out else None
    panel = plotting.Panel(series, "update", "bits per byte", x_limits=(0, None),
                           y_limits=(None, highest))
    return plotting.line_figure(panel, height=3.4, form=form)


def main(words):
    if len(words) != 2 or pathlib.Path(words[1]).suffix not in (".svg", ".png"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    try:
        out = pathlib.Path(words[1])
        out.write_bytes(draw(*read(words[0]), out.suffix[1:]))
    except (OSError, ValueError, plotting.NoMatplotlib) as error:
        print(f"plot_log: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
