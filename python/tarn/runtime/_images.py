"""Images for the runtime: shapes checked, bytes in, bytes out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tarn.runtime._arguments import number, whole

Shape = tuple[int, int, int]  # height, width, channels


def shape_of(config: dict[str, Any]) -> Shape:
    """Sizes of the images of a model's config; ValueError for other models."""
    if config.get("task") != "image":
        raise ValueError(f"model: want an image model, got task {config.get('task')!r}")
    return config["image_height"], config["image_width"], config["image_channels"]


def _axes(shape: Shape) -> tuple[int, ...]:
    """Axes of one image in an array: grey images have none for channels."""
    return shape[:2] if shape[2] == 1 else shape


def _rows(images: np.ndarray, shape: Shape) -> np.ndarray:
    """[n, bytes] uint8, checked."""
    array = np.asarray(images)
    if array.dtype != np.uint8:
        raise TypeError(f"images: want uint8, got {array.dtype}")
    if array.shape[1:] != _axes(shape) or array.ndim < 2:
        wanted = ", ".join(["n", *map(str, _axes(shape))])
        raise ValueError(f"images: want [{wanted}], got {list(array.shape)}")
    return np.ascontiguousarray(array).reshape(len(array), math.prod(shape))


def _draw(
    model: Any,
    given: np.ndarray,
    samples: int,
    temperature: float,
    seed: int,
    batch: int,
) -> np.ndarray:
    return model.draw_images(
        given,
        samples,
        number("temperature", temperature),
        whole("seed", seed, 0, 2**64 - 1),
        whole("batch", batch, 0, 2**31),
    )


def generate(
    model: Any,
    shape: Shape,
    count: int,
    first: int,
    temperature: float,
    seed: int,
    batch: int,
) -> np.ndarray:
    """[count, H, W (, C)]; arguments of `Model.generate_images`."""
    count = whole("count", count, 0, 2**31)
    given = np.full((1, 1), whole("first", first, 0, 255), np.uint8)
    if count == 0:
        return np.empty((0, *_axes(shape)), np.uint8)
    drawn = _draw(model, given, count, temperature, seed, batch)
    return drawn.reshape(count, *_axes(shape))


def complete(
    model: Any,
    shape: Shape,
    images: np.ndarray,
    pixels: int,
    samples: int,
    temperature: float,
    seed: int,
    batch: int,
) -> np.ndarray:
    """[n, samples, H, W (, C)]; arguments of `Model.complete`."""
    rows = _rows(images, shape)
    samples = whole("samples", samples, 1, 2**31)
    given = whole("pixels", pixels, 1, shape[0] * shape[1]) * shape[2]
    drawn = _draw(model, np.ascontiguousarray(rows[:, :given]), samples, temperature, seed, batch)
    return drawn.reshape(len(rows), samples, *_axes(shape))


def bits_per_dim(model: Any, shape: Shape, images: np.ndarray, pixels: int) -> np.ndarray:
    """[n]; arguments of `Model.bits_per_dim`."""
    rows = _rows(images, shape)
    pixels = whole("pixels", pixels, 0, shape[0] * shape[1])
    start = max(1, pixels * shape[2])
    total = math.prod(shape)
    if start >= total:
        raise ValueError(f"pixels: want fewer than all {shape[0] * shape[1]}, got {pixels}")
    return model.score_images(rows, start) / ((total - start) * math.log(2))
