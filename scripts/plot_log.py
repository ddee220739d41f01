#!/usr/bin/env python3
"""Draws a training log as an SVG curve: scripts/plot_log.py LOG.jsonl OUT.svg

Bits per byte over steps: training (blue, means over bins of steps) and held-out
(red).
"""
import json
import sys

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 340, 60, 20, 20, 50
BINS = 200  # points of the training curve


def read(path):
    train, held_out = [], []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if "bits_per_byte" in row:
                train.append((row["step"], row["bits_per_byte"]))
            if "val_bits_per_byte" in row:
                held_out.append((row["step"], row["val_bits_per_byte"]))
    return train, held_out


def draw(train, held_out):
    points = train + held_out
    last = max(step for step, _ in points)
    low = min(bits for _, bits in points) - 0.1
    high = min(max(bits for _, bits in points), 6.0) + 0.1

    def x(step):
        return LEFT + (WIDTH - LEFT - RIGHT) * step / last

    def y(bits):
        share = (min(max(bits, low), high) - low) / (high - low)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share

    # A bin's mean: single updates are too noisy to read.
    size = -(-len(train) // BINS)
    bins = [train[i : i + size] for i in range(0, len(train), size)]
    train = [tuple(sum(column) / len(group) for column in zip(*group)) for group in bins]

    def path(series):
        return " ".join(f"{'L' if i else 'M'}{x(s):.1f} {y(b):.1f}" for i, (s, b) in enumerate(series))

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    bits = round(low * 2 + 0.5) / 2
    while bits < high:
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(bits):.1f}" y2="{y(bits):.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(bits) + 4:.1f}" text-anchor="end">{bits:.1f}</text>')
        bits += 0.5
    for i in range(5):
        step = last * i // 4
        parts.append(f'<text x="{x(step):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{step}</text>')
    parts.append(f'<path d="{path(train)}" fill="none" stroke="#9bbce0" stroke-width="1"/>')
    if held_out:
        parts.append(f'<path d="{path(held_out)}" fill="none" stroke="#c0392b" stroke-width="2"/>')
        step, bits = held_out[-1]
        parts.append(f'<text x="{x(step) - 4:.1f}" y="{y(bits) - 10:.1f}" text-anchor="end" fill="#c0392b">held out: {bits:.3f}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 10}" text-anchor="middle">step</text>')
    parts.append(f'<text x="16" y="{HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 16 {HEIGHT / 2})">bits per byte</text>')
    return "\n".join(parts + ["</svg>"]) + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    svg = draw(*read(sys.argv[1]))
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        out.write(svg)
