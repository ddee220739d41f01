"""Bytes of images from the bytes before them, by counts: the difference to the previous
pixel, and four neighbours in a few levels."""

from __future__ import annotations

import numpy as np

# Lower edges of the levels of a neighbour; black and white have one each.
_EDGES = (1, 64, 128, 192, 252)
_LEVELS = len(_EDGES) + 1
_BYTES = 256


def difference_bits(learned: np.ndarray, judged: np.ndarray) -> float:
    """Bits a byte of the histogram, one added to each count, of a byte minus that of the same
    channel in the previous pixel, modulo 256; in the first pixel minus the byte before. An
    image's first byte is not modelled. Images: uint8 [N, H, W, C]."""
    counts = 1 + np.bincount(_differences(learned).reshape(-1), minlength=_BYTES)
    bits = -np.log2(counts / counts.sum())
    return float(bits[_differences(judged)].mean())


def _differences(images: np.ndarray) -> np.ndarray:
    """[N, H * W * C - 1], modulo 256."""
    flat, channels = images.reshape(images.shape[0], -1), images.shape[3]
    first = flat[:, 1:channels] - flat[:, : channels - 1]
    return np.concatenate([first, flat[:, channels:] - flat[:, :-channels]], axis=1)


def neighbour_bits(learned: np.ndarray, judged: np.ndarray) -> float:
    """Bits a byte given, in six levels, the same channel's bytes to the left, above, above
    left and above right (0 outside of the image); each further neighbour is interpolated with
    the table without it as counts.CountTable does. An image's first byte is not modelled."""
    known, asked = _contexts(learned), _contexts(judged)
    bytes_known, bytes_asked = _modelled(learned), _modelled(judged)
    chances = np.full(bytes_asked.shape, 1 / _BYTES)
    for k in range(len(known)):
        table = np.bincount(known[k] * _BYTES + bytes_known, minlength=_LEVELS**k * _BYTES).reshape(
            -1, _BYTES
        )
        seen, kinds = table.sum(1)[asked[k]], (table > 0).sum(1)[asked[k]]
        mixed = table[asked[k], bytes_asked] + kinds * chances
        chances = np.where(seen > 0, mixed / np.maximum(seen + kinds, 1), chances)
    return float(-np.log2(chances).mean())


def _modelled(images: np.ndarray) -> np.ndarray:
    """All bytes but the first of each image, in one row."""
    return images.reshape(images.shape[0], -1)[:, 1:].reshape(-1).astype(np.int64)


def _contexts(images: np.ndarray) -> list[np.ndarray]:
    """The number of the context of 0, 1, 2, 3 and 4 neighbours of each byte of _modelled()."""
    levels = np.digitize(images, _EDGES).astype(np.int16)
    padded = np.pad(levels, ((0, 0), (1, 0), (1, 1), (0, 0)))
    height, width = images.shape[1:3]
    places = ((1, 0), (0, 1), (0, 0), (0, 2))  # row and column of the padded image
    contexts = [np.zeros(images.shape, np.int32)]
    for y, x in places:
        contexts.append(contexts[-1] * _LEVELS + padded[:, y : y + height, x : x + width])
    return [_modelled_int(one) for one in contexts]


def _modelled_int(numbers: np.ndarray) -> np.ndarray:
    return numbers.reshape(numbers.shape[0], -1)[:, 1:].reshape(-1)
