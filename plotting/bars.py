"""Bars: groups side by side, and a ranking of horizontal bars."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from plotting.numbers import number, plain_axis
from plotting.style import colour, render

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def bar_figure(
    groups: Sequence[str],
    values: Mapping[str, Sequence[float | None]],
    y: str,
    *,
    kinds: Mapping[str, str] | None = None,
    log_y: bool = False,
    title: str = "",
    texts: Callable[[float], str] | None = None,
    form: str = "svg",
) -> bytes:
    """Bars: values[label][i] at groups[i]; None leaves a gap. `kinds` gives a
    label's colour, `texts` writes the figure above a bar."""

    def draw(axes: Sequence[Axes]) -> None:
        _draw_bars(axes[0], groups, values, kinds or {}, log_y, texts)
        axes[0].set_ylabel(y)
        if title:
            axes[0].set_title(title, pad=26 if len(values) > 1 else 6)

    return render(draw, form=form)


def ranking_figure(
    values: Mapping[str, float],
    unit: str,
    *,
    title: str = "",
    kinds: Mapping[str, str] | None = None,
    form: str = "svg",
) -> bytes:
    """One bar per label, from zero to the right in the order given, with its
    figure at the end. `kinds` gives a label's colour."""
    kinds = kinds or {}

    def draw(axes: Sequence[Axes]) -> None:
        shades = [colour(kinds.get(label, label), i) for i, label in enumerate(values)]
        bars = axes[0].barh(list(values), list(values.values()), 0.66, color=shades)
        axes[0].bar_label(bars, [f"{number(one)} {unit}" for one in values.values()], padding=4)
        axes[0].invert_yaxis()
        axes[0].margins(x=0.16)
        axes[0].grid(visible=False)
        axes[0].tick_params(left=False, bottom=False, labelbottom=False)
        axes[0].spines["bottom"].set_visible(False)
        if title:
            axes[0].set_title(title, loc="left")

    return render(draw, height=0.75 + 0.42 * len(values), form=form)


def _draw_bars(
    axes: Axes,
    groups: Sequence[str],
    values: Mapping[str, Sequence[float | None]],
    kinds: Mapping[str, str],
    log_y: bool,
    texts: Callable[[float], str] | None,
) -> None:
    if log_y:
        axes.set_yscale("log")
    width = 0.8 / max(1, len(values))
    for index, (label, row) in enumerate(values.items()):
        if len(row) != len(groups):
            raise ValueError(f"bars: {label}: want {len(groups)} values, got {len(row)}")
        places = [g + (index - (len(values) - 1) / 2) * width for g in range(len(groups))]
        shade = colour(kinds.get(label, label), index)
        known = [(x, v) for x, v in zip(places, row, strict=True) if v is not None]
        bars = axes.bar(
            [x for x, _ in known], [v for _, v in known], width * 0.92, color=shade, label=label
        )
        if texts:
            axes.bar_label(bars, [texts(v) for _, v in known], padding=2, fontsize=8.5)
    axes.set_xticks(range(len(groups)), list(groups))
    axes.grid(axis="x", visible=False)
    axes.margins(y=0.12)
    plain_axis(axes.yaxis)
    if len(values) > 1:  # above the bars, which it would hide
        axes.legend(
            loc="lower left",
            bbox_to_anchor=(-0.01, 1.0),
            ncols=len(values),
            fontsize=9.5,
            borderaxespad=0.2,
            handlelength=1.2,
            columnspacing=1.4,
        )
