"""Numbers for people, in tables and next to axes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axis import Axis


def number(value: float | None, digits: int = 3) -> str:
    """A number for people: 3 digits, thousands with commas, a dash for None."""
    if value is None or value != value:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    if value == 0:
        return "0"
    text = f"{value:.{digits}g}"
    if "e" in text or abs(value) >= 10**digits:
        return f"{value:,.0f}" if abs(value) >= 1 else text
    return text


def _plain(value: float, _: object) -> str:
    """Whole numbers in full: 1,000,000, not 1e+06."""
    return f"{value:,.0f}" if abs(value) >= 1e5 else f"{value:,g}"


def plain_axis(axis: Axis, powers: bool = False) -> None:
    """Labels 1,000 and 0.01 rather than powers of ten; powers of two stay powers."""
    from matplotlib.ticker import FuncFormatter

    def between(value: float, _: object) -> str:
        """A number between powers of ten, on an axis that shows few of those."""
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
