"""Draws a plot that results.Table.plot described, in the repository's style."""

import plotting


def _kind(label):
    """The kind that gives a side its colour: tarn's own, softmax, or a limit of all sides."""
    if label in ("equal", "products") or label.startswith("bound"):
        return "bound"
    if "tarn" in label:
        return "linear"
    return "softmax" if label.endswith("softmax attention") else ""


def _series(label, points):
    kind = _kind(label)
    bound = kind == "bound"
    return plotting.Series(label, points, kind, dash=int(bound), marker=not bound)


def draw(plot, form="svg"):
    """The file of a plot as bytes, SVG or PNG. NoMatplotlib without matplotlib."""
    series = plot["series"]
    if plot["kind"] == "bars":
        kinds = {label: _kind(label) or "peer" for label in series}
        return plotting.ranking_figure(
            series, plot["x"], title=plot["title"], kinds=kinds, form=form
        )
    ticks = sorted({x for line in series.values() for x, _ in line})
    panel = plotting.Panel(
        [_series(label, line) for label, line in series.items()],
        plot["x"],
        plot["y"],
        plot["title"],
        log_x=True,
        log_y=True,
        x_ticks=ticks,
    )
    return plotting.line_figure(panel, width=7.2, form=form)
