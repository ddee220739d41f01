"""Every plot of the repository: matplotlib in one style, and the same input
gives the same bytes.

The experiments' report, the benchmarks' report and `tarn plot` draw
through this package; it knows none of them. matplotlib is loaded where a
figure is drawn and not before, so that programs that print text need none.
"""

from plotting.bars import bar_figure, ranking_figure
from plotting.lines import Panel, Series, line_figure
from plotting.numbers import number
from plotting.style import COLOURS, MISSING, NoMatplotlib, available, colour, render

__all__ = [
    "COLOURS",
    "MISSING",
    "NoMatplotlib",
    "Panel",
    "Series",
    "available",
    "bar_figure",
    "colour",
    "line_figure",
    "number",
    "ranking_figure",
    "render",
]
