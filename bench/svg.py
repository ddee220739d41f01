"""Plots as SVG text: lines on logarithmic axes, and bars."""

import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 40, 90
COLOURS = ("#1b6ca8", "#d1495b", "#3c8d53", "#c98b1f", "#7a4fa3", "#5b6770")


def _text(x, y, text, anchor="middle", **attributes):
    extra = "".join(f' {key}="{value}"' for key, value in attributes.items())
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{escape(text)}</text>'


def _page(height, title, parts):
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">'
    )
    back = f'<rect width="{WIDTH}" height="{height}" fill="white"/>'
    name = f'<text x="{LEFT}" y="22" font-size="14">{escape(title)}</text>'
    return "\n".join([head, back, name, *parts, "</svg>"]) + "\n"


def number(value):
    """Four figures at most, thousands with commas."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _ticks(low, high):
    """Powers of ten, and 2 and 5 times them where there is room."""
    steps = (1,) if high / low > 1e3 else (1, 2, 5)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = (s * 10.0**p for p in range(first, last + 1) for s in steps)
    return [t for t in every if low <= t <= high]


class _Axis:
    """A logarithmic scale of values onto pixels."""

    def __init__(self, values, start, end):
        low, high = min(values), max(values)
        if low == high:
            low, high = low / 2, high * 2
        self.low, self.high, self.start, self.end = low, high, start, end

    def at(self, value):
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)


def lines(title, x_name, y_name, series):
    """series: {label: [(x, y), ...]}, all positive."""
    points = [point for line in series.values() for point in line]
    x = _Axis([p[0] for p in points], LEFT, WIDTH - RIGHT)
    y = _Axis([p[1] for p in points], HEIGHT - BOTTOM, TOP)
    parts = []
    for tick in _ticks(y.low, y.high):
        at = y.at(tick)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>'
        )
        parts.append(_text(LEFT - 6, at + 4, number(tick), "end"))
    for tick in sorted({p[0] for p in points}):
        parts.append(_text(x.at(tick), HEIGHT - BOTTOM + 16, number(tick)))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 34, x_name))
    parts.append(_text(14, TOP - 8, y_name, "start"))
    for i, (label, line) in enumerate(series.items()):
        colour = COLOURS[i % len(COLOURS)]
        path = " ".join(
            f"{'L' if j else 'M'}{x.at(a):.1f} {y.at(b):.1f}"
            for j, (a, b) in enumerate(line)
        )
        parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{x.at(a):.1f}" cy="{y.at(b):.1f}" r="3" fill="{colour}"/>'
            for a, b in line
        ]
        parts += _legend(i, label, colour)
    return _page(HEIGHT, title, parts)


def _legend(i, label, colour):
    left = LEFT + (i % 3) * 190
    top = HEIGHT - 36 + (i // 3) * 18
    yield f'<rect x="{left}" y="{top - 9}" width="10" height="10" fill="{colour}"/>'
    yield _text(left + 15, top, label, "start")


def bars(title, unit, series):
    """series: {label: value}; horizontal, from zero."""
    most = max(series.values())
    left, height = 220, 50 + 34 * len(series)
    parts = []
    for i, (label, value) in enumerate(series.items()):
        top = 40 + 34 * i
        width = (WIDTH - left - 90) * value / most
        colour = COLOURS[0] if label.startswith("tarn") else COLOURS[5]
        parts.append(_text(left - 8, top + 16, label, "end"))
        parts.append(
            f'<rect x="{left}" y="{top}" width="{width:.1f}" height="24" fill="{colour}"/>'
        )
        parts.append(_text(left + width + 6, top + 16, f"{number(value)} {unit}", "start"))
    return _page(height, title, parts)


def draw(plot):
    """The SVG text of a plot that results.Table.plot described."""
    if plot["kind"] == "bars":
        return bars(plot["title"], plot["x"], plot["series"])
    return lines(plot["title"], plot["x"], plot["y"], plot["series"])
