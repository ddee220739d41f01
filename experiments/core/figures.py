"""Figures of the report: plots as SVG, images as PNG. The same result
gives the same bytes."""

from __future__ import annotations

import base64
import pathlib
import zlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from experiments.core.page import Picture
from experiments.core.types import JsonDict
from plotting import Panel, bar_figure, line_figure


class Figures:
    """Writes figures into a folder; files are named <prefix>-<name>.svg|png.
    `files` lists them."""

    def __init__(self, folder: pathlib.Path, prefix: str) -> None:
        self.folder, self.prefix = folder, prefix
        self.files: list[str] = []

    def lines(
        self, name: str, panels: Sequence[Panel] | Panel, alt: str, caption: str = ""
    ) -> Picture:
        """Curves; several panels are side by side."""
        return self._plot(name, line_figure(panels), alt, caption)

    def bars(
        self,
        name: str,
        groups: Sequence[str],
        values: Mapping[str, Sequence[float | None]],
        y: str,
        alt: str,
        caption: str = "",
        *,
        kinds: Mapping[str, str] | None = None,
        log_y: bool = False,
        title: str = "",
        texts: Callable[[float], str] | None = None,
    ) -> Picture:
        """Bars: values[label][i] at groups[i]; None leaves a gap. `kinds` gives
        a label's colour, `texts` writes the figure above a bar."""
        drawn = bar_figure(groups, values, y, kinds=kinds, log_y=log_y, title=title, texts=texts)
        return self._plot(name, drawn, alt, caption)

    def _plot(self, name: str, svg: bytes, alt: str, caption: str) -> Picture:
        path = self._path(name, "svg")
        path.write_bytes(svg)
        return Picture(path.name, alt, caption)

    def images(
        self,
        name: str,
        rows: Sequence[Sequence[np.ndarray]],
        alt: str,
        caption: str = "",
        *,
        scale: int = 2,
        gap: int = 2,
        row_gaps: Sequence[int] = (),
    ) -> Picture:
        """A grid of byte images [height, width] or [height, width, 3] as PNG,
        each pixel `scale` wide. A wider gap comes before the columns in `row_gaps`."""
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
    """The images that pack_images() packed. ValueError where it is no such value."""
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


def _grid(
    rows: Sequence[Sequence[np.ndarray]], scale: int, gap: int, wider: set[int]
) -> np.ndarray:
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
            paper[top : top + height * scale, start : start + width * scale] = large
    return paper
