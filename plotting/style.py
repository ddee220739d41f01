"""The house style, and how a figure becomes bytes."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# One colour per type of model on every page. Readers with any colour vision can tell
# them apart (Okabe and Ito's palette), and names are next to the lines. Types that are
# on no common page share one.
COLOURS = {
    "linear": "#0072b2",
    "softmax": "#d55e00",
    "reformer": "#009e73",
    "lstm": "#7f7f7f",
    "naive": "#e69f00",
    "cached": "#cc79a7",
    "peer": "#9aa5ad",
    "bound": "#555555",
    "retnet": "#e69f00",
    "mamba2": "#009e73",
    "gla": "#56b4e9",
    "gdn": "#aa4499",
    "kda": "#332288",
    "rwkv7": "#999933",
    "hybrid": "#7f7f7f",
}
_OTHERS = ("#56b4e9", "#332288", "#999933", "#aa4499")
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

MISSING = "want matplotlib, which this Python has not (pip install -r requirements.txt)"


class NoMatplotlib(ImportError):
    """Raised where a Python without matplotlib is to draw a figure."""


def available() -> bool:
    """Whether figures can be drawn here."""
    return importlib.util.find_spec("matplotlib") is not None


def colour(kind: str, index: int = 0) -> str:
    """The colour of a kind of model, or the index-th of the rest."""
    return COLOURS.get(kind, _OTHERS[index % len(_OTHERS)])


def render(
    draw: Callable[[Sequence[Axes]], None],
    *,
    columns: int = 1,
    width: float | None = None,
    height: float = 3.9,
    form: str = "svg",
) -> bytes:
    """What `draw` draws on `columns` axes that stand side by side, as the bytes
    of a file; `form` is "svg" or "png", sizes are in inches. They contain no time,
    no trace of the machine and no random number. Raises ValueError for another form,
    and NoMatplotlib."""
    if form not in ("svg", "png"):
        raise ValueError(f"render: form: want svg or png, got {form!r}")
    if not available():
        raise NoMatplotlib(f"figures: {MISSING}")
    import matplotlib
    from matplotlib.figure import Figure

    width = width or (7.2 if columns == 1 else 4.7 * columns)
    out = io.BytesIO()
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height))
        draw(figure.subplots(1, columns, squeeze=False)[0])
        if form == "png":
            figure.savefig(out, format="png", dpi=144, metadata={"Software": None})
            return out.getvalue()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": "tarn"})
    # matplotlib leaves blanks at the end of lines of path data.
    lines = out.getvalue().decode("utf-8").splitlines()
    return "".join(line.rstrip() + "\n" for line in lines).encode("utf-8")
