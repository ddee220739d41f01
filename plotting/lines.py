"""Curves with their names next to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plotting.numbers import plain_axis
from plotting.style import colour, render

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DASHES = ("solid", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))
_APART = 0.065  # share of the axes' height that a line of text takes at the usual size
_EARLY = 0.8  # share of their width: a curve that ends before it gets a line to its name


@dataclass(frozen=True)
class Series:
    """A line: `kind` picks the colour (COLOURS), `label` names it on the right
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
    """One set of axes. `marks` are (x, y, text) next to the lines, `x_ticks` the
    numbers below the axis where matplotlib must not choose them."""

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
    x_ticks: Sequence[float] = ()


def line_figure(
    panels: Sequence[Panel] | Panel,
    *,
    width: float | None = None,
    height: float = 3.9,
    form: str = "svg",
) -> bytes:
    """Curves as a file; several panels stand side by side. Sizes are in inches,
    forms as in render()."""
    panels = [panels] if isinstance(panels, Panel) else panels

    def draw(axes: Sequence[Axes]) -> None:
        for one, panel in zip(axes, panels, strict=True):
            _draw_panel(one, panel)

    return render(draw, columns=len(panels), width=width, height=height, form=form)


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
            axes.fill_between(
                [b[0] for b in one.band],
                [b[1] for b in one.band],
                [b[2] for b in one.band],
                color=shade,
                alpha=0.15,
                linewidth=0,
            )
        axes.plot(
            [p[0] for p in one.points],
            [p[1] for p in one.points],
            color=shade,
            linestyle=_DASHES[one.dash % len(_DASHES)],
            linewidth=0.9 if one.faint else 1.8,
            alpha=0.45 if one.faint else 1.0,
            marker="o" if one.marker else None,
            markersize=3.6,
        )
        if one.label:
            ends.append((one.points[-1], one.label, shade))
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    plain_axis(axes.xaxis, panel.log_x and panel.x_base != 10)
    plain_axis(axes.yaxis)
    if panel.x_ticks:
        axes.set_xticks(panel.x_ticks)
        axes.set_xticks([], minor=True)
    elif not panel.log_x:
        axes.xaxis.set_major_locator(MaxNLocator(5))  # so that neighbouring numbers do not touch
    axes.set_xlim(*panel.x_limits)
    axes.set_ylim(*panel.y_limits)
    if panel.title:
        axes.set_title(panel.title)
    for x, y, text in panel.marks:
        axes.annotate(text, (x, y), xytext=(4, 4), textcoords="offset points", fontsize=9)
    _label_ends(axes, ends)
    if panel.x_ticks:
        _keep_apart(axes)


def _keep_apart(axes: Axes) -> None:
    """Hides the numbers below the axis that would touch the next one; its mark and
    its grid line stay."""
    axes.figure.canvas.figure.draw_without_rendering()  # the layout is known from here on
    next_left = float("inf")
    for label in reversed(axes.get_xticklabels()):
        box = label.get_window_extent()
        if box.x1 + 0.5 * box.height > next_left:
            label.set_visible(False)
        else:
            next_left = box.x0


def _label_ends(axes: Axes, ends: Sequence[tuple[tuple[float, float], str, str]]) -> None:
    """Names to the right of the axes, where no line can cross them, pushed apart
    where they would meet. A thin line leads there from a line that ends early."""
    axes.figure.canvas.draw()  # scales are known from here on
    to_axes = axes.transData + axes.transAxes.inverted()
    places = []
    for point, label, shade in ends:
        x, y = to_axes.transform(point)
        places.append((min(max(y, 0.0), 1.0), x, label, shade))  # it may end off the axes
    places.sort(key=lambda one: one[0])
    for (end_y, x, label, shade), y in zip(places, _apart([one[0] for one in places]), strict=True):
        if x < _EARLY:
            axes.plot(
                [x, 1.01],
                [end_y, y],
                transform=axes.transAxes,
                color=shade,
                linewidth=0.8,
                linestyle=(0, (1, 3)),
                clip_on=False,
                zorder=1,
            )
        axes.text(
            1.015,
            y,
            label,
            transform=axes.transAxes,
            color=shade,
            va="center",
            ha="left",
            fontsize=9.5,
        )


def _apart(heights: Sequence[float]) -> list[float]:
    """Ascending heights, moved only as far as keeps each of them _APART from the
    next and the last below the top edge."""
    moved: list[float] = []
    for want in heights:
        moved.append(max(want, moved[-1] + _APART) if moved else want)
    most = 1.0
    for index in reversed(range(len(moved))):
        moved[index] = min(moved[index], most)
        most = moved[index] - _APART
    return moved
