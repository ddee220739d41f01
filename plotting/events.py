"""Training logs as event files of TensorBoard, through its own package."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from plotting.logs import Log

_PARTS = {"val": "held out", "test": "test"}


class NoTensorBoard(RuntimeError):
    """The package `tensorboard` is not installed."""


def tag(name: str) -> str:
    """ "val_loss" -> "loss/held out": a chart for each figure, a curve for each part."""
    part, _, rest = name.partition("_")
    return f"{rest}/{_PARTS[part]}" if part in _PARTS else f"{name}/training"


def write(runs: Sequence[tuple[str, Log]], folder: pathlib.Path) -> None:
    """Writes all figures of each run into folder/NAME, in place of event files that are
    there: writing again while a run trains brings its new updates. Raises NoTensorBoard
    and OSError."""
    try:
        from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError as error:
        raise NoTensorBoard(
            "--tensorboard: want the Python package tensorboard, got "
            f"{error} (python -m pip install tensorboard)"
        ) from error
    for name, log in runs:
        target = folder / name
        target.mkdir(parents=True, exist_ok=True)
        for old in target.glob("events.out.tfevents.*"):
            old.unlink()
        writer = EventFileWriter(str(target))
        for figure, points in log.figures.items():
            for step, value in points:
                point = Summary.Value(tag=tag(figure), simple_value=value)
                writer.add_event(Event(step=round(step), summary=Summary(value=[point])))
        writer.close()
