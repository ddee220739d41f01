"""`tarn plot LOG...`: the curves of training runs as a picture, in the terminal, or
as event files for TensorBoard."""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Sequence

import plotting
from plotting import events, logs, terminal

_BINS = 200  # points of a training curve: single updates are too noisy to read
_ABOVE = 1.2  # times the first held-out value: the first updates would press the rest flat
_EXAMPLES = """\
LOG is a run's folder (--out of `tarn train`) or its log.jsonl. Training curves
are pale; held-out curves have markers.

examples:
  tarn plot models/book
  tarn plot models/a models/b --out curves.svg
  tarn plot models/book --key loss --out loss.png
  tarn plot models/a models/b --tensorboard runs && tensorboard --logdir runs

exit status: 0 done, 1 failure, 2 wrong usage, 3 a file that is no training log
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tarn plot",
        description="Draws the curves of one or more training runs.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "logs", metavar="LOG", nargs="+", help="folders of runs, or log.jsonl files"
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="picture to write, .svg or .png; by default the curves go to the terminal",
    )
    parser.add_argument(
        "--key",
        metavar="NAME",
        help="figure of the log: loss, bits_per_byte, accuracy, lr, ... "
        "(default: the first that all logs have)",
    )
    parser.add_argument(
        "--tensorboard", metavar="DIR", help="write all figures as event files, one folder per run"
    )
    return parser


def _means(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most _BINS points, each the mean of neighbours."""
    size = -(-len(points) // _BINS)
    groups = [points[i : i + size] for i in range(0, len(points), size)]
    return [
        (sum(p[0] for p in group) / len(group), sum(p[1] for p in group) / len(group))
        for group in groups
    ]


def _series(runs: Sequence[tuple[str, logs.Log]], key: str) -> list[plotting.Series]:
    """One run's two curves have their names; of several runs each has a colour and its name."""
    series = []
    if len(runs) == 1:
        figures = runs[0][1].figures
        series.append(plotting.Series("training", _means(figures[key]), "linear", faint=True))
        if held_out := figures.get("val_" + key, []):
            series.append(
                plotting.Series(
                    f"held out: {held_out[-1][1]:.3f}", held_out, "softmax", marker=True
                )
            )
        return series
    for index, (name, run) in enumerate(runs):
        kind = list(plotting.COLOURS)[index % len(plotting.COLOURS)]
        held_out = run.figures.get("val_" + key, [])
        series.append(
            plotting.Series(
                "" if held_out else name,
                _means(run.figures[key]),
                kind,
                dash=index // len(plotting.COLOURS),
                faint=bool(held_out),
            )
        )
        if held_out:
            series.append(
                plotting.Series(f"{name}: {held_out[-1][1]:.4g}", held_out, kind, marker=True)
            )
    return series


def _draw(runs: Sequence[tuple[str, logs.Log]], key: str, form: str) -> bytes:
    first = [run.figures["val_" + key][0][1] for _, run in runs if run.figures.get("val_" + key)]
    falls = "accuracy" not in key and "lr" != key
    highest = _ABOVE * max(first) if first and falls else None
    panel = plotting.Panel(
        _series(runs, key),
        "update",
        key.replace("_", " "),
        x_limits=(0, None),
        y_limits=(None, highest),
    )
    return plotting.line_figure(panel, height=3.4, form=form)


def _named(runs: Sequence[logs.Log]) -> list[tuple[str, logs.Log]]:
    """Every run with a name that no other has."""
    names: list[tuple[str, logs.Log]] = []
    taken: set[str] = set()
    for run in runs:
        name, again = run.name, 1
        while name in taken:
            again += 1
            name = f"{run.name} {again}"
        taken.add(name)
        names.append((name, run))
    return names


def main(words: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    parser = _parser()
    given = parser.parse_args(words)
    if given.out and pathlib.Path(given.out).suffix not in (".svg", ".png"):
        parser.error(f"--out: want a file that ends in .svg or .png, got {given.out}")
    try:
        runs = _named([logs.read(path) for path in given.logs])
        if given.tensorboard:
            events.write(runs, pathlib.Path(given.tensorboard))
            print(f"events of {len(runs)} runs in {given.tensorboard}")
            if not given.out:
                return 0
        key = logs.common([run for _, run in runs], given.key)
        if given.out:
            out = pathlib.Path(given.out)
            out.write_bytes(_draw(runs, key, out.suffix[1:]))
        else:
            print(
                terminal.chart(
                    {name: run.figures.get("val_" + key) or run.figures[key] for name, run in runs},
                    key,
                ),
                end="",
            )
    except logs.BadLog as error:
        print(f"tarn plot: error: {error}", file=sys.stderr)
        return 2 if str(error).startswith("--") else 3
    except (OSError, plotting.NoMatplotlib, events.NoTensorBoard) as error:
        print(f"tarn plot: error: {error}", file=sys.stderr)
        return 1
    return 0
