"""Figures of the report: matplotlib to SVG, images to PNG. The same result
gives the same bytes."""

from __future__ import annotations

import base64
import math
import pathlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.core.page import Picture
from experiments.core.types import JsonDict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

# One colour a kind of model on every page, told apart by everybody (Okabe and
# Ito's palette) and by the lines' ends, which carry their names.
COLOURS = {
    "linear": "#0072b2",
    "softmax": "#d55e00",
    "reformer": "#009e73",
    "lstm": "#7f7f7f",
    "naive": "#e69f00",
    "cached": "#cc79a7",
}
_OTHERS = ("#56b4e9", "#332288", "#999933", "#aa4499")
_DASHES = ("solid", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))
_TEXT, _GRID = "#333333", "#e3e3e3"

_STYLE: Any = {  # matplotlib types its keys
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "tarn",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10.5,
    "text.color": _TEXT,
    "axes.edgecolor": "#888888",
    "axes.labelcolor": _TEXT,
    "axes.titlesize": 11.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.8,
    "xtick.color": _TEXT,
    "ytick.color": _TEXT,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "figure.facecolor": "white",
}


@dataclass(frozen=True)
class Series:
    """A line: `kind` picks the colour (COLOURS), `label` names it at its end
    (empty: another run of a line that is named), `dash` 0..3, `band` the
    lower and upper edge of a shaded range."""

    label: str
    points: Sequence[tuple[float, float]]
    kind: str = ""
    dash: int = 0
    marker: bool = False
    faint: bool = False
    band: Sequence[tuple[float, float, float]] = ()  # (x, low, high)


@dataclass(frozen=True)
class Panel:
    """One set of axes. `marks` are (x, y, text) beside the lines."""

    series: Sequence[Series]
    x: str
    y: str
    title: str = ""
    log_x: bool = False
    log_y: bool = False
    x_base: int = 10
    y_limits: tuple[float | None, float | None] = (None, None)
    x_limits: tuple[float | None, float | None] = (None, None)
    marks: Sequence[tuple[float, float, str]] = ()


class Figures:
    """Writes figures into a folder; files are named <prefix>-<name>.svg|png.
    `files` lists them."""

    def __init__(self, folder: pathlib.Path, prefix: str) -> None:
        self.folder, self.prefix = folder, prefix
        self.files: list[str] = []

    def lines(self, name: str, panels: Sequence[Panel] | Panel, alt: str,
              caption: str = "") -> Picture:
        """Curves; several panels stand side by side."""
        panels = [panels] if isinstance(panels, Panel) else panels

        def draw(axes: Sequence[Axes]) -> None:
            for one, panel in zip(axes, panels, strict=True):
                _draw_panel(one, panel)

        return self.draw(name, draw, alt, caption, columns=len(panels))

    def bars(self, name: str, groups: Sequence[str], values: Mapping[str, Sequence[float | None]],
             y: str, alt: str, caption: str = "", *, kinds: Mapping[str, str] | None = None,
             log_y: bool = False, title: str = "", texts: Callable[[float], str] | None = None,
             ) -> Picture:
        """Bars: values[label][i] at groups[i]; None leaves a gap marked "-".
        `kinds` gives a label's colour, `texts` writes the figure above a bar."""

        def draw(axes: Sequence[Axes]) -> None:
            _draw_bars(axes[0], groups, values, kinds or {}, log_y, texts)
            axes[0].set_ylabel(y)
            if title:
                axes[0].set_title(title, pad=26 if len(values) > 1 else 6)

        return self.draw(name, draw, alt, caption)

    def draw(self, name: str, draw: Callable[[Sequence[Axes]], None], alt: str,
             caption: str = "", *, columns: int = 1, width: float | None = None,
             height: float = 3.9) -> Picture:
        """Anything else: draw(axes) with `columns` axes in the house style.
        Sizes in inches."""
        import matplotlib
        from matplotlib.figure import Figure

        width = width or (7.2 if columns == 1 else 4.7 * columns)
        with matplotlib.rc_context(_STYLE):
            figure = Figure(figsize=(width, height))
            draw(figure.subplots(1, columns, squeeze=False)[0])
            path = self._path(name, "svg")
            figure.savefig(path, format="svg", metadata={"Date": None, "Creator": "tarn"})
        # matplotlib ends lines of path data with blanks.
        text = path.read_text("utf-8")
        path.write_text("".join(line.rstrip() + "\n" for line in text.splitlines()), "utf-8")
        return Picture(path.name, alt, caption)

    def images(self, name: str, rows: Sequence[Sequence[np.ndarray]], alt: str,
               caption: str = "", *, scale: int = 2, gap: int = 2,
               row_gaps: Sequence[int] = ()) -> Picture:
        """A grid of byte images [height, width] or [height, width, 3] as PNG,
        each pixel `scale` wide. A wider gap stands before the columns in
        `row_gaps`."""
        from PIL import Image

        path = self._path(name, "png")
        Image.fromarray(_grid(rows, scale, gap, set(row_gaps))).save(path, optimize=True)
        return Picture(path.name, alt, caption)

    def _path(self, name: str, suffix: str) -> pathlib.Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        file = f"{self.prefix}-{name}.{suffix}"
        self.files.append(file)
        return self.folder / file


# --- Images in a result -------------------------------------------------------


def pack_images(images: np.ndarray) -> JsonDict:
    """Byte images of any shape as a JSON value (deflate, base64)."""
    if images.dtype != np.uint8:
        raise ValueError(f"pack_images: images: want uint8, got {images.dtype}")
    data = base64.b64encode(zlib.compress(np.ascontiguousarray(images).tobytes(), 9))
    return {"shape": list(images.shape), "deflate": data.decode("ascii")}


def unpack_images(packed: JsonDict) -> np.ndarray:
    """Back again. ValueError where it is no such value."""
    try:
        shape = [int(n) for n in packed["shape"]]
        count = int(np.prod(shape, dtype=np.int64))
        if min(shape, default=0) < 0 or count > 1 << 28:
            raise ValueError(f"shape {shape}")
        unpack = zlib.decompressobj()
        data = unpack.decompress(base64.b64decode(packed["deflate"], validate=True), count + 1)
    except (KeyError, TypeError, zlib.error, OverflowError) as error:
        raise ValueError(f"unpack_images: want packed images, got: {error}") from error
    if len(data) != count:
        raise ValueError(f"unpack_images: want {count} bytes for {shape}, got {len(data)}")
    return np.frombuffer(data, np.uint8).reshape(shape)


# --- Drawing ------------------------------------------------------------------


def colour(kind: str, index: int = 0) -> str:
    """Of a kind of model, or the index-th of the rest."""
    return COLOURS.get(kind, _OTHERS[index % len(_OTHERS)])


def _draw_panel(axes: Axes, panel: Panel) -> None:
    from matplotlib.ticker import MaxNLocator

    if panel.log_x:
        axes.set_xscale("log", base=panel.x_base)
    if panel.log_y:
        axes.set_yscale("log")
    ends = []
    for index, one in enumerate(panel.series):
        if not one.points:
            continue
        shade = colour(one.kind, index)
        if one.band:
            axes.fill_between([b[0] for b in one.band], [b[1] for b in one.band],
                              [b[2] for b in one.band], color=shade, alpha=0.15, linewidth=0)
        axes.plot([p[0] for p in one.points], [p[1] for p in one.points], color=shade,
                  linestyle=_DASHES[one.dash % len(_DASHES)],
                  linewidth=0.9 if one.faint else 1.8, alpha=0.45 if one.faint else 1.0,
                  marker="o" if one.marker else None, markersize=3.6)
        if one.label:
            ends.append((one.points[-1], one.label, shade))
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    _plain_numbers(axes.xaxis, panel.log_x and panel.x_base != 10)
    _plain_numbers(axes.yaxis)
    if not panel.log_x:
        axes.xaxis.set_major_locator(MaxNLocator(5))  # numbers beside each other do not touch
    axes.set_xlim(*panel.x_limits)
    axes.set_ylim(*panel.y_limits)
    if panel.title:
        axes.set_title(panel.title)
    for x, y, text in panel.marks:
        axes.annotate(text, (x, y), xytext=(4, 4), textcoords="offset points", fontsize=9)
    _label_ends(axes, ends)


def _plain(value: float, _: object) -> str:
    """Whole numbers in full: 1,000,000, not 1e+06."""
    return f"{value:,.0f}" if abs(value) >= 1e5 else f"{value:,g}"


def _plain_numbers(axis: Axis, powers: bool = False) -> None:
    """1,000 and 0.01 rather than 10 to a power; powers of two stay powers."""
    from matplotlib.ticker import FuncFormatter

    def between(value: float, _: object) -> str:
        """Of a logarithmic axis: where there are few powers of ten on it."""
        low, high = sorted(axis.get_view_interval())
        decades = math.log10(high / low) if low > 0 else 9.0
        leading = f"{value:.0e}"[0]
        shown = decades < 0.6 or decades < 1.6 and leading in "25"
        return f"{value:,g}" if shown else ""

    if powers:
        return
    axis.set_major_formatter(FuncFormatter(_plain))
    if axis.get_scale() == "log":
        axis.set_minor_formatter(FuncFormatter(between))


def _label_ends(axes: Axes, ends: Sequence[tuple[tuple[float, float], str, str]]) -> None:
    """Names at the right edge, pushed apart where they would meet; that of a
    line that ends well before it stands at its end."""
    axes.figure.canvas.draw()  # scales are known from here on
    to_axes = axes.transData + axes.transAxes.inverted()
    places = []
    for point, label, shade in ends:
        x, y = to_axes.transform(point)
        if x < 0.8:
            axes.annotate(label, point, xytext=(6, 0), textcoords="offset points", color=shade,
                          va="center", fontsize=9.5, annotation_clip=False,
                          bbox={"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 1})
        else:  # clipped: a line may end outside of the limits
            places.append((min(max(y, 0.0), 1.0), label, shade))
    places.sort(key=lambda one: one[0])
    least, y = 0.065, -1.0
    spread = []
    for want, label, shade in places:
        y = max(want, y + least)
        spread.append([y, label, shade])
    over = max(0.0, (spread[-1][0] if spread else 0.0) - 1.0)
    for place in reversed(spread):  # back below the top edge
        place[0] -= over
        over = 0.0 if over <= 0 else over
    for y, label, shade in spread:
        axes.text(1.015, y, label, transform=axes.transAxes, color=shade, va="center",
                  ha="left", fontsize=9.5)


def _draw_bars(axes: Axes, groups: Sequence[str], values: Mapping[str, Sequence[float | None]],
               kinds: Mapping[str, str], log_y: bool,
               texts: Callable[[float], str] | None) -> None:
    if log_y:
        axes.set_yscale("log")
    width = 0.8 / max(1, len(values))
    for index, (label, row) in enumerate(values.items()):
        if len(row) != len(groups):
            raise ValueError(f"bars: {label}: want {len(groups)} values, got {len(row)}")
        places = [g + (index - (len(values) - 1) / 2) * width for g in range(len(groups))]
        shade = colour(kinds.get(label, label), index)
        known = [(x, v) for x, v in zip(places, row, strict=True) if v is not None]
        bars = axes.bar([x for x, _ in known], [v for _, v in known], width * 0.92,
                        color=shade, label=label)
        if texts:
            axes.bar_label(bars, [texts(v) for _, v in known], padding=2, fontsize=8.5)
    axes.set_xticks(range(len(groups)), list(groups))
    axes.grid(axis="x", visible=False)
    axes.margins(y=0.12)
    _plain_numbers(axes.yaxis)
    if len(values) > 1:  # above the bars, which it would hide
        axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=len(values),
                    fontsize=9.5, borderaxespad=0.2, handlelength=1.2, columnspacing=1.4)


def _grid(rows: Sequence[Sequence[np.ndarray]], scale: int, gap: int,
          wider: set[int]) -> np.ndarray:
    """All images on white paper, [height, width] or [height, width, 3] bytes."""
    height, width = rows[0][0].shape[:2]
    channels = rows[0][0].shape[2:]
    columns = max(len(row) for row in rows)
    starts, x = [], gap
    for column in range(columns):
        x += 3 * gap if column in wider else 0
        starts.append(x)
        x += width * scale + gap
    paper = np.full((gap + len(rows) * (height * scale + gap), x, *channels), 255, np.uint8)
    for r, row in enumerate(rows):
        top = gap + r * (height * scale + gap)
        for start, image in zip(starts, row):
            large = image.repeat(scale, 0).repeat(scale, 1)
            paper[top:top + height * scale, start:start + width * scale] = large
    return paper
