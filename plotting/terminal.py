"""Curves in characters, for a look without a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_MARKS = "*+ox#@%&"


def chart(
    curves: Mapping[str, Sequence[tuple[float, float]]],
    key: str,
    *,
    width: int = 72,
    height: int = 16,
) -> str:
    """Lines of text: the curves by name over updates, a mark each, and their last values."""
    points = [point for curve in curves.values() for point in curve]
    left, right = min(p[0] for p in points), max(p[0] for p in points)
    low, high = min(p[1] for p in points), max(p[1] for p in points)
    rows = [[" "] * width for _ in range(height)]
    for mark, curve in zip(_cycle(len(curves)), curves.values(), strict=True):
        for x, y in curve:
            column = round((x - left) / (right - left or 1) * (width - 1))
            row = round((high - y) / (high - low or 1) * (height - 1))
            rows[row][column] = mark
    labels = [f"{high:.4g}", *[""] * (height - 2), f"{low:.4g}"]
    margin = max(map(len, labels))
    text = f"{key.replace('_', ' ')}\n"
    for label, row in zip(labels, rows, strict=True):
        text += f"{label:>{margin}} |{''.join(row)}".rstrip() + "\n"
    text += f"{'':>{margin}} +{'-' * width}\n"
    last = f"{right:g}"
    text += f"{'':>{margin}}  {left:<{width - len(last)}g}{last}  update\n"
    for mark, (name, curve) in zip(_cycle(len(curves)), curves.items(), strict=True):
        text += f"{mark} {name}: {curve[-1][1]:.4g}\n"
    return text


def _cycle(count: int) -> list[str]:
    return [_MARKS[i % len(_MARKS)] for i in range(count)]
